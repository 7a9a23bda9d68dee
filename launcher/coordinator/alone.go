package coordinator

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Independent ranks do not talk to each other: each starts, ends and restarts alone. Each
// place of the plan takes one after the other where there are tasks, else its own rank.

// places are the places of the plan, and what has not come to one yet.
type places struct {
	all      []*place
	next     int  // the first task that no place has taken
	draining bool // none is started any more
	failed   bool // a rank has failed for good
}

// place is a place of the plan.
type place struct {
	at   int
	rank int // that has it; nowhere: it is free
	// runs is set while the rank's worker does; else it is to be started.
	runs  bool
	due   link.Instant // before which it is not started
	empty *emptying    // of its device, after the worker before
	// blocked is set where a worker outlives SIGKILL: another would run beside it.
	blocked bool
}

// unit is what is known of an independent rank, or of a task.
type unit struct {
	trials   trials
	begun    link.Instant
	over     bool          // it is not started again
	cause    *report.Cause // why it failed for good; nil: it did not
	exit     int           // status that it asks for then
	failedAt link.Instant
	survived []string
	hung     *failure.Event // nothing moved in it, for which it is ended; nil: it was not found so
	astray   *report.Cause  // it was on another GPU than planned, for which it is ended; nil: it was not
}

// beginAlone makes the places and what is to come to them.
func (b *brain) beginAlone() {
	b.places = &places{}
	for i := range b.plan.Ranks {
		b.places.all = append(b.places.all, &place{at: i, rank: nowhere})
	}
	for range b.plan.World() {
		b.ranks = append(b.ranks, &rankState{place: nowhere, host: nowhere, alone: &unit{}})
	}
	if len(b.plan.Tasks) == 0 {
		for i, r := range b.plan.Ranks {
			b.ranks[i].place, b.ranks[i].host = i, r.Host
		}
	}
}

// advanceAlone fills places that are free, and ends the run when nothing is left to do.
func (b *brain) advanceAlone() {
	for _, p := range b.places.all {
		if p.runs && b.ranks[p.rank].lost {
			b.settle(p, b.hosts[b.plan.Ranks[p.at].Host].closed)
		}
		if b.phase != running {
			continue
		}
		if p.rank == nowhere {
			b.fill(p)
		}
		if p.rank != nowhere && !p.runs && b.isEmpty(&p.empty) && b.now >= p.due && b.sharing.served[b.plan.Ranks[p.at].Host] {
			b.startAlone(p)
		}
	}
	if b.allSettled() {
		b.done = b.now
		b.flagSurvived()
		b.phase = wrapping
		b.actions = append(b.actions, action{wrap: true})
	}
}

// fill gives a free place what comes next, if anything does.
func (b *brain) fill(p *place) {
	s := b.places
	switch {
	case s.draining || !b.isOpen(p):
	case len(b.plan.Tasks) == 0 && !b.ranks[p.at].alone.over:
		p.rank = p.at
	case len(b.plan.Tasks) > s.next:
		p.rank, s.next = s.next, s.next+1
	}
}

// isOpen reports whether something can be started in a place.
func (b *brain) isOpen(p *place) bool {
	return !p.blocked && b.hosts[b.plan.Ranks[p.at].Host].closed == nil
}

// startAlone starts the rank that has a place.
func (b *brain) startAlone(p *place) {
	r := b.ranks[p.rank]
	r.place, r.host = p.at, b.plan.Ranks[p.at].Host
	r.ended, r.started, r.log, r.lost = nil, false, "", false
	meeting := b.meeting()
	meeting.Attempt, meeting.Task, meeting.InForce = r.attempt, p.rank, r.alone.trials.inForce
	start := b.startOn(r.host, meeting)
	start.Alone = true
	if !b.addRank(start, p.rank, meeting) {
		return
	}
	p.runs, r.alone.begun = true, b.now
	if b.watch != nil {
		b.watch.Began(p.at, p.rank, b.now.Sub(b.begun).Seconds())
	}
	b.send(r.host, message.Command{Start: start})
	b.actions = append(b.actions, action{began: &beginning{r.attempt, p.rank}})
}

