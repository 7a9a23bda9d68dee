package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// watch is a launcher that stays with a run: the one that launched it, or another later.
type watch struct {
	view     View
	show     config.RankSet
	notebook history.Store
	wishes   <-chan Wish
	detach   bool // leave once the run belongs to the hosts
	page     history.Run
	control  *control
	fleet    *fleet        // the hosts that this launcher has connections to, the head host first
	tail     bool          // show output from the last lines on
	quiet    uint64        // events up to this one are old news
	patience time.Duration // how long keepers may take to end once the coordinator is gone
	connect  Connector     // to come back after a lost connection
	fresh    bool          // the run begins only when its output is read
	back     bool          // the connection is not the first one

	mu      sync.Mutex
	state   event.State
	seen    uint64          // the newest event
	shown   map[int]shown   // how far each rank's output was shown
	through map[int]int     // the newest attempt of each rank of which all output was shown
	linked  map[string]bool // hosts that have joined
	silent  []string        // hosts that nothing was heard from any more
	trouble hostErrors      // agents that could not join
	noted   bool            // that the run is committed
	lost    error           // why the newest lost connection was lost
	commit  chan struct{}
	pending *Wish // to stop, from when there was no connection
	leaving *Wish // to leave, from then
	asked   *Wish // the first one to stop
}

// launch sends the hosts of a run that was just submitted to their coordinator, and stays.
func (w *watch) launch(ctx context.Context, p *plan.Plan) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.commit = make(chan struct{})
	w.fresh = true
	w.sendAll(ctx, p)
	return w.stay(ctx)
}

// shown is how far a rank's output was shown.
type shown struct {
	attempt int
	next    uint64
}

// stay shows what happens until the run is over, or the user has had enough. A lost
// connection is made again.
func (w *watch) stay(ctx context.Context) (int, error) {
	if w.commit == nil {
		w.commit = make(chan struct{})
	}
	w.view.Watching(w.page.ID)
	w.shown, w.through = map[int]shown{}, map[int]int{}
	w.mu.Lock()
	w.linked = map[string]bool{}
	w.mu.Unlock()
	defer func() { w.control.close() }() // the one in use by then
	for {
		status, err, lost := w.follow(ctx)
		if lost == nil {
			return status, err
		}
		l, mute := w.comeBack(ctx, lost)
		switch {
		case mute != nil:
			return w.givenUp(mute)
		case l == nil && w.leaving != nil:
			return w.leave(*w.leaving)
		case l == nil:
			return w.lostSight(ctx, lost)
		case l.control == nil:
			return w.ended(ctx, l, lost)
		}
		w.lost = lost
		w.takeOver(ctx, l)
		w.fresh, w.back = false, true
	}
}

// follow shows what happens over one connection to the coordinator; lost is why that
// ended before the run.
func (w *watch) follow(ctx context.Context) (status int, err error, lost error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, silent := make(chan error, 1), make(chan error, 1)
	reads := make(chan struct{})
	go func() {
		if !w.fresh { // a run that goes on can end before its output is read
			<-reads
		}
		if w.back {
			w.view.Say("connected again")
		}
		over <- w.control.watch(ctx, w.seen+1, w.see)
	}()
	go func() { silent <- w.control.beat(ctx, silenceIn(w.page.Lease), &pb.BeatRequest{}) }()
	output := make(chan error, 1)
	go func() { output <- w.showOutput(ctx, reads) }()
	committed := w.commit
	for {
		select {
		case <-committed:
			committed = nil
			if w.detach {
				status, err = w.leave(Wish{Reason: "detached"})
				return status, err, nil
			}
		case lost = <-silent:
			cancel()
			<-over // what it has seen is the next connection's start
			status, _, err, done := w.awaitOutput(ctx, output)
			if done {
				lost = nil
			}
			return status, err, lost
		case lost = <-over:
			isLost := !errors.Is(lost, io.EOF) && !w.isOver()
			if isLost {
				cancel()
			}
			status, cut, err, done := w.awaitOutput(ctx, output)
			switch {
			case done:
				return status, err, nil
			case isLost:
				return 0, nil, lost
			case cut != nil:
				w.catchUp(ctx)
			}
			status, err = w.finish()
			return status, err, nil
		case wish := <-w.wishes:
			if status, err, done := w.heed(ctx, wish); done {
				return status, err, nil
			}
		}
	}
}

