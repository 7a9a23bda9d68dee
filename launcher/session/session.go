// Package session is a launcher that stays with a run: it sends the hosts to their coordinator,
// follows events and output, comes back after a lost connection, reads what it has missed, and
// sees the run end. A session is a state machine: each state is a method that returns the next.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Observer shows a session to the user. Calls come from several goroutines.
type Observer interface {
	// Phase says what is being done now; it stands until the next one, "" ends it.
	Phase(text string)
	// Watching says which run is shown from now on.
	Watching(run string)
	// Event shows what happened.
	Event(e event.Event)
	// Output shows a piece of a worker's output as it came; end is set after the last.
	Output(host string, rank int, stderr bool, data []byte, end bool)
	// State shows where the run stands.
	State(run history.Run, s event.State)
	// Say shows a line of the launcher's own.
	Say(text string)
}

// Reach is how a session finds its run again.
type Reach interface {
	// Open connects to the coordinator. One that hangs is a *MuteError.
	Open(ctx context.Context) (*Live, error)
	// State asks the head host where the run stands.
	State(ctx context.Context) (event.State, error)
	// ReadOutput shows pieces of output from their files, and returns which hosts failed.
	ReadOutput(ctx context.Context, pieces map[history.Host][]string) fleet.HostErrors
}

// Live is a run that was found, with a connection to its coordinator while that runs.
type Live struct {
	Host    remote.Host
	Control *Client // nil: the run is over, or lost
	State   event.State
	Events  uint64 // how many State tells of
}

// Close ends the connections.
func (l *Live) Close() {
	if l.Control != nil {
		l.Control.Close()
	}
	_ = l.Host.Close()
}

// MuteError: a coordinator is there and answers nothing.
type MuteError struct {
	Run    history.Run
	Silent *SilentError
}

func (e *MuteError) Error() string {
	lease := e.Run.Lease
	if lease == 0 {
		lease = UsualLease
	}
	return fmt.Sprintf("the coordinator of run %s on %s does not answer (for %v): it is stopped or hangs.\nIts keeper ends it after the lease (%v), unless the kernel waits for a disk or a driver there; without it the agents end their workers.",
		e.Run.ID, e.Run.Head().Name, e.Silent.Passed, lease)
}

// Spec is what a session is made of.
type Spec struct {
	Run      history.Run
	History  history.Store
	Reach    Reach
	Observer Observer
	Requests <-chan Request
	Show     config.RankSet
	Detach   bool          // leave once the run belongs to the hosts
	Patience time.Duration // how long keepers may take to end once the coordinator is gone
}

// End is how a session has ended.
type End struct {
	Report *report.Report // nil: the launcher has left before
	Exit   int
}

// session is a launcher that stays with a run.
type session struct {
	Spec
	fleet   *fleet.Fleet
	control *Client
	seen    *observed
	output  *output
	known   uint64 // events up to this one are not shown: the user was told where the run stands
	isFirst bool   // the first connection is in use
	isFresh bool   // the run begins only when its output is read
	lost    error  // why the newest lost connection was lost

	pending *Request // to stop, made while there was no connection
	leaving *Request // to leave, made then
	stopped *Request // the first one to stop

	end End
	err error
}

// state is what a session does until something happens that makes it do something else. nil:
// the session has ended.
type state func(ctx context.Context) state

// Launch sends the hosts of a run that was just submitted to their coordinator, and stays until
// the run is over or the user has had enough.
func Launch(ctx context.Context, spec Spec, f *fleet.Fleet, control *Client, p *plan.Plan) (End, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSession(spec, f, control, false)
	s.isFresh = true
	s.join(ctx, p)
	return s.stay(ctx)
}

// Attach stays with a run that was launched earlier.
func Attach(ctx context.Context, spec Spec, live *Live) (End, error) {
	s := newSession(spec, fleet.Attached(spec.Run.Head().Name, live.Host), live.Control, true)
	s.known = live.Events
	return s.stay(ctx)
}

func newSession(spec Spec, f *fleet.Fleet, control *Client, tail bool) *session {
	return &session{Spec: spec, fleet: f, control: control, seen: newObserved(),
		output: newOutput(spec, tail), isFirst: true}
}

func (s *session) stay(ctx context.Context) (End, error) {
	s.Observer.Watching(s.Run.ID)
	defer func() { s.control.Close() }() // the one in use by then
	for next := state(s.follow); next != nil; {
		next = next(ctx)
	}
	return s.end, s.err
}

// fail ends the session with an error.
func (s *session) fail(exit int, format string, args ...any) state {
	s.err = report.Errorf(exit, format, args...)
	return nil
}

// streams are what comes over one connection to the coordinator. Each tells its end once.
type streams struct {
	events chan error // io.EOF: the run is over
	output chan error // why that may not be all
	silent chan error
}

