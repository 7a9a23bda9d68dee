package failure

import (
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/progress"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Evidence is what is known of how one worker ended: what its host reports, and what only
// the coordinator knows. What is nil or empty is not known, and nothing is concluded from
// it. At and LostAt are seconds since the attempt began, on the coordinator's clock.
type Evidence struct {
	Code   int    // exit status; means nothing where Signal or Start is set
	Signal string // that killed it, such as "SIGKILL"
	Sent   string // the strongest signal that muster had sent to it before
	Start  string // why it could not be started
	At     float64

	evidence.Worker

	GPUs []GPU // of its host
	// NoEvents is why the driver's events are not known of the worker's GPU.
	NoEvents string
	// MPSLimit is the device memory that the rank may take under MPS; 0 for no limit.
	MPSLimit uint64
	Steps    *Steps
}

// GPU is a device of the worker's host.
type GPU struct {
	gpu.ID
	Seen   int  // as the worker's programs number it: N of cuda:N; negative where it does not see it
	Mine   bool // the plan gave it to this rank
	Ranks  int  // that the plan has put on it
	Before *Use // the last snapshot while the worker ran
	After  *Use // the first snapshot after
	Xids   []Xid
	// ECC are uncorrectable errors since the attempt began.
	ECC    *uint64
	Lost   string // why it does not answer any more
	LostAt float64
}

// Use is what one snapshot shows of a GPU.
type Use struct {
	Total, Used uint64
	Processes   []Process
}

// Process is a holder of the GPU's memory.
type Process struct {
	gpu.Holder
	Own bool // it is one of this worker
}

// Xid is an error that the driver reported of a GPU.
type Xid struct {
	Number int
	At     float64
	Text   string // what the driver said beside it
}

// Steps are how far the worker was.
type Steps struct {
	First, Furthest progress.Mark
	// At is when the furthest was reported.
	At float64
	// Checkpoint is when the newest file in the checkpoint folder was written; 0 for none
	// since the attempt began.
	Checkpoint float64
}

// StepsReported is how far a worker was by what it reported; nil where it reported nothing.
func StepsReported(o *observe.Latest) *Steps {
	if o == nil || !o.Furthest.Known() && o.CheckpointAt == 0 {
		return nil
	}
	return &Steps{First: o.First, Furthest: o.Furthest, At: o.FurthestAt, Checkpoint: o.CheckpointAt}
}

// StepsOf is how far a worker was: by what it reported, or else by the end of its output;
// and its newest checkpoint, by what it reported or by the checkpoint folder.
func StepsOf(w *evidence.Worker, pattern progress.Pattern) *Steps {
	steps := StepsReported(w.Observed)
	if steps == nil {
		steps = &Steps{First: progress.Nowhere, Furthest: progress.Nowhere, At: w.Age}
	}
	steps.Checkpoint = max(steps.Checkpoint, w.Checkpoint)
	if !steps.Furthest.Known() {
		counter := progress.NewCounter(pattern)
		for _, text := range [][]byte{w.Stdout, w.Stderr} {
			for line := range strings.Lines(string(text)) {
				counter.Line(strings.TrimRight(line, "\r\n"))
			}
		}
		steps.First, steps.Furthest, steps.At = counter.First(), counter.Furthest(), w.Age
	}
	if !steps.Furthest.Known() && steps.Checkpoint == 0 {
		return nil
	}
	return steps
}

// Progressed is whether anything was done that another attempt can go on from.
func (s *Steps) Progressed() bool {
	return s != nil && (s.Checkpoint > 0 || s.Furthest.Known() && s.Furthest.Compare(s.First) > 0)
}

// succeeded is whether the worker ended well.
func (e Evidence) succeeded() bool { return e.Start == "" && e.Signal == "" && e.Code == 0 }

// Verdict is why a worker ended.
type Verdict = verdict.Verdict
