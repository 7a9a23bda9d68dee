// Package tasks is the state machine of independent ranks: each starts, ends and is started again by itself. A place
// of the plan takes one task after the other, or its own rank where there are no tasks.
package tasks

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/diagnosis"
	"github.com/muster-dev/muster/launcher/coordinator/machine"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/watch"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Tasks is a run of independent ranks.
type Tasks struct {
	*machine.Machine
	units    []*unit  // by rank
	places   []*place // of the plan
	closed   closedHosts
	next     int  // the first task that no place has taken
	draining bool // nothing more is started
	failed   bool // a rank has failed for good
}

// unit is a rank's own story.
type unit struct {
	trials    diagnosis.Trials
	over      bool          // it is not started again
	cause     *report.Cause // why it failed for good; nil: it did not
	exit      int           // the run's exit status for that
	failedAt  link.Instant
	survived  []string
	hung      *failure.Event // nothing moves in it, for which it is being ended
	misplaced *report.Cause  // it is on another GPU than planned, for which it is being ended
}

// place is a place of the plan. Run.At has the rank that it has.
type place struct {
	at      int
	host    int
	runs    bool         // the rank's worker does; else it is to be started
	due     link.Instant // before which it is not started
	wait    *watch.Wait  // for its device to be empty
	blocked bool         // a worker outlives SIGKILL: another would run beside it
}

// closedHosts are lost: nothing more is started there.
type closedHosts map[int]run.Loss

// cause is why nothing is started on a host any more; nil: it is.
func (c closedHosts) cause(host int) *report.Cause { return c[host].Cause }

// New is the machine of independent ranks.
func New(r *run.Run) *Tasks {
	t := &Tasks{closed: closedHosts{}}
	r.Ranks = nil
	for i, at := range r.Plan.Ranks {
		t.places = append(t.places, &place{at: i, host: at.Host})
		r.At[i] = run.Nowhere
	}
	for i := range r.Plan.World() {
		k := &run.Rank{Place: run.Nowhere, Host: run.Nowhere}
		if len(r.Plan.Tasks) == 0 {
			k.Place, k.Host = i, r.Plan.Ranks[i].Host
		}
		r.Ranks = append(r.Ranks, k)
		t.units = append(t.units, &unit{trials: diagnosis.Trials{Of: r.Plan.Unit()}})
	}
	t.Machine = machine.New(r, t, false)
	return t
}

// Begin fills the places for the first time.
func (t *Tasks) Begin() { t.Advance() }

// Advance fills places that are free, and ends the run when nothing is left to do.
func (t *Tasks) Advance() {
	for _, p := range t.places {
		if p.runs && t.Ranks[t.At[p.at]].Lost {
			t.settle(p, t.closed.cause(p.host))
		}
		if t.Phase != run.Running {
			continue
		}
		if t.At[p.at] == run.Nowhere {
			t.fill(p)
		}
		if t.At[p.at] != run.Nowhere && !p.runs && t.isReady(p) {
			t.start(p)
		}
	}
	if t.allSettled() {
		t.Done = t.Now
		diagnosis.WarnSurvived(t.Run, func(rank int) []string { return t.units[rank].survived })
		t.Wrap()
	}
}

// isReady reports whether the rank that has a place may be started.
func (t *Tasks) isReady(p *place) bool {
	if !t.Clearing.Over(p.wait) {
		return false
	}
	p.wait = nil
	return t.Now >= p.due && t.MPS.IsServed(p.host)
}

// fill gives a free place what comes next, if anything does.
func (t *Tasks) fill(p *place) {
	switch {
	case t.draining || !t.isOpen(p):
	case len(t.Plan.Tasks) == 0 && !t.units[p.at].over:
		t.At[p.at] = p.at
	case len(t.Plan.Tasks) > t.next:
		t.At[p.at], t.next = t.next, t.next+1
	}
}

// isOpen reports whether anything can be started in a place.
func (t *Tasks) isOpen(p *place) bool { return !p.blocked && t.closed.cause(p.host) == nil }

// start starts the rank that has a place.
func (t *Tasks) start(p *place) {
	rank := t.At[p.at]
	k := t.Ranks[rank]
	k.Place, k.Host = p.at, p.host
	k.Ended, k.Started, k.Log, k.Lost = nil, false, "", false
	meeting := t.PlanMeeting()
	meeting.Attempt, meeting.Task, meeting.InForce = k.Attempt, rank, t.units[rank].trials.InForce
	start := t.Start(p.host, []int{rank}, meeting)
	if start == nil {
		return
	}
	start.Alone = true
	p.runs, k.Begun = true, t.Now
	t.Placement.Started(p.at, rank)
	t.Send(p.host, message.Command{Start: start})
	t.Do(run.Action{Began: &run.Began{Attempt: k.Attempt, Ranks: []int{rank}}})
}