func (s *session) listen(ctx context.Context) streams {
	c := streams{make(chan error, 1), make(chan error, 1), make(chan error, 1)}
	reads := make(chan struct{})
	go func() {
		if !s.isFresh { // a run that goes on can end before its output is read
			<-reads
		}
		if !s.isFirst {
			s.Observer.Say("connected again")
		}
		c.events <- s.control.Watch(ctx, s.seen.next(), func(e event.Event) {
			s.seen.take(e)
			if e.Seq > s.known {
				s.Observer.Event(e)
			}
		})
	}()
	go func() { c.silent <- s.control.beat(ctx, MaxSilence(s.Run.Lease), &pb.BeatRequest{}) }()
	go func() {
		begun := sync.OnceFunc(func() { close(reads) })
		defer begun()
		c.output <- s.control.Logs(ctx, s.output.request(s.isFirst), begun, s.output.show)
	}()
	return c
}

// follow is the state in which the connection stands: it shows what happens.
func (s *session) follow(outer context.Context) state {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	from := s.listen(ctx)
	committed := s.seen.committed
	for {
		select {
		case <-committed:
			committed = nil
			if s.Detach {
				return s.leave(Request{Reason: "detached"})
			}
		case s.lost = <-from.silent:
			cancel()
			<-from.events // what it has seen is the next connection's start
			if _, left := s.drain(ctx, from.output); left {
				return nil
			}
			return s.reconnect
		case err := <-from.events:
			isLost := !errors.Is(err, io.EOF) && !s.seen.isOver()
			if isLost {
				s.lost = err
				cancel()
			}
			cut, left := s.drain(ctx, from.output)
			switch {
			case left:
				return nil
			case isLost:
				return s.reconnect
			case cut != nil:
				s.output.catchUp(ctx, s.seen)
			}
			return s.finish()
		case r := <-s.Requests:
			if s.handle(ctx, r) {
				return nil
			}
		}
	}
}

// readerPatience is how long the output of a run that is over may take to be read before that
// is said.
const readerPatience = 5 * time.Second

// drain waits until the output that has arrived is shown, for which its reader may take as long
// as it likes. cut is why that may not be all; left is set when the user leaves before.
func (s *session) drain(ctx context.Context, output <-chan error) (cut error, left bool) {
	slow := time.After(readerPatience)
	for {
		select {
		case <-slow:
			if s.seen.isOver() {
				s.Observer.Say(fmt.Sprintf("run %s is over; the rest of its output waits for being read here, and muster logs %s has all of it", s.Run.ID, s.Run.ID))
			}
		case cut = <-output:
			return cut, false
		case r := <-s.Requests:
			if r.Stop && !r.Leave && ctx.Err() != nil { // for the next connection
				s.pending = &r
			} else if s.handle(ctx, r) {
				return nil, true
			}
		}
	}
}

// handle does what the user asks for; left is set when the session has ended with that.
func (s *session) handle(ctx context.Context, r Request) (left bool) {
	switch {
	case r.Detach && (s.seen.isCommitted() || r.Exit != 0):
		s.leave(r)
		return true
	case r.Detach:
		s.Observer.Say("the run has not begun yet; it can be left once its workers run")
	case r.Leave:
		s.fail(r.Exit, "left run %s without waiting for its end; workers may still be ending on: %s",
			s.Run.ID, strings.Join(s.fleet.Alive(), " "))
		return true
	case r.Stop:
		if s.stopped == nil {
			s.stopped = &r
		}
		s.stop(ctx, r)
	case r.State:
		s.Observer.State(s.Run, s.seen.snapshot())
	case r.Signal != "":
		control := s.control
		go func() { _, _ = control.client.Signal(ctx, &pb.SignalRequest{Name: r.Signal}) }()
	}
	return false
}

// stop passes a request on. A dead coordinator shows where events are watched.
func (s *session) stop(ctx context.Context, r Request) {
	control := s.control
	go func() { _ = control.Stop(ctx, r.stopRequest()) }()
}

// leave ends the session and lets the run go on.
func (s *session) leave(r Request) state {
	s.fleet.Leave()
	s.end.Exit = r.Exit
	switch {
	case s.seen.isOver() && !s.Detach: // only output was still to be shown, which --detach does not wait for
		s.Observer.Say(fmt.Sprintf("%s; run %s is over: muster report %s tells how it ended", r.Reason, s.Run.ID, s.Run.ID))
	case !s.seen.isCommitted():
		return s.fail(r.Exit, "%s before the start was confirmed: what was begun ends within the lease, unless the workers run already, which muster ps tells", r.Reason)
	default:
		s.Observer.Say(fmt.Sprintf("%s; run %s goes on: muster attach %s comes back to it, muster stop %s ends it", r.Reason, s.Run.ID, s.Run.ID, s.Run.ID))
	}
	return nil
}
