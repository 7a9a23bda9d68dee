package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/planfile"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/session"
)

// Observer shows a launch to the user. Calls come from several goroutines.
type Observer interface {
	session.Observer
	// HostDone says how many of all hosts have got through the phase.
	HostDone(done, all int)
	// Plan shows what is about to run.
	Plan(p *plan.Plan)
}

// Request is what the user asks of a launcher that stays with a run.
type Request = session.Request

// Spec is what is launched, and how.
type Spec struct {
	Source   config.Source
	Job      *config.Job
	Show     config.RankSet  // whose output is shown
	Saved    *planfile.Saved // what the plan must still come to; nil: anything
	Check    submission.Check
	Detach   bool // leave once the run belongs to the hosts
	Connect  fleet.Connector
	History  history.Store
	Requests <-chan Request
}

// Outcome is what came of a launch.
type Outcome struct {
	Report   *report.Report // nil: the launcher has left before the run's end
	Plan     *plan.Plan
	Findings []report.Finding
	Exit     int
}

// maxTries is how often a run is launched whose devices others take first, and takenPause the
// longest pause between: another look then sees what is taken.
const (
	maxTries   = 4
	takenPause = time.Second
)

// Launch launches a run and stays with it until it is over. An error that is a *report.Error
// says what to tell the user.
func Launch(ctx context.Context, spec Spec, o Observer) (Outcome, error) {
	for try := 1; ; try++ {
		l := &launch{Spec: spec, observer: o, id: newID(spec.Job.Name)}
		out, err := l.do(ctx)
		isTaken := out.Report != nil && out.Report.FirstCause != nil && out.Report.FirstCause.Class == class.Taken
		if !isTaken || try == maxTries || spec.Check == submission.CheckOnly {
			return out, err
		}
		o.Say("another launch has taken GPUs that this one had chosen; looking again")
		time.Sleep(time.Duration(mathrand.Int64N(int64(takenPause))))
	}
}

// newID makes a run's id from its job's name.
func newID(job string) string {
	b := make([]byte, 3)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return job + "-" + hex.EncodeToString(b)
}

// launch is one try.
type launch struct {
	Spec
	observer Observer
	id       string
}

func (l *launch) do(ctx context.Context) (Outcome, error) {
	f, err := l.assemble(ctx)
	if err != nil {
		return Outcome{}, err
	}
	p, err := l.plan(f)
	if err != nil {
		f.Dismiss(fleet.EndWait)
		return Outcome{}, err
	}
	if l.Check == submission.CheckOnly {
		l.observer.Phase("checking")
	} else {
		l.observer.Plan(p)
	}
	end, err := l.handOver(ctx, f, p)
	out := Outcome{Report: end.Report, Plan: p, Exit: end.Exit}
	if end.Report != nil {
		out.Findings = end.Report.Findings
	}
	return out, err
}

// stopped is the cause of a context that a request has ended.
type stopped struct{ Request }

func (s stopped) Error() string { return s.Reason }

// assemble brings the hosts together; a request to stop ends that at once.
func (l *launch) assemble(ctx context.Context) (*fleet.Fleet, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	assembled := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case r := <-l.Requests:
				if r.Ends() {
					cancel(stopped{r})
					return
				}
				l.observer.Say("the run has not begun yet: it is still " + l.connecting())
			case <-assembled:
				return
			}
		}
	})
	l.observer.Phase(l.connecting())
	f, err := fleet.Assemble(ctx, l.Connect, l.invitations(), func(n int) { l.observer.HostDone(n, len(l.Job.Hosts)) })
	close(assembled)
	watching.Wait()
	var s stopped
	if errors.As(context.Cause(ctx), &s) {
		if f != nil {
			f.Dismiss(fleet.EndWait)
		}
		return nil, report.Errorf(s.Exit, "%s before the start; nothing is left on the hosts", s.Reason)
	}
	return f, err
}

func (l *launch) connecting() string {
	switch {
	case l.Job.HostsKind == config.HostsLocal:
		return "starting on this machine"
	case len(l.Job.Hosts) == 1:
		return "connecting to " + l.Job.Hosts[0].Name
	}
	return fmt.Sprintf("connecting to %d hosts", len(l.Job.Hosts))
}