// Output is which attempts of a rank somebody may read who comes now.
func (t *Tasks) Output(rank int) (run.Output, bool) {
	k := t.Ranks[rank]
	over := t.units[rank].over
	last := k.Attempt
	if !over && k.Asked && !t.places[k.Place].runs { // it waits to be started again
		last--
	}
	return run.Output{Last: last, Over: over}, k.Asked
}

// Handle handles what has happened.
func (t *Tasks) Handle(occurrence any) {
	switch o := occurrence.(type) {
	case machine.Ended:
		t.ended(o.Rank)
	case machine.HostLost:
		t.hostLost(o)
	case machine.MPSLost:
		if t.Phase == run.Running {
			t.MPS.Serve(o.Host)
		}
	case machine.Misplaced:
		t.stopMisplaced(o)
	case machine.Hung:
		t.units[o.Of].hung = &failure.Event{
			Class: class.Hang, Message: o.Message, Host: o.Cause.Host, Rank: o.Of, At: t.Since(o.At),
			Evidence: o.Evidence, Advice: o.Advice,
		}
		t.stopOne(o.Of, "it hangs")
	case run.Stop:
		if o.Drain {
			t.drain()
		} else {
			t.StopAll(o.Reason, o.Kill)
		}
	}
}

// Tick lets time pass.
func (t *Tasks) Tick() {}

func (t *Tasks) stopOne(rank int, reason string) {
	t.Send(t.Ranks[rank].Host, message.Command{Stop: &message.Stop{Reason: reason, Ranks: []int{rank}}})
}

// stopMisplaced ends a rank that is not where it should be: the others have nothing to do with it.
func (t *Tasks) stopMisplaced(o machine.Misplaced) {
	if o.Rank == nil {
		if t.Lost == nil {
			t.Lost = &run.Loss{Cause: o.Cause, At: t.Now}
			t.StopAll(o.Message, false)
		}
		return
	}
	if u := t.units[*o.Rank]; u.misplaced == nil && !u.over {
		o.Cause.Attempt = t.Ranks[*o.Rank].Attempt
		u.misplaced = o.Cause
		t.stopOne(*o.Rank, "it is on another GPU than planned")
	}
}

// drain has nothing more started; what runs ends by itself.
func (t *Tasks) drain() {
	t.draining = true
	n := 0
	for _, p := range t.places {
		if p.runs {
			n++
		} else { // it may wait to be started again
			t.At[p.at] = run.Nowhere
		}
	}
	t.Say(event.Event{
		Kind: event.Stopping, ByUser: true,
		Message: fmt.Sprintf("nothing more is started (%s); %d that run are let end", t.Stop.Reason, n),
	})
}

// hostLost has nothing more started on a host, and ends what runs there.
func (t *Tasks) hostLost(o machine.HostLost) {
	if o.Late {
		return
	}
	h := t.Hosts[o.Host]
	if t.closed.cause(o.Host) == nil {
		cause := &report.Cause{Class: o.Class, Message: o.Message, Host: h.Name}
		t.closed[o.Host] = run.Loss{Cause: cause, At: o.At}
		t.Say(event.Event{Kind: event.Lost, Host: h.Name, Message: o.Message, Silent: o.Class == class.HostLost})
		if h.Present() {
			t.Send(o.Host, message.Command{Stop: &message.Stop{Reason: o.Message}})
		}
		for _, p := range t.places {
			if p.host == o.Host && t.At[p.at] != run.Nowhere && !p.runs {
				t.settle(p, cause)
			}
		}
	}
	if o.Head {
		t.Lost = &run.Loss{Cause: t.closed.cause(o.Host), At: o.At}
		t.StopAll(o.Message, false)
	}
}

// clear has a place's device watched before it is used again; others is set where those are waited for too that were
// there before.
func (t *Tasks) clear(p *place, patience time.Duration, others bool) {
	if w := t.Clearing.Device(t.Plan.Ranks[p.at], patience, others); w != nil {
		t.Clearing.Drop(p.wait)
		p.wait = w
	}
}

// allSettled reports whether no worker runs and none is to be started.
func (t *Tasks) allSettled() bool {
	more := false // something is left that a place could take
	for _, p := range t.places {
		if p.runs || t.At[p.at] != run.Nowhere && t.Phase == run.Running {
			return false
		}
		left := len(t.Plan.Tasks) > t.next || len(t.Plan.Tasks) == 0 && !t.units[p.at].over
		more = more || left && t.isOpen(p)
	}
	return t.Phase != run.Running || t.draining || !more
}
