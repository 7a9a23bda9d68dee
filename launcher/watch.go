package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/notebook"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// watch is a launcher that stays with a run: the one that launched it, or another later.
type watch struct {
	view     View
	show     config.RankSet
	notebook notebook.Notebook
	wishes   <-chan Wish
	detach   bool // leave once the run belongs to the hosts
	page     notebook.Page
	control  *control
	fleet    *fleet        // the hosts that this launcher has connections to, the head host first
	tail     bool          // show output from the last lines on
	quiet    uint64        // events up to this one are old news
	patience time.Duration // how long keepers may take to end once the coordinator is gone

	mu      sync.Mutex
	state   event.State
	trouble hostErrors // agents that could not join
	noted   bool       // that the run is committed
	commit  chan struct{}
}

// launch sends the hosts of a run that was just submitted to their coordinator, and stays.
func (w *watch) launch(ctx context.Context, p *plan.Plan) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.commit = make(chan struct{})
	w.sendAll(p)
	go w.beat(ctx)
	return w.stay(ctx)
}

// stay shows what happens until the run is over, or the user has had enough.
func (w *watch) stay(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.commit == nil {
		w.commit = make(chan struct{})
	}
	over := make(chan error, 1)
	go func() { over <- w.control.watch(ctx, w.see) }()
	var output sync.WaitGroup
	output.Go(func() { w.showOutput(ctx) })
	committed := w.commit
	for {
		select {
		case <-committed:
			committed = nil
			if w.detach {
				return w.leave(Wish{Reason: "detached"})
			}
		case err := <-over:
			if !errors.Is(err, io.EOF) && !w.isOver() {
				return w.lostSight(err)
			}
			output.Wait()
			return w.finish()
		case wish := <-w.wishes:
			if status, err, done := w.heed(ctx, wish); done {
				return status, err
			}
		}
	}
}

// heed does what the user wants; done is set when the launcher is to leave.
func (w *watch) heed(ctx context.Context, wish Wish) (status int, err error, done bool) {
	switch {
	case wish.Detach && (w.isCommitted() || wish.Exit != 0):
		status, err = w.leave(wish)
		return status, err, true
	case wish.Detach:
		w.view.Say("the run has not begun yet; it can be left once its workers run")
	case wish.Leave:
		return wish.Exit, failure(wish.Exit, "%s", w.leftBehind()), true
	case wish.Stop:
		go func() { _ = w.control.stop(ctx, wish.Kill, wish.Exit, wish.Reason) }() // a dead coordinator shows in over
	case wish.State:
		w.view.State(w.page, w.snapshot())
	case wish.Signal != "":
		go func() { _ = w.control.signal(ctx, wish.Signal) }()
	}
	return 0, nil, false
}

// leave goes and lets the run go on.
func (w *watch) leave(wish Wish) (int, error) {
	w.fleet.leave()
	if !w.isCommitted() {
		return wish.Exit, failure(wish.Exit, "%s before the start; the hosts end what was begun within the lease", wish.Reason)
	}
	w.view.Say(fmt.Sprintf("%s; run %s goes on: muster attach %s comes back to it, muster stop %s ends it", wish.Reason, w.page.Run, w.page.Run, w.page.Run))
	return wish.Exit, nil
}

// sendAll tells every agent where the coordinator is, and listens for those that cannot
// reach it.
func (w *watch) sendAll(p *plan.Plan) {
	head := w.fleet.hosts[0]
	join := orders.Join{Coordinator: head.ready.Pin}
	for _, m := range p.Candidates() {
		join.Addrs = append(join.Addrs, net.JoinHostPort(m.Addr, strconv.Itoa(head.ready.Port)))
	}
	for _, h := range w.fleet.hosts {
		j := join
		j.Name = h.name
		if !h.say(orders.ToAgent{Join: &j}) {
			w.troubleAt(h, errors.New("its agent cannot be told where the coordinator is"))
			continue
		}
		go w.listen(h)
	}
}

func (w *watch) listen(h *fleetHost) {
	for said := range h.words {
		if said.words.Error != "" {
			w.troubleAt(h, errors.New(said.words.Error))
		}
		if said.err != nil {
			return
		}
	}
}

// troubleAt ends a run that has not started because a host cannot take part.
func (w *watch) troubleAt(h *fleetHost, err error) {
	w.mu.Lock()
	w.trouble = append(w.trouble, hostError{h.name, err})
	w.mu.Unlock()
	if !w.isCommitted() {
		_ = w.control.stop(context.Background(), true, report.ExitUnreachable, h.name+" cannot take part")
	}
}