// endedAlone: an independent rank's worker ended. It is started again where a rule says so,
// in its place; else the place is free.
func (b *brain) endedAlone(rank int) {
	r := b.ranks[rank]
	p := b.places.all[r.place]
	if closed := b.hosts[r.host].closed; closed != nil && !endedWell(r.ended) {
		b.settle(p, closed)
		return
	}
	if r.alone.astray != nil { // it would go there again
		b.settle(p, r.alone.astray)
		return
	}
	r.alone.survived = b.survivedBy(rank)
	p.blocked = cannotBeKilled(r.ended)
	lost := b.lossOf(rank)
	if r.alone.hung != nil {
		lost = append(lost, *r.alone.hung)
		r.alone.hung = nil
	}
	if endedWell(r.ended) || !failedByItself(r.ended) && lost == nil {
		b.settle(p, nil) // what was lost or silent came too late to keep it from its end
		return
	}
	evidence := []failure.RankEvidence{b.evidenceOf(rank, r)}
	if !failedByItself(r.ended) { // the host has ended it for what it lost
		evidence = nil
	}
	found, _ := failure.First(evidence, lost)
	mayRestart := b.job.Restart != nil && !p.blocked && b.phase == running && !b.places.draining && !b.endsByHang(found)
	if mayRestart && b.decideOn(&r.alone.trials, found, r.alone.begun, r.at) {
		b.restartAlone(p)
		return
	}
	cause, exit := b.causeOf(found)
	r.alone.exit = exit
	b.settle(p, cause)
}

// restartAlone puts away how a rank ended, and has it started again when it is due.
func (b *brain) restartAlone(p *place) {
	r := b.ranks[p.rank]
	t := &r.alone.trials
	b.sayRestarting(t)
	end := b.endsOf(r)[0]
	end.Class, end.Message, end.Decision, end.Reason, end.Changes = t.cause.Class, t.cause.Message, "restart", t.decision.Reason, t.decision.Changes
	r.past = append(r.past, end)
	r.ended = nil
	r.attempt, r.observed = r.attempt+1, nil
	b.vacate(p)
	p.due = t.next
	if p.empty != nil { // it is looked at until then at least
		p.empty.patience = max(p.empty.patience, t.next.Sub(b.now))
	}
	if wait := t.decision.WaitMemory; wait > 0 {
		b.waitForDevice(p, time.Duration(wait*float64(time.Second)), true)
	}
}

// settle puts away a rank that is not started again; cause is why it failed, nil where it
// did not.
func (b *brain) settle(p *place, cause *report.Cause) {
	r := b.ranks[p.rank]
	u := r.alone
	u.over, u.trials = true, trials{decision: u.trials.decision}
	// It may have been started; whether, and how it ended, nobody can tell any more.
	r.started = r.started || p.runs && r.lost
	if cause != nil {
		u.failedAt = b.now
		if h := b.hosts[b.plan.Ranks[p.at].Host]; cause == h.closed {
			u.failedAt = h.closedAt
		}
		if b.places.failed { // the first is the run's: what the others had said is in their output
			cause = &report.Cause{Class: cause.Class, Message: cause.Message, Host: cause.Host, Rank: cause.Rank, Attempt: cause.Attempt}
		}
		b.places.failed = true
		u.cause = cause
		if u.exit == 0 {
			u.exit = lossExit(cause.Class)
		}
	}
	for _, end := range b.endsOf(r) {
		if cause != nil {
			end.Class, end.Message, end.Decision, end.Reason = cause.Class, cause.Message, "end", b.reasonOf(u)
		}
		r.past = append(r.past, end)
	}
	r.ended, r.started, r.lost, r.observed = nil, false, false, nil // there may be many, and a worker's last words are long
	b.vacate(p)
	p.rank = nowhere
}

