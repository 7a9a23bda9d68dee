package failure

import (
	"github.com/muster-dev/muster/launcher/failure/progress"
)

// Evidence is what is known of how one worker ended. What is nil or empty is not known,
// and nothing is concluded from it. Times are seconds since the attempt began, on the
// coordinator's clock; sizes are bytes.
type Evidence struct {
	Code   int    // exit status; means nothing where Signal or Start is set
	Signal string // that killed it, such as "SIGKILL"
	Sent   string // the strongest signal that muster had sent to it before
	Start  string // why it could not be started

	Stdout, Stderr []byte // the end of each; 64 KiB are enough
	ErrorFile      []byte // of TORCHELASTIC_ERROR_FILE, as PyTorch's @record writes it

	At  float64 // when it ended
	Age float64 // how long it had run

	PIDs   []int  // of the rank's processes, as the host's first pid namespace has them
	Cgroup string // of the rank: the path that the kernel's log would name

	Memory *Memory
	Kernel []string // lines of the host's kernel log since the attempt began
	GPUs   []GPU    // of its host
	// NoEvents is why driver events were not available, and NoAfter why the GPUs were not probed
	// after the exit.
	NoEvents, NoAfter string
	// MPSLimit is the device memory that the rank may take under MPS; 0 for no limit.
	MPSLimit uint64
	Shm      *Space // /dev/shm
	Disk     *Space // where the run's files and checkpoints go, the fullest of them

	Steps *Steps
	Phase string // that it was in by its own word; "" where it told none
	// Torch is what torch itself has told of its devices, in the worker's processes.
	Torch []TorchUse
	// Snapshots are files that torch's memory_snapshot was written to.
	Snapshots []string
}

// Memory are counters of OOM kills before the attempt and after the death.
type Memory struct {
	// Cgroup counts kills in the job's own cgroup, or one that it is in: oom_kill of
	// memory.events (v2), of memory.oom_control (v1).
	CgroupBefore, CgroupAfter *uint64
	// Host counts kills anywhere on the host: oom_kill of /proc/vmstat (Linux 4.13).
	HostBefore, HostAfter *uint64
	Limit                 uint64 // of the cgroup; 0 for none
	Peak                  uint64 // of the cgroup: memory.peak, or max_usage_in_bytes
	Available             uint64 // on the host, when last seen before the death
}

// Space is how full a file system is.
type Space struct {
	Path        string
	Total, Free uint64
	InodesFree  *uint64
}

// GPU is a device of the worker's host.
type GPU struct {
	Index  int    // nvidia-smi's
	Seen   int    // as the worker's programs number it: N of cuda:N; negative where it does not see it
	UUID   string // of the MIG instance, where it is one
	PCI    string
	Mine   bool // the plan gave it to this rank
	Ranks  int  // that the plan has put on it
	Before *Use // the last look while the worker ran
	After  *Use // the first look after
	Xids   []Xid
	// ECC are uncorrectable errors since the attempt began.
	ECC    *uint64
	Lost   string // why it does not answer any more
	LostAt float64
}

// Use is what one look at a GPU has shown.
type Use struct {
	Total, Used uint64
	Processes   []Process
}

// Process is a holder of GPU memory.
type Process struct {
	PID   int
	Bytes uint64 // 0 where it is not told
	Rank  int    // of the run; Foreign for somebody else's
	Own   bool   // it is one of this worker
	User  string
	Name  string
}

// Foreign is the rank of somebody else's process.
const Foreign = -1

// Xid is an error that the driver reported of a GPU.
type Xid struct {
	Number int
	At     float64
	Text   string // what the driver said beside it
}

// TorchUse is what torch's caching allocator held of a device in one process.
type TorchUse struct {
	Device              int     // N of cuda:N in the process
	Ago                 float64 // before the end that it was told
	Allocated, Reserved uint64
	LargestFree         *uint64      // block of the pool that nothing uses
	Failed              *TorchFailed // the newest allocation that has failed
}

// TorchFailed is an allocation that torch could not make.
type TorchFailed struct {
	Requested   uint64
	Total, Free uint64 // of the device, by the driver
}

// Steps are how far the worker was.
type Steps struct {
	First, Furthest progress.Mark
	// At is when the furthest was said.
	At float64
	// Checkpoint is when the newest file in the checkpoint folder was written; 0 for none
	// since the attempt began.
	Checkpoint float64
}

// Progressed is whether anything was done that another attempt can go on from.
func (s *Steps) Progressed() bool {
	return s != nil && (s.Checkpoint > 0 || s.Furthest.Known() && s.Furthest.Compare(s.First) > 0)
}

// ended is whether the worker ended well.
func (e Evidence) ended() bool { return e.Start == "" && e.Signal == "" && e.Code == 0 }
