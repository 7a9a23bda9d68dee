package nccl

// Words of the tables.
var (
	// p2pLevels and gdrLevels are the documented distances; levelWords also has those that
	// only the source knows (src/graph/topo.h).
	p2pLevels   = []string{"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}
	gdrLevels   = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}
	hiddenLevel = []string{"NVB", "C2C", "P2C", "PXN"}

	algorithms     = []string{"Ring", "Tree", "CollnetChain", "CollnetDirect", "NVLS", "NVLSTree", "PAT", "Collnet"}
	algorithmSince = map[string]Release{"CollnetChain": at(14), "CollnetDirect": at(14), "NVLS": at(17), "NVLSTree": at(18), "PAT": at(23)}
	protocols      = []string{"LL", "LL128", "Simple"}

	debugLevels = []string{"VERSION", "WARN", "INFO", "TRACE", "ATTN", "ABORT"}
	logLevels   = []string{"VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE", "ALL"}
	debugSince  = map[string]Release{"ATTN": at(32)}
	subsystems  = []string{"INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY",
		"NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"}
)

// maxTCP bounds the product of NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD.
const maxTCP = 64

// variables are NCCL's own. Those that are known by name only are otherNames.
var variables = []Variable{
	// Files.
	{Name: "NCCL_CONF_FILE", Kind: File, Since: at(23), Note: "it stands for ~/.nccl.conf; /etc/nccl.conf is read after it"},
	{Name: "NCCL_TOPO_FILE", Kind: File, Since: at(6), Note: "it has to be there on every host, inside the container"},
	{Name: "NCCL_TOPO_DUMP_FILE", Kind: File, Since: at(6)},
	{Name: "NCCL_DEBUG_FILE", Kind: File, Note: "%h is the host, %p the process"},

	// Buffers and channels.
	{Name: "NCCL_BUFFSIZE", Kind: Bytes, Low: MinBuffer, High: 1 << 30, Note: "4194304 is the default; NCCL checks no minimum, and breaks or crawls with a few bytes"},
	{Name: "NCCL_LL_BUFFSIZE", Kind: Bytes},
	{Name: "NCCL_LL128_BUFFSIZE", Kind: Bytes},
	{Name: "NCCL_WORK_FIFO_BYTES", Kind: Bytes},
	{Name: "NCCL_P2P_NET_CHUNKSIZE", Kind: Bytes, Since: at(14)},
	{Name: "NCCL_NTHREADS", Kind: Number, Low: 64, High: 512, Note: "it is 64, 128, 256 or 512"},
	{Name: "NCCL_MIN_CTAS", Kind: Channels, Low: 1, High: 64, Since: at(17), Former: "NCCL_MIN_NCHANNELS"},
	{Name: "NCCL_MAX_CTAS", Kind: Channels, Low: 1, High: 64, Since: at(17), Former: "NCCL_MAX_NCHANNELS"},
	{Name: "NCCL_MIN_NCHANNELS", Kind: Channels, Low: 1, High: 64, Since: at(5), Former: "NCCL_MIN_NRINGS", Instead: "NCCL_MIN_CTAS", Deprecated: at(17)},
	{Name: "NCCL_MAX_NCHANNELS", Kind: Channels, Low: 1, High: 64, Since: at(5), Former: "NCCL_MAX_NRINGS", Instead: "NCCL_MAX_CTAS", Deprecated: at(17)},
	{Name: "NCCL_MIN_NRINGS", Kind: Channels, Low: 1, High: 64, Instead: "NCCL_MIN_NCHANNELS", Deprecated: at(5)},
	{Name: "NCCL_MAX_NRINGS", Kind: Channels, Low: 1, High: 64, Instead: "NCCL_MAX_NCHANNELS", Deprecated: at(5)},
	{Name: "NCCL_NVLS_NCHANNELS", Kind: Number, Low: 1, High: 64, Since: at(17)},
	{Name: "NCCL_RUNTIME_CONNECT", Kind: Switch, Since: at(22), Note: "0 takes all of the memory at the start"},

	// GPUs of one host.
	{Name: "NCCL_P2P_DISABLE", Kind: Switch, Note: "only 1 disables, and it disables NVLink too"},
	{Name: "NCCL_P2P_LEVEL", Kind: Level, Words: p2pLevels, ExactCase: true},
	{Name: "NCCL_P2P_DIRECT_DISABLE", Kind: Switch},
	{Name: "NCCL_SHM_DISABLE", Kind: Switch, Note: "GPUs that cannot reach each other then talk through the network"},
	{Name: "NCCL_NVLS_ENABLE", Kind: Number, Low: 0, High: 2, Since: at(17)},
	{Name: "NCCL_CUMEM_ENABLE", Kind: Switch, Since: at(18)},
	{Name: "NCCL_CUMEM_HOST_ENABLE", Kind: Switch, Since: at(23)},
	{Name: "NCCL_MULTI_RANK_GPU_ENABLE", Kind: Switch, Since: at(30)},
	{Name: "NCCL_MNNVL_ENABLE", Kind: Number, Low: 0, High: 2, Since: at(21)},
	{Name: "NCCL_IGNORE_CPU_AFFINITY", Kind: Switch, Since: at(4, 6)},

	// Sockets.
	{Name: "NCCL_NET", Kind: Text, Since: at(10)},
	{Name: "NCCL_SOCKET_IFNAME", Kind: Interfaces},
	{Name: "NCCL_SOCKET_FAMILY", Kind: Word, Words: []string{"AF_INET", "AF_INET6"}, ExactCase: true},
	{Name: "NCCL_SOCKET_NTHREADS", Kind: Number, Low: 1, High: 16, Since: at(4, 8)},
	{Name: "NCCL_NSOCKS_PERTHREAD", Kind: Number, Low: 1, High: maxTCP, Since: at(4, 8)},
	{Name: "NCCL_SOCKET_RETRY_CNT", Kind: Number, Low: 1, High: 1 << 31, Since: at(24)},
	{Name: "NCCL_OOB_NET_ENABLE", Kind: Switch, Since: at(23)},
	{Name: "NCCL_OOB_NET_IFNAME", Kind: Adapters, Since: at(23)},
	{Name: "NCCL_RAS_ENABLE", Kind: Switch, Since: at(24)},
	{Name: "NCCL_RAS_ADDR", Kind: Text, Since: at(24)},

	// InfiniBand and RoCE.
	{Name: "NCCL_IB_DISABLE", Kind: Switch, Note: "NCCL then falls back to TCP and says nothing"},
	{Name: "NCCL_IB_HCA", Kind: Adapters},
	{Name: "NCCL_IB_GID_INDEX", Kind: Number, Low: -1, High: 255, Note: "-1 chooses by itself since 2.21"},
	{Name: "NCCL_IB_TIMEOUT", Kind: Number, Low: 1, High: 31, Note: "with 0, or 32 and more, it waits for ever"},
	{Name: "NCCL_IB_RETRY_CNT", Kind: Number, Low: 0, High: 7},
	{Name: "NCCL_IB_SL", Kind: Number, Low: 0, High: 15},
	{Name: "NCCL_IB_TC", Kind: Number, Low: 0, High: 255},
	{Name: "NCCL_IB_QPS_PER_CONNECTION", Kind: Number, Low: 1, High: 128, Since: at(10)},
	{Name: "NCCL_IB_SPLIT_DATA_ON_QPS", Kind: Switch, Since: at(18)},
	{Name: "NCCL_IB_PCI_RELAXED_ORDERING", Kind: Number, Low: 0, High: 2, Since: at(12)},
	{Name: "NCCL_IB_ADAPTIVE_ROUTING", Kind: Switch, Since: at(16)},
	{Name: "NCCL_IB_MERGE_NICS", Kind: Switch, Since: at(20)},
	{Name: "NCCL_IB_GDR_LEVEL", Kind: Level, Words: gdrLevels, ExactCase: true, Until: at(4), Instead: "NCCL_NET_GDR_LEVEL", Deprecated: at(4)},
	{Name: "NCCL_IB_CUDA_SUPPORT", Kind: Switch, Until: at(4), Instead: "NCCL_NET_GDR_LEVEL", Deprecated: at(4)},
	{Name: "NCCL_NET_GDR_LEVEL", Kind: Level, Words: gdrLevels, ExactCase: true, Since: at(4), Former: "NCCL_IB_GDR_LEVEL"},
	{Name: "NCCL_NET_GDR_READ", Kind: Switch},
	{Name: "NCCL_DMABUF_ENABLE", Kind: Switch, Since: at(13)},
	{Name: "NCCL_CROSS_NIC", Kind: Number, Low: 0, High: 2},
	{Name: "NCCL_PXN_DISABLE", Kind: Switch, Since: at(12)},

	// Algorithms.
	{Name: "NCCL_ALGO", Kind: Algorithms, Words: algorithms, WordSince: algorithmSince, Since: at(5)},
	{Name: "NCCL_PROTO", Kind: Algorithms, Words: protocols, Since: at(5)},
	{Name: "NCCL_CTA_POLICY", Kind: Text, Since: at(27)},
	{Name: "NCCL_LAUNCH_MODE", Kind: Word, Words: []string{"PARALLEL", "GROUP"}},
	{Name: "NCCL_COMM_BLOCKING", Kind: Switch, Since: at(14)},
	{Name: "NCCL_SET_STACK_SIZE", Kind: Switch, Since: at(9)},
	{Name: "NCCL_CHECK_POINTERS", Kind: Switch, Instead: "NCCL_CHECK_MODE", Deprecated: at(29, 7)},
	{Name: "NCCL_CHECK_MODE", Kind: Word, Words: []string{"DEFAULT", "DEBUG_LOCAL", "DEBUG_GLOBAL"}, Since: at(29, 7)},
	{Name: "NCCL_CHECKS_DISABLE", Kind: Switch, Instead: "NCCL_CHECK_POINTERS", Deprecated: at(2, 12)},
	{Name: "NCCL_LL_THRESHOLD", Kind: Bytes, Until: at(5)},
	{Name: "NCCL_TREE_THRESHOLD", Kind: Bytes, Until: at(5)},
	{Name: "NCCL_SINGLE_RING_THRESHOLD", Kind: Bytes, Until: at(3)},

	// Words for people.
	{Name: "NCCL_DEBUG", Kind: Word, Words: debugLevels, WordSince: debugSince},
	{Name: "NCCL_DEBUG_LEVELS", Kind: WordList, Words: logLevels, Since: at(32)},
	{Name: "NCCL_DEBUG_SUBSYS", Kind: WordList, Words: subsystems},
	{Name: "NCCL_DEBUG_TIMESTAMP_FORMAT", Kind: Text, Since: at(26)},
	{Name: "NCCL_DEBUG_TIMESTAMP_LEVELS", Kind: WordList, Words: logLevels, Since: at(26)},
}