// reasonOf is why a rank that failed is not started again.
func (b *brain) reasonOf(u *unit) string {
	switch {
	case u.trials.decision != nil && !u.trials.decision.Restart:
		return u.trials.decision.Reason
	case b.job.Restart == nil:
		return report.NoRestartBlock
	case b.stop != nil:
		return "the run is being ended: " + b.stop.reason
	}
	return u.cause.Message
}

// vacate has a place's device looked at before it is used again.
func (b *brain) vacate(p *place) {
	p.runs = false
	b.waitForDevice(p, emptyWait, false)
}

// waitForDevice has a place wait until its device is empty; others is set where those are
// waited for too that were there before.
func (b *brain) waitForDevice(p *place, patience time.Duration, others bool) {
	at := b.plan.Ranks[p.at]
	claims, _ := b.plan.Claims(at.Host)
	if at.Device == nil || b.phase != running || (len(claims) == 0 || b.job.MPS != nil) && !others {
		return // shared: who is there need not be in the way
	}
	p.empty = &emptying{began: b.now, patience: patience, others: others, only: at.Device.UUID, hosts: map[int]*emptyHost{}}
	b.includeInEmptying(p.empty, at.Host)
}

// allSettled reports whether no worker runs and none is to be started.
func (b *brain) allSettled() bool {
	for _, p := range b.places.all {
		if p.runs || p.rank != nowhere && b.phase == running {
			return false
		}
	}
	return b.phase != running || b.places.draining || !b.mayTake()
}

// mayTake reports whether something is left that a place could take.
func (b *brain) mayTake() bool {
	for _, p := range b.places.all {
		if b.isOpen(p) && (len(b.plan.Tasks) > b.places.next || len(b.plan.Tasks) == 0 && !b.ranks[p.at].alone.over) {
			return true
		}
	}
	return false
}

// drain has nothing more started; what runs ends by itself.
func (b *brain) drain() {
	b.places.draining = true
	run := 0
	for _, p := range b.places.all {
		switch {
		case p.runs:
			run++
		case p.rank != nowhere: // it waits to be started again
			p.rank = nowhere
		}
	}
	b.say(event.Event{Kind: event.Stopping, ByUser: true, Message: fmt.Sprintf("nothing more is started (%s); %d that run are let end", b.stop.reason, run)})
}

// closeHost has nothing more started on a host that is lost since at, and ends what runs
// there.
func (b *brain) closeHost(host int, at link.Instant, how, reason string) {
	h := b.hosts[host]
	if h.closed != nil {
		return
	}
	h.closedAt = at
	h.closed = &report.Cause{Class: how, Message: reason, Host: h.name}
	b.say(event.Event{Kind: event.Lost, Host: h.name, Message: reason, Silent: how == class.HostLost})
	if h.linked && !h.gone {
		b.send(host, message.Command{Stop: &message.Stop{Reason: reason}})
	}
	for _, p := range b.places.all {
		if b.plan.Ranks[p.at].Host == host && p.rank != nowhere && !p.runs {
			b.settle(p, h.closed)
		}
	}
}

// causeAlone is the failure that counts: of those that were for good, the first. A host that
// was lost counts where work was left undone thereby.
func (b *brain) causeAlone() (*report.Cause, int) {
	var first *unit
	undone := false
	for _, r := range b.ranks {
		u := r.alone
		undone = undone || !u.over
		if u.cause != nil && (first == nil || u.failedAt < first.failedAt) {
			first = u
		}
	}
	if first != nil {
		return first.cause, first.exit
	}
	for _, h := range b.hosts {
		if h.closed != nil && undone {
			return h.closed, lossExit(h.closed.Class)
		}
	}
	return nil, report.ExitOK
}

// undone counts what was not done because the user has wanted an end.
func (b *brain) undone() int {
	n := 0
	for _, r := range b.ranks {
		if o := outcomeOf(r); o == report.NotRun || o == report.Stopped {
			n++
		}
	}
	return n
}