// invitations start a keeper on each host, and on the head host a coordinator.
func (l *launch) invitations() []fleet.Invitation {
	all := make([]fleet.Invitation, len(l.Job.Hosts))
	for i, h := range l.Job.Hosts {
		keeper := remote.Launch{
			Program: "muster-agent", Args: []string{"keeper", "-run", l.id, "-lease", l.Job.Lease.String()},
		}
		if i == 0 {
			keeper.Also = []string{"muster"}
			keeper.Args = append(keeper.Args, "-coordinator", "{muster}",
				"-first-port", strconv.Itoa(l.Job.Ports.First), "-last-port", strconv.Itoa(l.Job.Ports.Last))
		}
		probeDevices(&keeper, l.Job, h, true)
		all[i] = fleet.Invitation{Name: h.Name, Target: targetOf(h), Launch: keeper}
	}
	return all
}

func targetOf(h config.Host) remote.Target {
	return remote.Target{Name: h.Address, User: h.User, Port: h.Port}
}

func (l *launch) plan(f *fleet.Fleet) (*plan.Plan, error) {
	p, problems := lint.Plan(l.Job, f.Facts())
	if len(problems) > 0 {
		return nil, refused(problems)
	}
	if l.Saved != nil {
		if changes := l.Saved.Differences(p); len(changes) > 0 {
			return nil, report.Errorf(report.ExitRefused, "the hosts are not as they were when the plan was saved:\n  %s\nnothing was started; muster plan --save makes a new one", strings.Join(changes, "\n  "))
		}
	}
	return p, nil
}

// planProblems are why there is no plan.
type planProblems []plan.Problem

func (p planProblems) Error() string {
	text := "there is no plan for this job on these hosts:"
	for _, problem := range p {
		text += "\n  " + strings.ReplaceAll(problem.Message, "\n", "\n  ")
	}
	return text
}

func refused(problems planProblems) error {
	return &report.Error{Exit: report.ExitRefused, Message: problems.Error(), Err: problems}
}

// handOver gives the run to its coordinator and stays with it.
func (l *launch) handOver(ctx context.Context, f *fleet.Fleet, p *plan.Plan) (session.End, error) {
	head := f.Hosts[0]
	c, err := session.Dial(ctx, head.Remote(), head.Ready.Control)
	if err != nil {
		f.Dismiss(fleet.EndWait)
		return session.End{}, head.ComplaintOr(report.ExitUnreachable, err)
	}
	if err := l.submit(ctx, c, f, p); err != nil {
		c.Close()
		f.Dismiss(fleet.EndWait)
		exit := report.ExitUnreachable
		if no := (*session.Refusal)(nil); errors.As(err, &no) {
			exit = report.ExitInternal
		}
		return session.End{}, head.ComplaintOr(exit, fmt.Errorf("%s: %w", head.Name, err))
	}
	run := l.remembered(p)
	if last := l.Show.Last(); last >= run.WorldSize() {
		l.observer.Say(fmt.Sprintf("warning: the output of rank %d is asked for; ranks are 0 to %d", last, run.WorldSize()-1))
	}
	if err := l.History.Write(run); err != nil {
		l.observer.Say("warning: " + err.Error() + "; muster ps will not know this run")
	}
	known := &Known{Run: run, Connect: l.Connect, Observer: l.observer, History: l.History}
	spec := known.session(l.Show, l.Requests)
	spec.Detach, spec.Patience = l.Detach, l.Job.Stop.Grace+l.Job.Lease+fleet.EndWait
	return session.Launch(ctx, spec, f, c, p)
}

func (l *launch) submit(ctx context.Context, c *session.Client, f *fleet.Fleet, p *plan.Plan) error {
	digest, err := environ.Digest(p)
	if err != nil {
		return err
	}
	run := submission.Run{ID: l.id, Source: l.Source, Digest: digest, Check: l.Check}
	for _, h := range f.Hosts {
		run.Hosts = append(run.Hosts, submission.Host{
			Name: h.Name, Pin: h.Hello.Pin, Facts: h.Hello.Facts, ClockOffset: h.ClockOffset, ClockError: h.ClockError,
		})
	}
	return c.WhileAlive(ctx, session.MaxSilence(l.Job.Lease), func(ctx context.Context) error {
		return c.Submit(ctx, run)
	})
}

func (l *launch) remembered(p *plan.Plan) history.Run {
	run := history.Run{
		ID: l.id, Job: l.Job.Name, Kind: l.Job.HostsKind, Started: time.Now(), Lease: l.Job.Lease, Tasks: len(p.Tasks),
	}
	for i, h := range l.Job.Hosts {
		run.Hosts = append(run.Hosts, history.Host{
			Name: h.Name, Address: h.Address, User: h.User, Port: h.Port,
			FirstRank: p.Hosts[i].FirstRank, Ranks: p.Hosts[i].Ranks,
		})
	}
	return run
}
