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
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/software"
)

// Check makes the hosts of a job ready and checks them, and starts nothing. Without a plan the
// findings say why.
func Check(ctx context.Context, spec Spec, o Observer) (Outcome, error) {
	spec.Check, spec.History = submission.CheckOnly, history.Store{} // there is no run to come back to
	out, err := Launch(ctx, spec, o)
	if problems := (planProblems)(nil); errors.As(err, &problems) {
		return Outcome{Findings: check.Refused(problems), Exit: report.ExitRefused}, nil
	}
	if out.Report != nil {
		out.Findings = check.Reported(out.Report)
	}
	return out, err
}

// CheckCollective does Check and, where the job could start, has its ranks measure how they
// compute and work together.
func CheckCollective(ctx context.Context, spec Spec, o Observer) (Outcome, error) {
	out, err := Check(ctx, spec, o)
	if err != nil || out.Exit != report.ExitOK {
		return out, err
	}
	measured, err := measure(ctx, spec, o, out.Plan)
	if err != nil {
		return out, err
	}
	measured = check.Apply(measured, spec.Job.Check)
	out.Findings = check.Apply(append(out.Findings, measured...), config.Check{})
	if check.Verdict(measured) == check.Failed {
		out.Exit = report.ExitRefused
	}
	return out, nil
}

// measure has the ranks of a plan that was checked measure: the same run with another command,
// which is ended when its time is over.
func measure(ctx context.Context, spec Spec, o Observer, p *plan.Plan) ([]report.Finding, error) {
	if p.Backend == "none" || p.Independent {
		return nil, report.Errorf(report.ExitRefused, "there is nothing to measure: the ranks of this job do not work together (mode = \"independent\", or ranks { backend = \"none\" })")
	}
	ranks := make([]int, len(p.Hosts))
	for i, h := range p.Hosts {
		ranks[i] = h.Ranks
	}
	ask := collective.For(p.Backend, ranks)
	spec.Source.Instead = ask.Command(pythonOf(spec.Job))
	job, diags := spec.Source.Evaluate()
	if diags.HasErrors() {
		return nil, diags
	}
	requests, stop := withDeadline(spec.Requests, ask.Longest())
	defer stop()
	spec.Job, spec.Requests, spec.Show = job, requests, config.RankSet{}
	spec.Check, spec.History = submission.CheckNone, history.Store{}
	results := &measurements{Observer: o, readers: map[int]*collective.Reader{}}
	o.Phase("measuring how ranks work together")
	out, err := Launch(ctx, spec, results)
	o.Phase("")
	said := results.all()
	if failed := (*report.Error)(nil); err != nil && !(errors.As(err, &failed) && len(said) > 0) {
		return nil, err
	}
	in := check.Measured{Plan: p, Ask: ask, Said: said}
	if out.Report != nil {
		in.Failed = check.RunFailure(out.Report)
	}
	return check.Collective(in), nil
}

// pythonOf is the interpreter whose torch is used: what the job file names, the command's own,
// or the one that setup leaves in PATH.
func pythonOf(job *config.Job) string {
	switch {
	case job.Python != "":
		return job.Python
	case len(job.Command) > 0 && software.IsPython(path.Base(job.Command[0])):
		return job.Command[0]
	}
	return "python3"
}

// withDeadline passes requests on, and ends the run when it takes longer than limit.
func withDeadline(requests <-chan Request, limit time.Duration) (<-chan Request, func()) {
	passed, over := make(chan Request), make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		late := time.After(limit)
		for {
			var r Request
			select {
			case r = <-requests:
			case <-late:
				r = Request{Stop: true, Kill: true, Exit: report.ExitTimeout, Reason: "it took longer than " + limit.String()}
			case <-over:
				return
			}
			select {
			case passed <- r:
			case <-over:
				return
			}
		}
	})
	return passed, func() { close(over); passing.Wait() }
}

// measurements reads what ranks measure from their output, and shows nothing of the run but
// how far it is.
type measurements struct {
	Observer
	mu      sync.Mutex
	readers map[int]*collective.Reader
	said    []collective.Said
}

func (m *measurements) Plan(*plan.Plan)                {}
func (m *measurements) Event(event.Event)              {}
func (m *measurements) HostDone(int, int)              {}
func (m *measurements) State(history.Run, event.State) {}

// Output takes the script's lines from among what a rank writes.
func (m *measurements) Output(_ string, rank int, stderr bool, data []byte, _ bool) {
	if stderr {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readers[rank] == nil {
		m.readers[rank] = &collective.Reader{}
	}
	m.said = append(m.said, m.readers[rank].Take(data)...)
}

func (m *measurements) all() []collective.Said {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said
}
