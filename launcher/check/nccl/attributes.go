package nccl

// Form is how an attribute of the nccl block is written.
type Form int

const (
	AsSwitch       Form = iota // true or false
	AsSize                     // "8MiB"
	AsNumber                   // 3
	AsMode                     // a number, or true or false for 1 and 0
	AsWord                     // "NVL"
	AsWords                    // ["INIT", "NET"], or as NCCL has it: "INIT,NET"
	AsAlgorithms               // ["Ring", "Tree"], or as NCCL has it: "ring;allreduce:tree"
	AsNames                    // ["eth0", "eth1"] for exactly these, or as NCCL has it: "^docker"
	AsPath                     // "/tmp/nccl.%h.%p"
	AsSeconds                  // "10m"
	AsMilliseconds             // "15s"
)

// Attribute is an attribute of the nccl block.
type Attribute struct {
	Name     string
	Variable string // what it sets; see Settings.Vars for old releases
	Form     Form
	Low      int64 // of sizes, numbers and times, in the variable's unit
	High     int64
	// Instead is set where the attribute has a newer name.
	Instead string
	Example string // of a list
}

// Attributes are all of them, NCCL's first, then torch's.
var Attributes = []Attribute{
	{Name: "buffer_size", Variable: "NCCL_BUFFSIZE", Form: AsSize, Low: MinBuffer, High: 1 << 30},
	{Name: "p2p_level", Variable: "NCCL_P2P_LEVEL", Form: AsWord},
	{Name: "p2p_disable", Variable: "NCCL_P2P_DISABLE", Form: AsSwitch},
	{Name: "shm_disable", Variable: "NCCL_SHM_DISABLE", Form: AsSwitch},
	{Name: "socket_ifname", Variable: "NCCL_SOCKET_IFNAME", Form: AsNames, Example: `["eth0"]`},
	{Name: "ib_hca", Variable: "NCCL_IB_HCA", Form: AsNames, Example: `["mlx5_0"]`},
	{Name: "ib_disable", Variable: "NCCL_IB_DISABLE", Form: AsSwitch},
	{Name: "ib_gid_index", Variable: "NCCL_IB_GID_INDEX", Form: AsNumber, Low: -1, High: 255},
	{Name: "net_gdr_level", Variable: "NCCL_NET_GDR_LEVEL", Form: AsWord},
	{Name: "debug", Variable: "NCCL_DEBUG", Form: AsWord},
	{Name: "debug_subsys", Variable: "NCCL_DEBUG_SUBSYS", Form: AsWords, Example: `["INIT", "NET"]`},
	{Name: "debug_file", Variable: "NCCL_DEBUG_FILE", Form: AsPath},
	{Name: "algo", Variable: "NCCL_ALGO", Form: AsAlgorithms, Example: `["Ring", "Tree"]`},
	{Name: "proto", Variable: "NCCL_PROTO", Form: AsAlgorithms, Example: `["LL", "Simple"]`},
	{Name: "nvls_enable", Variable: "NCCL_NVLS_ENABLE", Form: AsMode, Low: 0, High: 2},
	{Name: "cross_nic", Variable: "NCCL_CROSS_NIC", Form: AsMode, Low: 0, High: 2},
	{Name: "topo_file", Variable: "NCCL_TOPO_FILE", Form: AsPath},
	{Name: "cumem_enable", Variable: "NCCL_CUMEM_ENABLE", Form: AsSwitch},
	{Name: "min_ctas", Variable: "NCCL_MIN_CTAS", Form: AsNumber, Low: 1, High: 64},
	{Name: "max_ctas", Variable: "NCCL_MAX_CTAS", Form: AsNumber, Low: 1, High: 64},
	{Name: "min_channels", Variable: "NCCL_MIN_NCHANNELS", Form: AsNumber, Low: 1, High: 64, Instead: "min_ctas"},
	{Name: "max_channels", Variable: "NCCL_MAX_NCHANNELS", Form: AsNumber, Low: 1, High: 64, Instead: "max_ctas"},

	// A collective that takes too long raises an error in the thread that waits for it.
	{Name: "blocking_wait", Variable: "TORCH_NCCL_BLOCKING_WAIT", Form: AsSwitch},
	// What the watchdog does at an error: 0 nothing, 1 it aborts communicators and ends the
	// process, 2 it aborts them only, 3 it ends the process only.
	{Name: "async_error_handling", Variable: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Form: AsMode, Low: 0, High: 3},
	// The watchdog itself is watched, and the process ended when it stalls for that long.
	{Name: "heartbeat_monitor", Variable: "TORCH_NCCL_ENABLE_MONITORING", Form: AsSwitch},
	{Name: "heartbeat_timeout", Variable: "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", Form: AsSeconds, Low: 1, High: 30 * 24 * 3600},
	// The flight recorder keeps so many events (0: it is off), writes them to a file per
	// rank whose name begins so, and the process waits that long for it at its end.
	{Name: "trace_buffer_events", Variable: "TORCH_NCCL_TRACE_BUFFER_SIZE", Form: AsNumber, Low: 0, High: 10_000_000},
	{Name: "trace_file", Variable: "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", Form: AsPath},
	{Name: "trace_cpp_stack", Variable: "TORCH_NCCL_TRACE_CPP_STACK", Form: AsSwitch},
	{Name: "dump_on_timeout", Variable: "TORCH_NCCL_DUMP_ON_TIMEOUT", Form: AsSwitch},
	{Name: "dump_wait", Variable: "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", Form: AsMilliseconds, Low: 0, High: 24 * 3600 * 1000},
	// At a timeout it is said which ranks are at which collective.
	{Name: "desync_debug", Variable: "TORCH_NCCL_DESYNC_DEBUG", Form: AsSwitch},
	{Name: "enable_timing", Variable: "TORCH_NCCL_ENABLE_TIMING", Form: AsSwitch},
	{Name: "nan_check", Variable: "TORCH_NCCL_NAN_CHECK", Form: AsSwitch},
	{Name: "high_priority", Variable: "TORCH_NCCL_HIGH_PRIORITY", Form: AsSwitch},
}
