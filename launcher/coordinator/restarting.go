package coordinator

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/restart"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// trials are the attempts of a run so far, as far as they decide about another one.
type trials struct {
	past     []restart.Past
	inForce  restart.InForce
	decision *restart.Decision // about the attempt that has ended; nil: nothing was decided
	cause    *report.Cause     // of that attempt
	next     link.Instant      // when the next attempt may begin
}

// decide says whether an attempt that has failed is followed by another. What the user
// wanted, and what muster's own fault was, is not.
func (b *brain) decide() bool {
	b.trials.decision = nil
	b.flagSurvived()
	if b.stop != nil || b.job.Restart == nil || b.lost != nil && b.lost.Class == class.Internal || len(b.refusals) > 0 {
		return false
	}
	found, ok := b.diagnose()
	if !ok {
		return false
	}
	if rank := b.unkilled(); rank != nowhere {
		b.trials.decision = &restart.Decision{Reason: fmt.Sprintf("%s of the attempt before cannot be killed: another one would run beside it", b.rankWords(rank))}
		return false
	}
	if b.endsByHang(found) {
		b.trials.decision = &restart.Decision{Reason: "hang { action = \"stop\" } ends the run"}
		return false
	}
	return b.decideOn(&b.trials, found, b.begun, b.done)
}

// unkilled is a rank whose worker outlives SIGKILL; nowhere: there is none.
func (b *brain) unkilled() int {
	return slices.IndexFunc(b.ranks, func(r *rankState) bool { return r.ended != nil && cannotBeKilled(r.ended) })
}

// cannotBeKilled reports whether a worker is told of as ended that still is there.
func cannotBeKilled(e *message.Ended) bool { return e.Error != "" && e.Sent != "" }

// decideOn decides what follows a failure that has ended trials which began and ended then.
func (b *brain) decideOn(t *trials, found failure.Found, began, ended link.Instant) bool {
	failed := b.pastOf(found, t.inForce, began, ended)
	history := restart.History{Past: t.past, Failed: failed, InForce: t.inForce, Host: found.Host, Torch: b.hosts[0].software.Torch, MPS: b.job.MPS != nil}
	if b.places != nil {
		history.Of = b.plan.Unit()
	}
	if a := b.job.Allocator; a != nil {
		history.Expandable, history.MaxSplit = a.ExpandableSegments != nil, a.MaxSplitSize != nil
	}
	d := restart.Decide(history, found.Verdict, b.job.Restart.Rules(), b.now.Sub(0).Seconds())
	t.decision = &d
	t.cause, _ = b.causeOf(found)
	if d.Restart {
		failed.Rule = d.Rule
		t.past = append(t.past, failed)
		t.inForce = d.InForce
		t.next = b.now.Add(time.Duration(d.After * float64(time.Second)))
	}
	return d.Restart
}

// pastOf is what has ended as decisions are made of it. Times are those of the
// coordinator's boot clock.
func (b *brain) pastOf(found failure.Found, inForce restart.InForce, began, ended link.Instant) restart.Past {
	p := restart.Past{
		Began: began.Sub(0).Seconds(), Ended: ended.Sub(0).Seconds(), Class: found.Verdict.Class, Rule: restart.Unset,
		// Hosts, arguments and environment are those of the job but for what is in force.
		Situation: fmt.Sprintf("%v %s", inForce.Rules, inForce.Remedy),
	}
	if found.Rank != failure.NoRank && b.ranks[found.Rank].ended != nil {
		evidence := b.evidenceOf(found.Rank, b.ranks[found.Rank])
		p.Signature, p.Steps = failure.Signature(found.Verdict, evidence.Evidence), evidence.Steps
	} else {
		p.Signature = failure.Signature(found.Verdict, failure.Evidence{})
	}
	if told := b.furthestTold(); p.Steps == nil {
		p.Steps = told
	}
	return p
}

// restartAfterFailure puts the failed attempt away and makes for the next one.
func (b *brain) restartAfterFailure() {
	d := b.trials.decision
	b.sayRestarting(&b.trials)
	b.putAway(report.Attempt{Class: b.trials.cause.Class, Decision: "restart", Reason: d.Reason, Changes: changesOf(d), Message: b.trials.cause.Message})
	if d.WaitMemory > 0 {
		b.waitForMemory(time.Duration(d.WaitMemory * float64(time.Second)))
	}
}

// sayRestarting tells that what has failed is started again.
func (b *brain) sayRestarting(t *trials) {
	d, wait := t.decision, ""
	if d.After >= 1 {
		wait = fmt.Sprintf(" in %v", time.Duration(d.After*float64(time.Second)).Round(time.Second))
	}
	b.say(event.Event{Kind: event.Restarting, Host: t.cause.Host, Rank: t.cause.Rank,
		Message: fmt.Sprintf("%s (%s); starting again%s: %s", t.cause.Message, t.cause.Class, wait, d.Reason)})
}

func changesOf(d *restart.Decision) map[string]string {
	changes := map[string]string{"MASTER_PORT": "another"}
	for name, value := range d.Changes {
		changes[name] = value
	}
	return changes
}

// putAway keeps the ended attempt for the report and takes a port for the next.
func (b *brain) putAway(a report.Attempt) {
	a.Attempt, a.Started, a.Ended, a.Outcome = b.attempt, b.wall(b.begun), b.wall(b.done), report.Failed
	b.past = append(b.past, a)
	for _, r := range b.ranks {
		*r = rankState{place: r.place, host: r.host, attempt: b.attempt + 1, past: append(r.past, b.endsOf(r)...)}
	}
	b.attempt++
	b.memory.said = map[string]bool{}
	b.again, b.port, b.phase = "", 0, restarting
	b.lost, b.earlySaid, b.noticed = nil, false, 0
	b.beginEmptying()
	b.serveAll()
	b.send(0, message.Command{HoldPort: &message.HoldPort{Attempt: b.attempt, First: b.firstPort, Last: b.lastPort}})
}