// patientForReader is how long the output of a run that is over may take to be read before
// that is said.
const patientForReader = 5 * time.Second

// awaitOutput waits until what was heard of the output is shown, for which its reader may
// take as long as it likes; cut is why that may not be all, and done is set when the launcher
// is to leave before.
func (w *watch) awaitOutput(ctx context.Context, output <-chan error) (status int, cut, err error, done bool) {
	slow := time.After(patientForReader)
	for {
		select {
		case <-slow:
			if w.isOver() {
				w.view.Say(fmt.Sprintf("run %s is over; the rest of its output waits for being read here, and muster logs %s has all of it", w.page.ID, w.page.ID))
			}
		case cut = <-output:
			return 0, cut, nil, false
		case wish := <-w.wishes:
			if wish.Stop && !wish.Leave && ctx.Err() != nil { // for the next connection
				w.pending = &wish
				continue
			}
			if status, err, done = w.heed(ctx, wish); done {
				return status, nil, err, true
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
		if w.asked == nil {
			w.asked = &wish
		}
		go func() { _ = w.control.stop(ctx, wish.stopRequest()) }() // a dead coordinator shows in over
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
	if w.isOver() && !w.detach { // only its output was still to be shown; who wants to leave at the start did not wait for it
		w.view.Say(fmt.Sprintf("%s; run %s is over: muster report %s tells how it ended", wish.Reason, w.page.ID, w.page.ID))
		return wish.Exit, nil
	}
	if !w.isCommitted() {
		return wish.Exit, failure(wish.Exit, "%s before the start was confirmed: what was begun ends within the lease, unless the workers run already, which muster ps tells", wish.Reason)
	}
	w.view.Say(fmt.Sprintf("%s; run %s goes on: muster attach %s comes back to it, muster stop %s ends it", wish.Reason, w.page.ID, w.page.ID, w.page.ID))
	return wish.Exit, nil
}

// sendAll tells every agent where the coordinator is, and listens for those that cannot
// reach it. That a host is empty is told after what its agent had to say: it is the reason.
func (w *watch) sendAll(ctx context.Context, p *plan.Plan) {
	head := w.fleet.hosts[0]
	join := message.Join{Head: head.name, Coordinator: head.ready.Pin}
	for _, m := range p.Candidates() {
		join.Addrs = append(join.Addrs, net.JoinHostPort(m.Addr, strconv.Itoa(head.ready.Port)))
	}
	for _, h := range w.fleet.hosts {
		j := join
		j.Name = h.name
		_ = h.say(message.ToAgent{Join: &j}) // an agent that has ended shows in what it says
		go func() {
			w.listen(h)
			w.tellWhenEmpty(ctx, h)
		}()
	}
}

func (w *watch) listen(h *fleetHost) {
	for said := range h.words {
		if said.words.Error != "" {
			w.troubleAt(h, errors.New(said.words.Error))
		}
		if said.err != nil {
			if !w.hasLinked(h.name) {
				w.troubleAt(h, errors.New("the connection to it ended before it had joined the run"))
			}
			return
		}
	}
}

// hasLinked reports whether a host was seen to join its coordinator, and so needs this
// launcher no more.
func (w *watch) hasLinked(host string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.linked[host]
}

// troubleAt ends a run that has not started because a host cannot take part.
func (w *watch) troubleAt(h *fleetHost, err error) {
	w.mu.Lock()
	known := slices.ContainsFunc(w.trouble, func(e hostError) bool { return e.host == h.name })
	if !known { // what came first says why
		w.trouble = append(w.trouble, hostError{h.name, err})
	}
	w.mu.Unlock()
	if !w.isCommitted() {
		_ = w.control.stop(context.Background(), &pb.StopRequest{
			Kill: true, Unstarted: true, Exit: report.ExitUnreachable, Reason: h.name + " cannot take part",
		})
	}
}

// tellWhenEmpty tells the coordinator that the keeper of a host has ended by itself.
func (w *watch) tellWhenEmpty(ctx context.Context, h *fleetHost) {
	select {
	case <-h.gone:
	case <-ctx.Done():
		return
	}
	var lost *remote.LostError
	var killed *remote.ExitError
	switch {
	case errors.As(h.goneErr, &lost):
	case errors.As(h.goneErr, &killed) && killed.Signal != "": // its agent is still ending the workers
	default:
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
	w.seen = e.Seq
	if e.Kind == event.Linked {
		w.linked[e.Host] = true
	}
	if e.Kind == event.Lost && e.Silent {
		w.silent = append(w.silent, e.Host)
	}
	if e.Kind == event.Committed && !w.noted {
		w.noted = true
		close(w.commit)
	}
	w.mu.Unlock()
	if e.Seq > w.quiet {
		w.view.Event(e)
	}
}

// showOutput shows the output of the ranks that are wanted, from where it was shown before
// a lost connection. It closes reads once the run's end waits for it. An error is the
// coordinator's end, which shows where events are watched, or that it does not wait any longer.
func (w *watch) showOutput(ctx context.Context, reads chan<- struct{}) error {
	begun := sync.OnceFunc(func() { close(reads) })
	defer begun()
	request := &pb.LogsRequest{Tail: w.tail && len(w.shown) == 0, From: map[int32]uint64{}, Attempt: map[int32]int32{}}
	for rank := range w.page.WorldSize() {
		if !w.show.Has(rank) {
			continue
		}
		request.Ranks = append(request.Ranks, int32(rank))
		if s, ok := w.shown[rank]; ok {
			request.From[int32(rank)], request.Attempt[int32(rank)] = s.next, int32(s.attempt)
		} else if w.back && !w.tail { // all that it has written meanwhile
			request.From[int32(rank)], request.Attempt[int32(rank)] = 0, 0
		}
	}
	return w.control.logs(ctx, request, begun, func(c *pb.LogChunk) {
		w.view.Output(hostOf(w.page, c), int(c.Rank), c.Lane == 1, c.Data, c.End)
		if c.End {
			w.through[int(c.Rank)] = int(c.Attempt)
		} else {
			w.shown[int(c.Rank)] = shown{int(c.Attempt), c.Offset + uint64(len(c.Data))}
		}
	})
}

// hostOf is the name of the host that a piece of output is from.
func hostOf(page history.Run, c *pb.LogChunk) string {
	if c.Host != "" {
		return c.Host
	}
	host, _ := page.HostOf(int(c.Rank))
	return host.Name
}

// finish says how it ended and sees that nothing is left.
func (w *watch) finish() (int, error) {
	w.partFromSilent()
	left := w.dismiss(endWait)
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
	switch {
	case !committed && len(trouble) > 0 && r.Outcome == report.Stopped && r.Exit == report.ExitUnreachable: // this launcher's stop
		return 0, trouble.failure(len(w.page.Hosts))
	case !committed && w.lost != nil && r.Exit == report.ExitHangup:
		return 0, w.lostBeforeStart(w.lost)
	}
	w.view.Report(r)
	return r.Exit, nil
}

// partFromSilent ends the connections to hosts from which the end of their keeper will not
// be heard. The report names them.
func (w *watch) partFromSilent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.fleet.hosts {
		if slices.Contains(w.silent, h.name) {
			_ = h.remote.Close() // nothing is left to be told
		}
	}
}

// dismiss waits for the keepers to end, unless the user does not.
func (w *watch) dismiss(patience time.Duration) (left []string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		left = w.fleet.dismiss(patience)
	}()
	for {
		select {
		case <-done:
			return left
		case wish := <-w.wishes:
			if wish.Kill || wish.Leave {
				return w.fleet.alive()
			}
		}
	}
}

func (w *watch) leftBehind() string {
	return fmt.Sprintf("left run %s without waiting for its end; workers may still be ending on: %s",
		w.page.ID, strings.Join(w.fleet.alive(), " "))
}
