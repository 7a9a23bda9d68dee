package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Run is one launch.
type Run struct {
	Source  config.Source
	Job     *config.Job
	Show    config.RankSet // whose output is shown
	Connect Connector
	View    View

	// Stops are the user's wishes to end the run, each stronger than the one before.
	Stops <-chan Stop
}

// Stop is a wish to end the run.
type Stop struct {
	Exit   int    // the exit status that it asks for
	Reason string // such as "Ctrl-C"
	Kill   bool   // without grace
	Leave  bool   // without waiting
	Detach bool   // not the run, only the launcher's part in it
}

// NewID makes a run's id from its job's name.
func NewID(job string) string {
	b := make([]byte, 3)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return job + "-" + hex.EncodeToString(b)
}

// Do launches the run and stays with it until it is over. It returns the exit status;
// an error that is a *Failure says what to tell the user.
func (r *Run) Do(ctx context.Context) (int, error) {
	id := NewID(r.Job.Name)
	fleet, err := r.assembleUnlessStopped(ctx, id)
	if err != nil {
		return 0, err
	}
	p, err := r.makePlan(fleet)
	if err != nil {
		fleet.dismiss()
		return 0, err
	}
	r.View.Plan(p)
	return r.handOver(ctx, id, fleet, p)
}

// stopped is the cause of a context that a Stop has ended.
type stopped struct{ stop Stop }

func (s stopped) Error() string { return s.stop.Reason }

// assembleUnlessStopped brings the hosts together; a wish to stop ends that at once.
func (r *Run) assembleUnlessStopped(ctx context.Context, id string) (*fleet, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	assembled := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case s := <-r.Stops:
			cancel(stopped{s})
		case <-assembled:
		}
	})
	r.View.Phase(r.connectWords())
	f, err := assemble(ctx, r.Connect, r.invitations(id), func(n int) { r.View.HostDone(n, len(r.Job.Hosts)) })
	close(assembled)
	watching.Wait()
	var s stopped
	if errors.As(context.Cause(ctx), &s) {
		if f != nil {
			f.dismiss()
		}
		return nil, failure(s.stop.Exit, "%s before the start; nothing is left on the hosts", s.stop.Reason)
	}
	return f, err
}

func (r *Run) connectWords() string {
	if r.Job.HostsKind == config.HostsLocal {
		return "starting on this machine"
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
	return l
}

func (r *Run) makePlan(f *fleet) (*plan.Plan, error) {
	p, problems := plan.Make(r.Job, f.facts())
	if len(problems) > 0 {
		return nil, refused(problems)
	}
	return p, nil
}

func refused(problems []plan.Problem) *Failure {
	text := "there is no plan for this job on these hosts:"
	for _, problem := range problems {
		text += "\n  " + problem.Message
	}
	return failure(report.ExitRefused, "%s", text)
}

// handOver gives the run to its coordinator and watches it.
func (r *Run) handOver(ctx context.Context, id string, f *fleet, p *plan.Plan) (int, error) {
	head := f.hosts[0]
	c, err := dialControl(ctx, head.remote, head.ready.Control)
	if err != nil {
		f.dismiss()
		return 0, failure(report.ExitUnreachable, "%v", err)
	}
	defer c.close()
	submission, err := r.submission(id, f, p)
	if err == nil {
		err = c.submit(ctx, submission)
	}
	if err != nil {
		f.dismiss()
		return 0, failure(report.ExitInternal, "the coordinator refused the run: %v", err)
	}
	w := &watch{run: r, id: id, fleet: f, control: c, plan: p}
	return w.stay(ctx)
}

func (r *Run) submission(id string, f *fleet, p *plan.Plan) (coordinator.Submission, error) {
	digest, err := p.Digest()
	s := coordinator.Submission{Run: id, Source: r.Source, Digest: digest}
	for i, h := range f.hosts {
		s.Hosts = append(s.Hosts, coordinator.SubmittedHost{Name: r.Job.Hosts[i].Name, Pin: h.hello.Pin, Facts: h.hello.Facts})
	}
	return s, err
}

// watch is a launcher that stays with its run.
type watch struct {
	run     *Run
	id      string
	fleet   *fleet
	control *control
	plan    *plan.Plan

	mu        sync.Mutex
	committed bool
	report    *report.Report
	trouble   []hostError // agents that could not join
}

// stay sends the hosts to the coordinator and shows what happens until the run is over.
func (w *watch) stay(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- w.control.watch(ctx, w.see) }()
	var output sync.WaitGroup
	output.Go(func() { w.showOutput(ctx) })
	w.sendAll()
	go w.beat(ctx)
	for {
		select {
		case err := <-over:
			if !errors.Is(err, io.EOF) && !w.isOver() {
				return w.lostSight(err)
			}
			output.Wait()
			return w.finish()
		case s := <-w.run.Stops:
			if s.Detach && w.isCommitted() {
				return s.Exit, failure(s.Exit, "%s: run %s goes on without this launcher", s.Reason, w.id)
			}
			if s.Leave {
				return s.Exit, failure(s.Exit, "%s", w.leftBehind())
			}
			go func() { _ = w.control.stop(ctx, s.Kill, s.Exit, s.Reason) }() // a dead coordinator shows in over
		}
	}
}

