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
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/planfile"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Run is one launch.
type Run struct {
	Source   config.Source
	Job      *config.Job
	Show     config.RankSet  // whose output is shown
	Saved    *planfile.Saved // what the plan must still come to; nil: anything
	Check    submission.Check
	Detach   bool // leave once the run belongs to the hosts
	Connect  Connector
	View     View
	Notebook history.Store
	Wishes   <-chan Wish
}

// newID makes a run's id from its job's name.
func newID(job string) string {
	b := make([]byte, 3)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return job + "-" + hex.EncodeToString(b)
}

// Do launches the run and stays with it until it is over. It returns the exit status;
// an error that is a *Failure says what to tell the user.
func (r *Run) Do(ctx context.Context) (int, error) {
	shown := r.View
	defer func() { r.View = shown }()
	for try := 1; ; try++ {
		held := &heldReport{View: shown}
		r.View = held
		status, err := r.once(ctx)
		if held.taken == nil {
			return status, err
		}
		if try == takenTries {
			shown.Report(held.taken)
			return status, err
		}
		shown.Say("another launch has taken GPUs that this one had chosen; looking again")
		time.Sleep(time.Duration(mathrand.Int64N(int64(takenPause))))
	}
}

// takenTries is how often a run is launched whose devices others take first, and takenPause
// the longest pause between: whoever comes then sees what is taken.
const (
	takenTries = 4
	takenPause = time.Second
)

// heldReport holds back an end that may not be the last word.
type heldReport struct {
	View
	taken *report.Report
}

// Report shows the end of a run, unless devices that were taken are all that is wrong.
func (h *heldReport) Report(r *report.Report) {
	if r.FirstCause != nil && r.FirstCause.Class == class.Taken {
		h.taken = r
		return
	}
	h.View.Report(r)
}

// once launches the run and stays with it until it is over.
func (r *Run) once(ctx context.Context) (int, error) {
	id := newID(r.Job.Name)
	fleet, err := r.assembleUnlessStopped(ctx, id)
	if err != nil {
		return 0, err
	}
	p, err := r.makePlan(fleet)
	if err != nil {
		fleet.dismiss(endWait)
		return 0, err
	}
	r.View.Plan(p)
	return r.handOver(ctx, id, fleet, p)
}

// stopped is the cause of a context that a wish has ended.
type stopped struct{ wish Wish }

func (s stopped) Error() string { return s.wish.Reason }

// assembleUnlessStopped brings the hosts together; a wish to stop ends that at once.
func (r *Run) assembleUnlessStopped(ctx context.Context, id string) (*fleet, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	assembled := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case w := <-r.Wishes:
				if w.ends() {
					cancel(stopped{w})
					return
				}
				r.View.Say("the run has not begun yet: it is still " + r.connectWords())
			case <-assembled:
				return
			}
		}
	})
	r.View.Phase(r.connectWords())
	f, err := assemble(ctx, r.Connect, r.invitations(id), func(n int) { r.View.HostDone(n, len(r.Job.Hosts)) })
	close(assembled)
	watching.Wait()
	var s stopped
	if errors.As(context.Cause(ctx), &s) {
		if f != nil {
			f.dismiss(endWait)
		}
		return nil, failure(s.wish.Exit, "%s before the start; nothing is left on the hosts", s.wish.Reason)
	}
	return f, err
}

func (r *Run) connectWords() string {
	if r.Job.HostsKind == config.HostsLocal {
		return "starting on this machine"
	}
	if len(r.Job.Hosts) == 1 {
		return "connecting to " + r.Job.Hosts[0].Name
	}
	return fmt.Sprintf("connecting to %d hosts", len(r.Job.Hosts))
}

func (r *Run) invitations(id string) []invitation {
	all := make([]invitation, len(r.Job.Hosts))
	for i, h := range r.Job.Hosts {
		all[i] = invitation{name: h.Name, target: targetOf(h), launch: r.launchOf(id, i)}
	}
	return all
}

func targetOf(h config.Host) remote.Target {
	return remote.Target{Name: h.Address, User: h.User, Port: h.Port}
}

