package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Latest is the newest that is known of a rank. Times are seconds since its worker began.
type Latest struct {
	Progress   Mark             `json:"progress"` // where it says that it is
	ProgressAt float64          `json:"progress_at,omitempty"`
	First      Mark             `json:"first"`    // where it began
	Furthest   Mark             `json:"furthest"` // how far it has come
	FurthestAt float64          `json:"furthest_at,omitempty"`
	Phase      string           `json:"phase,omitempty"`
	PhaseAt    float64          `json:"phase_at,omitempty"`
	Values     map[string]Value `json:"values,omitempty"`
	// Checkpoint is the newest that it says to have written.
	Checkpoint   string  `json:"checkpoint,omitempty"`
	CheckpointAt float64 `json:"checkpoint_at,omitempty"`
	// Torch is nil where the job file does not ask for it.
	Torch *Torch `json:"torch,omitempty"`
	// Refused counts lines that were not understood or were one too many; RefusedWhy is the newest reason.
	Refused    int    `json:"refused,omitempty"`
	RefusedWhy string `json:"refused_why,omitempty"`
}

// Value is a number of the program's own. JSON has no NaN and no infinity: they are the texts "nan", "inf" and "-inf".
type Value float64

// MarshalJSON writes a number, or a text where JSON has no such number.
func (v Value) MarshalJSON() ([]byte, error) {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'f', -1, 64)), "+"))
	}
	return json.Marshal(float64(v))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value) UnmarshalJSON(text []byte) error {
	word := string(text)
	if unquoted, err := strconv.Unquote(word); err == nil {
		word = unquoted
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return fmt.Errorf("%s is no number", text)
	}
	*v = Value(f)
	return nil
}

// States of Torch, in the order in which a process comes to them.
const (
	TorchNotSeen   = "not_seen"    // no Python process with the hook has begun
	TorchWaiting   = "waiting"     // torch is not imported
	TorchNoCUDA    = "no_cuda"     // torch is built without CUDA
	TorchUnused    = "unused"      // torch is imported, and CUDA not in use
	TorchReporting = "reporting"   // devices have numbers
	TorchUnknown   = "unsupported" // a Python or torch that the hook does not know
)

// Torch is what torch says of itself in the processes of a rank, by muster's hook.
type Torch struct {
	State string `json:"state"`
	// Why says in words why there are no numbers; empty where there are.
	Why     string        `json:"why,omitempty"`
	Version string        `json:"version,omitempty"` // of torch
	CUDA    string        `json:"cuda,omitempty"`    // that it is built for
	Devices []TorchDevice `json:"devices,omitempty"` // by process, then by number
	// Snapshots are files that memory_snapshot was written to, newest last.
	Snapshots []string `json:"snapshots,omitempty"`
	// Trouble is what went wrong within the hook.
	Trouble string `json:"trouble,omitempty"`
}

// TorchDevice is what torch's caching allocator holds of a device, in bytes, as torch.cuda.memory_stats has it.
type TorchDevice struct {
	Device int     `json:"device"` // N of cuda:N in the process
	PID    int     `json:"pid"`
	Child  bool    `json:"child,omitempty"` // the process is not the rank's leader
	At     float64 `json:"at"`

	Allocated     uint64 `json:"allocated"`
	Reserved      uint64 `json:"reserved"`
	Inactive      uint64 `json:"inactive"` // parts of blocks that are split: free, and not to be given back
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
	// LargestFree is the largest block of the pool that nothing uses; nil where finding out costs too much.
	LargestFree *uint64   `json:"largest_free,omitempty"`
	Retries     uint64    `json:"retries,omitempty"` // of allocations, after giving back the pool
	OOMs        uint64    `json:"ooms,omitempty"`
	OOM         *TorchOOM `json:"oom,omitempty"` // the newest
}

// TorchOOM is an allocation that has failed, in bytes, as torch's observer of such tells.
type TorchOOM struct {
	At        float64 `json:"at"`
	Requested uint64  `json:"requested"`
	Total     uint64  `json:"total"` // of the device
	Free      uint64  `json:"free"`
}
