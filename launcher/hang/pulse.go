// Package hang decides from the signs of life of ranks whether anything still moves. It is
// pure: pulses in, a verdict out. It knows nothing of how pulses are taken, nor of what
// follows.
//
// What is silent and does nothing at all is hung, not what is only silent: an evaluation
// without output computes, a slow start reads and compiles, a machine that was suspended has
// not counted the time. A GPU that is busy all the time without any traffic to its memory
// does not compute: so do NCCL's kernels spin while they wait for another rank.
package hang

// Pulse is when a rank has last given a sign of life, in seconds ago while its machine was
// awake; what it has never given counts from its worker's start.
type Pulse struct {
	Rank    int     `json:"rank"`
	Attempt int     `json:"attempt"`
	Age     float64 `json:"age"`    // of its worker
	Output  float64 `json:"output"` // it has written something
	Told    float64 `json:"told"`   // it has told of progress, by its socket
	// Device is when its device last computed; nil: that is not known, as of a rank without one.
	Device *float64 `json:"device,omitempty"`
	CPU    float64  `json:"cpu"`  // its processes have used their CPUs
	Files  float64  `json:"disk"` // they have read or written files
	// Worked is set once its start is over: its device has computed for a while, or it has told
	// of progress.
	Worked bool `json:"worked,omitempty"`
	// Spins is set where its device is busy now without any traffic to its memory.
	Spins bool `json:"spins,omitempty"`
}

// Bounds of what counts as a sign of life.
const (
	// BusyGPU and IdleTraffic are NVML's utilization.gpu and utilization.memory, in percent, of
	// a device that only waits: NCCL's kernels keep it busy and hardly touch its memory.
	BusyGPU     = 90
	IdleTraffic = 1
	// BusyCPU is the share of one core above which processes compute.
	BusyCPU = 0.05
	// BusyFiles is how many bytes a second, read and written, are work.
	BusyFiles = 256 << 10
)

// Still is for how long nothing has moved in a rank, in seconds. What its CPUs do counts as
// long as its device has not worked yet, or where it has none: a rank that waits for another
// often spins. It never counts while its device spins too: so does a first collective hang.
func (p Pulse) Still() float64 {
	still := min(p.Age, p.Output, p.Told, p.Files)
	if p.Device != nil {
		still = min(still, *p.Device)
	}
	if p.Device == nil || !p.Worked && !p.Spins {
		still = min(still, p.CPU)
	}
	return still
}

// Quiet is for how long a rank has said nothing.
func (p Pulse) Quiet() float64 { return min(p.Age, p.Output, p.Told) }
