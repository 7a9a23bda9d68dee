package launcher

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/collective"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/software"
)

// DoCollective does DoChecks and, where the job could start, has its ranks measure how they
// compute and work together.
func (r *Run) DoCollective(ctx context.Context) (Checked, int, error) {
	first := *r
	found, status, err := first.DoChecks(ctx)
	if err != nil || status != report.ExitOK {
		return found, status, err
	}
	measured, err := r.collective(ctx, found.Plan)
	if err != nil {
		return found, status, err
	}
	measured = check.Apply(measured, r.Job.Check)
	found.Findings = check.Apply(append(found.Findings, measured...), config.Check{})
	if check.Verdict(measured) == check.Failed {
		status = report.ExitRefused
	}
	return found, status, nil
}

// collective has the ranks of a plan that was checked measure: the same run with another
// command, which is ended when its time is over. A *Failure says why there was nothing to
// measure.
func (r *Run) collective(ctx context.Context, p *plan.Plan) ([]report.Finding, error) {
	if p.Backend == "none" || p.Independent {
		return nil, failure(report.ExitRefused, "there is nothing to measure: the ranks of this job do not work together (mode = \"independent\", or ranks { backend = \"none\" })")
	}
	ask := collective.For(p.Backend, ranksOf(p))
	kept := &collectiveView{View: r.View, readers: map[int]*collective.Reader{}}
	measured := *r
	measured.Source.Instead = ask.Command(pythonOf(r.Job))
	job, diags := measured.Source.Evaluate()
	if diags.HasErrors() {
		return nil, diags
	}
	wishes, stop := untilLate(r.Wishes, ask.Longest())
	defer stop()
	measured.Job, measured.View, measured.Wishes = job, kept, wishes
	measured.Show, measured.Check, measured.Notebook = config.RankSet{}, Checking(true), history.Store{}
	r.View.Phase("measuring how ranks work together")
	_, err := measured.Do(ctx)
	r.View.Phase("")
	var failed *Failure
	if err != nil && !(errors.As(err, &failed) && len(kept.said) > 0) {
		return nil, err
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	in := check.Measured{Plan: p, Ask: ask, Said: kept.said}
	if c := kept.cause; c != nil {
		in.Failed = &check.RunFailed{Host: c.Host, Message: c.Message, Tail: lastWords(c)}
	}
	return check.Collective(in), nil
}

func ranksOf(p *plan.Plan) []int {
	ranks := make([]int, len(p.Hosts))
	for i, h := range p.Hosts {
		ranks[i] = h.Ranks
	}
	return ranks
}

// pythonOf is the interpreter whose torch is used: what the job file names, the command's
// own, or the one that setup leaves in PATH.
func pythonOf(job *config.Job) string {
	switch {
	case job.Python != "":
		return job.Python
	case len(job.Command) > 0 && software.IsPython(path.Base(job.Command[0])):
		return job.Command[0]
	}
	return "python3"
}

// untilLate passes wishes on, and ends the run when it takes longer than that.
func untilLate(wishes <-chan Wish, limit time.Duration) (<-chan Wish, func()) {
	passed, over := make(chan Wish), make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		late := time.After(limit)
		for {
			var w Wish
			select {
			case w = <-wishes:
			case <-late:
				w = Wish{Stop: true, Kill: true, Exit: report.ExitTimeout, Reason: "it took longer than " + limit.String()}
			case <-over:
				return
			}
			select {
			case passed <- w:
			case <-over:
				return
			}
		}
	})
	return passed, func() { close(over); passing.Wait() }
}

// collectiveView keeps what ranks say, and shows nothing of the run.
type collectiveView struct {
	View
	mu      sync.Mutex
	readers map[int]*collective.Reader
	said    []collective.Said
	cause   *report.Cause
}

func (v *collectiveView) Plan(*plan.Plan)                {}
func (v *collectiveView) Event(event.Event)              {}
func (v *collectiveView) HostDone(int, int)              {}
func (v *collectiveView) State(history.Run, event.State) {}

// Output takes the script's lines from among what a rank writes.
func (v *collectiveView) Output(_ string, rank int, stderr bool, data []byte, _ bool) {
	if stderr {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.readers[rank] == nil {
		v.readers[rank] = &collective.Reader{}
	}
	v.said = append(v.said, v.readers[rank].Take(data)...)
}

// Report keeps why the run as such has failed, if it has.
func (v *collectiveView) Report(r *report.Report) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cause = r.FirstCause; v.cause == nil && r.Outcome != report.OK {
		v.cause = &report.Cause{Message: "it was ended before all had been measured"}
	}
}