// sendAll tells every agent where the coordinator is, and listens for those that cannot
// reach it.
func (w *watch) sendAll() {
	head := w.fleet.hosts[0]
	join := orders.Join{Coordinator: head.ready.Pin}
	for _, m := range w.plan.Candidates() {
		join.Addrs = append(join.Addrs, net.JoinHostPort(m.Addr, strconv.Itoa(head.ready.Port)))
	}
	for i, h := range w.fleet.hosts {
		j := join
		j.Name = w.run.Job.Hosts[i].Name
		if !h.say(orders.ToAgent{Join: &j}) {
			w.troubleAt(h, errors.New("its agent cannot be told where the coordinator is"))
			continue
		}
		go func() {
			for said := range h.words {
				if said.words.Error != "" {
					w.troubleAt(h, errors.New(said.words.Error))
				}
				if said.err != nil {
					return
				}
			}
		}()
	}
}

// beat gives the coordinator a sign of life until the run belongs to the hosts, and tells
// it of hosts whose keeper has ended.
func (w *watch) beat(ctx context.Context) {
	for _, h := range w.fleet.hosts {
		go func() {
			select {
			case <-h.gone:
			case <-ctx.Done():
				return
			}
			var lost *remote.LostError
			if !errors.As(h.goneErr, &lost) {
				_ = w.control.hostEmpty(ctx, h.name)
			}
		}()
	}
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for !w.isCommitted() {
		select {
		case <-ticker.C:
			_ = w.control.beat(ctx) // a coordinator that is gone shows where events are watched
		case <-ctx.Done():
			return
		}
	}
}

// troubleAt ends a run that has not started because a host cannot take part.
func (w *watch) troubleAt(h *fleetHost, err error) {
	w.mu.Lock()
	committed := w.committed
	w.trouble = append(w.trouble, hostError{h.name, err})
	w.mu.Unlock()
	if !committed {
		_ = w.control.stop(context.Background(), true, report.ExitUnreachable, h.name+" cannot take part")
	}
}

func (w *watch) isCommitted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.committed
}

func (w *watch) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report != nil
}

func (w *watch) see(e event.Event) {
	w.mu.Lock()
	switch e.Kind {
	case event.Committed:
		w.committed = true
	case event.Over:
		w.report = e.Report
	}
	w.mu.Unlock()
	w.run.View.Event(e)
}

func (w *watch) showOutput(ctx context.Context) {
	var ranks []int
	for rank := range w.plan.WorldSize {
		if w.run.Show.Has(rank) {
			ranks = append(ranks, rank)
		}
	}
	// An error here is the coordinator's end, which shows where events are watched.
	_ = w.control.logs(ctx, ranks, func(c *pb.LogChunk) {
		host := w.plan.Hosts[w.plan.Ranks[c.Rank].Host].Name
		w.run.View.Output(host, int(c.Rank), c.Lane == 1, c.Data, c.End)
	})
}

// finish says how it ended and sees that nothing is left.
func (w *watch) finish() (int, error) {
	left := w.fleet.dismiss()
	w.mu.Lock()
	r, trouble := w.report, w.trouble
	w.mu.Unlock()
	for _, host := range left {
		r.Left = append(r.Left, host+": its keeper has not ended yet")
	}
	if len(trouble) > 0 && !w.isCommitted() {
		return 0, hostErrors(trouble).failure(len(w.fleet.hosts))
	}
	w.run.View.Report(r)
	return r.Exit, nil
}

// lostSight is for a coordinator that answers no more.
func (w *watch) lostSight(err error) (int, error) {
	w.fleet.dismiss()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.trouble) > 0 && !w.committed {
		return 0, hostErrors(w.trouble).failure(len(w.fleet.hosts))
	}
	return 0, failure(report.ExitUnreachable, "lost the coordinator of run %s on %s: %v", w.id, w.fleet.hosts[0].name, err)
}

func (w *watch) leftBehind() string {
	text := fmt.Sprintf("left run %s without waiting for its end; workers may still be ending on:", w.id)
	for _, h := range w.fleet.hosts {
		select {
		case <-h.gone:
		default:
			text += " " + h.name
		}
	}
	return text
}
