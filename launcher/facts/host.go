// Package facts is what a host says of itself: who it is, its processors, its
// network, its limits. Each source is a file of its own: a path and a parser.
// What a host cannot tell stays empty. It knows nothing of what the facts are for.
package facts

// Host is a machine, or a container on one, as muster sees it.
type Host struct {
	ID        string `json:"host_id"`    // tells running systems apart; see Identity
	MachineID string `json:"machine_id"` // for display: clones share it
	Hostname  string `json:"hostname"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Kernel    string `json:"kernel"`
	User      string `json:"user"`
	Home      string `json:"home"`

	CPUs   CPUs   `json:"cpus"`
	Memory uint64 `json:"memory_total"` // bytes, MemTotal of /proc/meminfo
	NICs   []NIC  `json:"nics"`

	// HostnameAddrs are the addresses that the host's own name resolves to there.
	HostnameAddrs []string `json:"hostname_addresses"`
	// ReachedAt is the host's address that the launcher's SSH connection came to;
	// empty without SSH.
	ReachedAt string `json:"reached_at,omitempty"`
	// EphemeralPorts are the first and last port that the kernel gives to outgoing
	// connections.
	EphemeralPorts [2]int `json:"ephemeral_ports"`
	Logind         Logind `json:"logind"`
	// Devices are looked at only where they are asked for: it can take seconds.
	Devices *Devices `json:"devices,omitempty"`
}

// CPUs are the processors that processes of this user may run on, which a cpuset
// or an affinity mask can make fewer than the machine has.
type CPUs struct {
	Allowed  []int `json:"allowed"`  // logical CPUs
	Physical int   `json:"physical"` // cores behind them, siblings counted once
}

// NIC is a network interface.
type NIC struct {
	Name      string   `json:"name"`
	Up        bool     `json:"up"`
	Loopback  bool     `json:"loopback"`
	Virtual   string   `json:"virtual,omitempty"` // why it leads to no other machine ("bridge", ...); empty: it may
	MTU       int      `json:"mtu"`
	SpeedMbps int      `json:"speed_mbps,omitempty"` // 0: unknown
	Addresses []string `json:"addresses"`            // IP addresses without prefix; link-local ones left out
}

// Logind is what systemd-logind does to a user's things when the last login ends
// (logind.conf(5)).
type Logind struct {
	Session           bool `json:"session"`             // the agent was started within a login session
	KillUserProcesses bool `json:"kill_user_processes"` // a logout kills what the session has started
	RemoveIPC         bool `json:"remove_ipc"`          // the last logout deletes /dev/shm files and semaphores
	Linger            bool `json:"linger"`              // the user's things stay after the last logout
}
