package message

import "github.com/muster-dev/muster/launcher/observe"

// Evidence is what a host can tell of how a worker ended, beside its exit status. What is
// nil or empty is not known.
type Evidence struct {
	Stdout    []byte  `json:"stdout,omitempty"` // the end of each
	Stderr    []byte  `json:"stderr,omitempty"`
	ErrorFile []byte  `json:"error_file,omitempty"` // TORCHELASTIC_ERROR_FILE
	Age       float64 `json:"age"`                  // seconds that the worker ran
	// Checkpoint is how many seconds after the worker's beginning the newest file of the
	// checkpoint folder was written; 0: none since then.
	Checkpoint float64 `json:"checkpoint,omitempty"`
	// Observed is the newest that it told of itself; nil where that was nothing.
	Observed *observe.Latest `json:"observed,omitempty"`
	PIDs     []int           `json:"pids,omitempty"`   // of the rank's processes, the leader first
	Cgroup   string          `json:"cgroup,omitempty"` // path of the worker's
	OOM      OOM             `json:"oom"`
	// Kernel are lines of the kernel's log since the attempt began that may be about it.
	Kernel []string `json:"kernel,omitempty"`
	Shm    *Space   `json:"shm,omitempty"`
	Disk   *Space   `json:"disk,omitempty"` // of the run's folder
	// Devices is what was seen of the host's devices; nil where nobody watches them.
	Devices *Devices `json:"devices,omitempty"`
}

// Devices is what a host saw of its devices around a worker's death. What the driver
// reported of them was told when it was heard: see DeviceEvent.
type Devices struct {
	Before *Sight `json:"before,omitempty"` // the last look that had ended when the worker did
	// After is the first look after the death, made only where it looks as if a device had
	// to do with it.
	After   *Sight `json:"after,omitempty"`
	NoAfter string `json:"no_after,omitempty"` // why that look is missing; "": it was not made
	// ECC counts errors of memory that could not be corrected between the first and the last
	// look of the attempt, by the GPU's UUID; GPUs that do not count are missing.
	ECC map[string]uint64 `json:"ecc,omitempty"`
	// NoEvents says why driver events are not available; "": they are.
	NoEvents string `json:"no_events,omitempty"`
	// Unsupported lists single GPUs without driver events, by UUID or else by PCI address.
	Unsupported map[string]string `json:"unsupported,omitempty"`
}

// OOM are counters of kills for want of memory, before the attempt and after the death, and
// what was left of the memory; sizes are bytes.
type OOM struct {
	CgroupBefore *uint64 `json:"cgroup_before,omitempty"`
	CgroupAfter  *uint64 `json:"cgroup_after,omitempty"`
	HostBefore   *uint64 `json:"host_before,omitempty"`
	HostAfter    *uint64 `json:"host_after,omitempty"`
	Limit        uint64  `json:"limit,omitempty"`
	Peak         uint64  `json:"peak,omitempty"`
	Available    uint64  `json:"available,omitempty"`
}

// Space is how full a file system is, in bytes.
type Space struct {
	Path  string `json:"path"`
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
}
