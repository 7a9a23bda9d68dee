// Package evidence is what a host knows of how a worker ended: plain data that an agent
// collects, a message carries and package failure judges.
package evidence

import (
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Worker is what a host knows of how a worker ended, beside its exit status. What is nil or
// empty is not known.
type Worker struct {
	Stdout    []byte  `json:"stdout,omitempty"` // the end of each
	Stderr    []byte  `json:"stderr,omitempty"`
	ErrorFile []byte  `json:"error_file,omitempty"` // TORCHELASTIC_ERROR_FILE, as PyTorch's @record writes it
	Age       float64 `json:"age"`                  // seconds that the worker ran
	// Checkpoint is how many seconds after the worker's beginning the newest file of the
	// checkpoint folder was written; 0: none since then.
	Checkpoint float64 `json:"checkpoint,omitempty"`
	// Observed is the newest that it reported about itself; nil where that was nothing.
	Observed *observe.Latest `json:"observed,omitempty"`
	// PIDs are the rank's processes, the leader first, as the host's first pid namespace
	// has them.
	PIDs   []int  `json:"pids,omitempty"`
	Cgroup string `json:"cgroup,omitempty"` // path of the worker's
	Memory Memory `json:"memory"`
	// Kernel are lines of the kernel's log since the attempt began that may be about it.
	Kernel []string `json:"kernel,omitempty"`
	Shm    *Space   `json:"shm,omitempty"`  // /dev/shm
	Disk   *Space   `json:"disk,omitempty"` // the fullest of those that the run writes to
	// Devices is what was seen of the host's devices; nil where nobody watches them.
	Devices *Devices `json:"devices,omitempty"`
}

// Devices is what a host saw of its devices around a worker's death. Errors that the driver
// reports travel apart: see message.DeviceEvent.
type Devices struct {
	Before *gpu.Usage `json:"before,omitempty"` // the last snapshot taken before the worker ended
	// After is the first snapshot after the death, taken only where a device may have had to
	// do with it.
	After   *gpu.Usage `json:"after,omitempty"`
	NoAfter string     `json:"no_after,omitempty"` // why that snapshot is missing; "": it was not taken
	// ECC counts uncorrectable memory errors between the first and the last snapshot of the
	// attempt, by the GPU's UUID; GPUs that do not count are missing.
	ECC map[string]uint64 `json:"ecc,omitempty"`
	// NoEvents says why the driver reports no errors; "": it does.
	NoEvents string `json:"no_events,omitempty"`
	// Unsupported says the same of single GPUs, by UUID or else by PCI address.
	Unsupported map[string]string `json:"unsupported,omitempty"`
}

// Memory are counters of OOM kills before the attempt and after the death, and what was left
// of the memory; sizes are bytes.
type Memory struct {
	// Cgroup counts kills in the worker's own cgroup or one above it: oom_kill of
	// memory.events (v2) or memory.oom_control (v1).
	CgroupBefore *uint64 `json:"cgroup_before,omitempty"`
	CgroupAfter  *uint64 `json:"cgroup_after,omitempty"`
	// Host counts kills anywhere on the host: oom_kill of /proc/vmstat (Linux 4.13).
	HostBefore *uint64 `json:"host_before,omitempty"`
	HostAfter  *uint64 `json:"host_after,omitempty"`
	Limit      uint64  `json:"limit,omitempty"`     // of the cgroup; 0: none
	Peak       uint64  `json:"peak,omitempty"`      // of the cgroup: memory.peak or max_usage_in_bytes
	Available  uint64  `json:"available,omitempty"` // on the host
}

// CgroupGrew reports whether the kernel killed a process for the limit of the cgroup.
func (m Memory) CgroupGrew() bool { return grew(m.CgroupBefore, m.CgroupAfter) }

// HostGrew reports whether the kernel killed a process of the host for want of memory.
func (m Memory) HostGrew() bool { return grew(m.HostBefore, m.HostAfter) }

// Unchanged reports whether the counters are known and the kernel killed nobody. Those of a
// cgroup alone would not know of the host's.
func (m Memory) Unchanged() bool {
	return m.HostBefore != nil && m.HostAfter != nil && !m.HostGrew() && !m.CgroupGrew()
}

func grew(before, after *uint64) bool { return before != nil && after != nil && *after > *before }

// Space is how full a file system is, in bytes.
type Space struct {
	Path  string `json:"path"`
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
}

// Full reports whether nothing more fits.
func (s *Space) Full() bool { return s != nil && s.Total > 0 && s.Free < max(s.Total/20, 1<<20) }
