// Package facts collects what a host says of itself: identity, processors, network, limits,
// devices. Each source is a file of its own: a path and a parser. What a host cannot tell stays
// empty.
package facts

// Host is a machine, or a container on one, as muster sees it.
type Host struct {
	System
	Machine
	Network
	Storage
	Settings
	// Software is looked for only where a command is named.
	Software *Software `json:"software,omitempty"`
	// Devices are probed only on request: it can take seconds.
	Devices *Devices `json:"devices,omitempty"`
	// MPS is looked for where devices are.
	MPS *MPS `json:"mps,omitempty"`
}

// System is what runs on a host, and who muster is there.
type System struct {
	ID        string `json:"host_id"`    // tells running systems apart; see Identity
	MachineID string `json:"machine_id"` // for display: clones share it
	Hostname  string `json:"hostname"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Kernel    string `json:"kernel"`
	User      string `json:"user"`
	Home      string `json:"home"`
	IsRoot    bool   `json:"is_root,omitempty"` // processes of the run may do what only root may
	// Container says which kind of container this is, such as "docker"; empty: none.
	Container string `json:"container,omitempty"`
	// OwnPIDs is set where process numbers are not the machine's, as in most containers.
	OwnPIDs bool   `json:"own_pids,omitempty"`
	Logind  Logind `json:"logind"`
}

// Machine is the processors and memory of a host.
type Machine struct {
	CPUs   CPUs   `json:"cpus"`
	Memory uint64 `json:"memory_total"` // bytes, MemTotal of /proc/meminfo
	// MemoryAvailable is what new programs may take without swapping, MemAvailable there.
	MemoryAvailable uint64 `json:"memory_available,omitempty"`
	Nodes           []Node `json:"numa_nodes"` // that have CPUs or memory; nil where the kernel has no NUMA
}

// Network is how a host reaches others.
type Network struct {
	NICs []NIC `json:"nics"`
	HCAs []HCA `json:"infiniband"`
	// Verbs tells whether programs reach the HCAs: /dev/infiniband/uverbs* exist; nil without HCAs.
	Verbs *bool `json:"verbs,omitempty"`
	// PeerMemory tells whether HCAs reach the memory of GPUs by themselves; nil where files do
	// not prove it.
	PeerMemory *bool `json:"peer_memory,omitempty"`
	// HostnameAddrs are the addresses that the host's own name resolves to there.
	HostnameAddrs []string `json:"hostname_addresses"`
	// ReachedAt is the host's address that the launcher's SSH connection came to; empty without SSH.
	ReachedAt string `json:"reached_at,omitempty"`
	// EphemeralPorts are the first and last port that the kernel gives to outgoing connections.
	EphemeralPorts [2]int `json:"ephemeral_ports"`
}

// Storage is the file systems that a run writes to.
type Storage struct {
	SharedMemory Space `json:"dev_shm"`
	Disk         Space `json:"disk"` // of the file system that the home is on
	// Spaces are all of them, as far as they answer, each once.
	Spaces []Space `json:"spaces,omitempty"`
}

// Settings are limits of processes, and variables and files that they read by themselves.
type Settings struct {
	Limits Limits `json:"limits"`
	Cgroup Cgroup `json:"cgroup"`
	// Environ are the variables of this host's own environment that decide how devices and
	// libraries are used, as far as they are set, to nothing too: see Telling.
	Environ map[string]string `json:"environ,omitempty"`
	// NCCLFiles are the files that NCCL reads settings from by itself.
	NCCLFiles []NCCLFile `json:"nccl_files,omitempty"`
}

// CPUs are the processors that processes of this user may run on, which a cpuset
// or an affinity mask can make fewer than the machine has.
type CPUs struct {
	Allowed  []int   `json:"allowed"`  // logical CPUs
	Physical int     `json:"physical"` // cores behind them, siblings counted once
	Cores    [][]int `json:"cores"`    // the allowed CPUs of each core, by their first CPU
}

// Node is a NUMA node (/sys/devices/system/node).
type Node struct {
	ID     int    `json:"id"`
	CPUs   []int  `json:"cpus"`         // of it that are allowed
	Memory uint64 `json:"memory_total"` // bytes
	Free   uint64 `json:"memory_free"`  // bytes
}

// HCA is a port of an InfiniBand or RoCE device (/sys/class/infiniband).
type HCA struct {
	Name      string `json:"name"` // of the device, such as mlx5_0
	Port      int    `json:"port"`
	State     string `json:"state"`                // "active", "down", "init", "armed"
	PhysState string `json:"phys_state,omitempty"` // of the cable: "linkup", "polling" (nothing at the other end), "disabled"
	LinkLayer string `json:"link_layer"`           // "InfiniBand" or "Ethernet" (RoCE)
	SpeedGbps int    `json:"speed_gbps,omitempty"` // of the port now; 0: unknown
	Interface string `json:"interface,omitempty"`  // its network interface
	PCI       string `json:"pci,omitempty"`
	NUMA      *int   `json:"numa"`
}

// Limits are those of the agent (getrlimit(2)). Workers get their soft limits raised to the
// hard ones, so that Hard is what counts for them; that of the stack stays. Go's runtime
// raises its own soft limit of open files: the one told here is the raised one.
type Limits struct {
	Memlock Limit `json:"memlock"` // bytes
	NoFile  Limit `json:"nofile"`
}

// Limit is a soft and a hard limit; nil is unlimited.
type Limit struct {
	Soft *uint64 `json:"soft"`
	Hard *uint64 `json:"hard"`
}

// Space is a file system's, in bytes (statfs(2)). Total is 0 where it is not there.
type Space struct {
	Path       string   `json:"path"`
	Uses       []string `json:"uses,omitempty"` // of Spaces
	Total      uint64   `json:"total"`
	Free       uint64   `json:"free"`             // to an unprivileged user
	Inodes     uint64   `json:"inodes,omitempty"` // files that it can hold; 0: no fixed number
	InodesFree uint64   `json:"inodes_free,omitempty"`
	ReadOnly   bool     `json:"read_only,omitempty"`
}

// Uses of file systems.
const (
	UseHome      = "home"
	UseLogs      = "logs" // and all else that muster keeps of runs
	UseTemporary = "temporary files"
	UseShared    = "shared memory"
)

// Cgroup are the limits of the agent's own cgroup and those above it, the tightest.
type Cgroup struct {
	Version int      `json:"version,omitempty"`    // 1 or 2; 0: not known
	Memory  *uint64  `json:"memory_max,omitempty"` // bytes; nil: unlimited
	CPUs    *float64 `json:"cpu_max,omitempty"`    // CPUs' worth of time; nil: unlimited
	PIDs    *uint64  `json:"pids_max,omitempty"`
}

// NCCLFile is a file of NCCL's settings.
type NCCLFile struct {
	Path   string            `json:"path"`
	Values map[string]string `json:"values"`
}

// Software is what workers are going to run with, read from files. What could not be
// found is empty, and Why says why.
type Software struct {
	Python  string `json:"python,omitempty"`         // path of the interpreter
	Version string `json:"python_version,omitempty"` // such as "3.11.7", or "3.11" where no more is told
	Torch   string `json:"torch,omitempty"`          // version, such as "2.4.0+cu121"
	NCCL    string `json:"nccl,omitempty"`           // version that torch comes with
	Why     string `json:"why,omitempty"`
	// Missing says why the program that was asked for cannot be started.
	Missing string `json:"missing,omitempty"`
}

// NIC is a network interface.
type NIC struct {
	Name      string `json:"name"`
	Up        bool   `json:"up"`
	Loopback  bool   `json:"loopback"`
	Virtual   string `json:"virtual,omitempty"` // why it leads to no other machine ("bridge", ...); empty: it may
	MTU       int    `json:"mtu"`
	SpeedMbps int    `json:"speed_mbps,omitempty"` // 0: unknown
	// State is the kernel's word for the link (operstate of sysfs-class-net): "up", "down",
	// "lowerlayerdown", "unknown" where the driver does not tell.
	State     string   `json:"state,omitempty"`
	PCI       string   `json:"pci,omitempty"`  // slot of a physical interface
	NUMA      *int     `json:"numa,omitempty"` // node of that slot
	Addresses []string `json:"addresses"`      // IP addresses without prefix; link-local ones left out
	Networks  []string `json:"networks"`       // the same with the length of the prefix: "10.0.0.5/24"
}

// Logind is what systemd-logind does to a user's things when the last login ends
// (logind.conf(5)).
type Logind struct {
	Session           bool `json:"session"`             // the agent was started within a login session
	KillUserProcesses bool `json:"kill_user_processes"` // a logout kills what the session has started
	RemoveIPC         bool `json:"remove_ipc"`          // the last logout deletes /dev/shm files and semaphores
	Linger            bool `json:"linger"`              // the user's things stay after the last logout
}