// launchOf is what is started on a host: a keeper, on the head host with a coordinator.
func (r *Run) launchOf(id string, host int) remote.Launch {
	l := remote.Launch{Program: "muster-agent", Args: []string{"keeper", "-run", id, "-lease", r.Job.Lease.String()}}
	if host == 0 {
		l.Also = []string{"muster"}
		l.Args = append(l.Args, "-coordinator", "{muster}",
			"-first-port", strconv.Itoa(r.Job.Ports.First), "-last-port", strconv.Itoa(r.Job.Ports.Last))
	}
	lookAtDevices(&l, r.Job, r.Job.Hosts[host], true)
	return l
}

func (r *Run) makePlan(f *fleet) (*plan.Plan, error) {
	p, problems := lint.Plan(r.Job, f.facts())
	if len(problems) > 0 {
		return nil, refused(problems)
	}
	if r.Saved != nil {
		if changes := r.Saved.Differences(p); len(changes) > 0 {
			return nil, failure(report.ExitRefused, "the hosts are not as they were when the plan was saved:\n  %s\nnothing was started; muster plan --save makes a new one", strings.Join(changes, "\n  "))
		}
	}
	return p, nil
}

// planRefusal is that there is no plan, and why.
type planRefusal struct {
	*Failure
	problems []plan.Problem
}

// Unwrap is what to tell the user.
func (r *planRefusal) Unwrap() error { return r.Failure }

func refused(problems []plan.Problem) error {
	text := "there is no plan for this job on these hosts:"
	for _, problem := range problems {
		text += "\n  " + strings.ReplaceAll(problem.Message, "\n", "\n  ")
	}
	return &planRefusal{failure(report.ExitRefused, "%s", text), problems}
}

// handOver gives the run to its coordinator and watches it.
func (r *Run) handOver(ctx context.Context, id string, f *fleet, p *plan.Plan) (int, error) {
	head := f.hosts[0]
	c, err := dialControl(ctx, head.remote, head.ready.Control)
	if err != nil {
		f.dismiss(endWait)
		return 0, head.complaintOr(report.ExitUnreachable, err)
	}
	submission, err := r.submission(id, f, p)
	if err == nil {
		err = c.whileAlive(ctx, silenceIn(r.Job.Lease), func(ctx context.Context) error { return c.submit(ctx, submission) })
	}
	if err != nil {
		c.close()
		f.dismiss(endWait)
		exit := report.ExitUnreachable
		if no := (*refusal)(nil); errors.As(err, &no) {
			exit = report.ExitInternal
		}
		return 0, head.complaintOr(exit, fmt.Errorf("%s: %w", head.name, err))
	}
	page := r.page(id, p)
	if last := r.Show.Last(); last >= page.WorldSize() {
		r.View.Say(fmt.Sprintf("warning: the output of rank %d is asked for; ranks are 0 to %d", last, page.WorldSize()-1))
	}
	if err := r.Notebook.Write(page); err != nil {
		r.View.Say("warning: " + err.Error() + "; muster ps will not know this run")
	}
	w := &watch{
		view: r.View, show: r.Show, notebook: r.Notebook, wishes: r.Wishes, detach: r.Detach,
		page: page, control: c, fleet: f, connect: r.Connect, patience: r.Job.Stop.Grace + r.Job.Lease + endWait,
	}
	return w.launch(ctx, p)
}

func (r *Run) submission(id string, f *fleet, p *plan.Plan) (submission.Run, error) {
	digest, err := environ.Digest(p)
	s := submission.Run{ID: id, Source: r.Source, Digest: digest, Check: r.Check}
	for i, h := range f.hosts {
		s.Hosts = append(s.Hosts, submission.Host{
			Name: r.Job.Hosts[i].Name, Pin: h.hello.Pin, Facts: h.hello.Facts, ClockOffset: h.clockOffset, ClockError: h.clockError,
		})
	}
	return s, err
}

func (r *Run) page(id string, p *plan.Plan) history.Run {
	page := history.Run{ID: id, Job: r.Job.Name, Kind: r.Job.HostsKind, Started: time.Now(), Lease: r.Job.Lease, Tasks: len(p.Tasks)}
	for i, h := range r.Job.Hosts {
		page.Hosts = append(page.Hosts, history.Host{
			Name: h.Name, Address: h.Address, User: h.User, Port: h.Port,
			FirstRank: p.Hosts[i].FirstRank, Ranks: p.Hosts[i].Ranks,
		})
	}
	return page
}