// beat gives the coordinator a sign of life until the run belongs to the hosts, and tells
// it of hosts whose keeper has ended.
func (w *watch) beat(ctx context.Context) {
	for _, h := range w.fleet.hosts {
		go w.tellWhenEmpty(ctx, h)
	}
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = w.control.beat(ctx) // a coordinator that is gone shows where events are watched
		case <-w.commit:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) tellWhenEmpty(ctx context.Context, h *fleetHost) {
	select {
	case <-h.gone:
	case <-ctx.Done():
		return
	}
	var lost *remote.LostError
	if !errors.As(h.goneErr, &lost) {
		_ = w.control.hostEmpty(ctx, h.name)
	}
}

func (w *watch) snapshot() event.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.state
	s.Ranks = map[int]event.RankState{}
	for rank, r := range w.state.Ranks {
		s.Ranks[rank] = r
	}
	return s
}

func (w *watch) isCommitted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noted
}

func (w *watch) isOver() bool { return w.snapshot().Report != nil }

func (w *watch) see(e event.Event) {
	w.mu.Lock()
	w.state.Take(e)
	if e.Kind == event.Committed && !w.noted {
		w.noted = true
		close(w.commit)
	}
	w.mu.Unlock()
	if e.Seq > w.quiet {
		w.view.Event(e)
	}
}

func (w *watch) showOutput(ctx context.Context) {
	var ranks []int
	for rank := range w.page.WorldSize() {
		if w.show.Has(rank) {
			ranks = append(ranks, rank)
		}
	}
	// An error here is the coordinator's end, which shows where events are watched.
	_ = w.control.logs(ctx, ranks, w.tail, func(c *pb.LogChunk) {
		host, _ := w.page.HostOf(int(c.Rank))
		w.view.Output(host.Name, int(c.Rank), c.Lane == 1, c.Data, c.End)
	})
}

// finish says how it ended and sees that nothing is left.
func (w *watch) finish() (int, error) {
	left := w.fleet.dismiss(endWait)
	committed := w.isCommitted()
	w.mu.Lock()
	r, trouble := w.state.Report, w.trouble
	w.mu.Unlock()
	for _, host := range left {
		r.Left = append(r.Left, host+": its keeper has not ended yet")
	}
	w.page.Outcome, w.page.Exit, w.page.Attempt = r.Outcome, r.Exit, w.snapshot().Attempt
	if err := w.notebook.Write(w.page); err != nil {
		w.view.Say("warning: " + err.Error())
	}
	if len(trouble) > 0 && !committed {
		return 0, trouble.failure(len(w.page.Hosts))
	}
	w.view.Report(r)
	return r.Exit, nil
}

// lostSight is for a coordinator that answers no more. What can be known is whether the
// hosts that this launcher is connected to have ended.
func (w *watch) lostSight(err error) (int, error) {
	committed := w.isCommitted()
	head := w.fleet.hosts[0]
	if committed && head.process == nil || w.connectionLost(head) {
		w.fleet.leave()
		return 0, failure(report.ExitUnreachable, "lost the connection to %s, the head host of run %s: %v\nThe run may go on there; muster attach %s comes back to it, muster ps says what is known.",
			head.name, w.page.Run, err, w.page.Run)
	}
	w.view.Phase("the coordinator is gone; waiting for the hosts to end their workers")
	left := w.fleet.dismiss(w.patience)
	w.mu.Lock()
	trouble := w.trouble
	w.mu.Unlock()
	text := "its agent and coordinator have ended"
	for _, t := range trouble {
		text = t.err.Error()
	}
	if !committed {
		return 0, failure(report.ExitUnreachable, "%s: %s; nothing was started", head.name, text)
	}
	message := fmt.Sprintf("run %s has lost its coordinator on %s: %s", w.page.Run, head.name, text)
	if len(left) > 0 {
		message += "; not seen to end: " + strings.Join(left, ", ")
	}
	return 0, failure(report.ExitInternal, "%s", message)
}

// connectionLost waits a moment for a host's keeper to end, and reports whether the
// connection to it is what was lost.
func (w *watch) connectionLost(h *fleetHost) bool {
	if h.process == nil {
		return false
	}
	select {
	case <-h.gone:
		var lost *remote.LostError
		return errors.As(h.goneErr, &lost)
	case <-time.After(time.Second):
		return false
	}
}

func (w *watch) leftBehind() string {
	text := fmt.Sprintf("left run %s without waiting for its end; workers may still be ending on:", w.page.Run)
	for _, h := range w.fleet.hosts {
		select {
		case <-h.gone:
		default:
			text += " " + h.name
		}
	}
	return text
}
