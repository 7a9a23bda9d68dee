package diagnosis

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/restart"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Trials are the attempts so far of what is started again together, as far as they decide about another one.
type Trials struct {
	Of       string // what one is called, where each rank has its own; "": all ranks start together
	InForce  restart.InForce
	Decision *restart.Decision // about the attempt that has ended; nil: nothing was decided
	Cause    *report.Cause     // of that attempt's end
	Next     link.Instant      // when the next attempt may begin
	past     []restart.Past
}

// HangEnds reports whether a failure is a hang that the job file wants no restart after.
func (d *Diagnosis) HangEnds(found failure.Found) bool {
	block := d.run.Job.Hang
	return found.Verdict.Class == class.Hang && block != nil && block.Action == config.HangStop
}

// Decide decides what follows a failure that has ended an attempt, and reports whether that is another one.
func (d *Diagnosis) Decide(t *Trials, found failure.Found, began, ended link.Instant) bool {
	failed := d.past(t, found, began, ended)
	history := restart.History{
		Past: t.past, Failed: failed, InForce: t.InForce, Host: found.Host, Torch: d.run.Hosts[0].Software.Torch,
		MPS: d.run.Job.MPS != nil, Of: t.Of,
	}
	if a := d.run.Job.Allocator; a != nil {
		history.Expandable, history.MaxSplit = a.ExpandableSegments != nil, a.MaxSplitSize != nil
	}
	decision := restart.Decide(history, found.Verdict, d.run.Job.Restart.Rules(), d.run.Now.Sub(0).Seconds())
	t.Decision = &decision
	t.Cause, _ = d.Cause(found)
	if decision.Restart {
		failed.Rule = decision.Rule
		t.past = append(t.past, failed)
		t.InForce = decision.InForce
		t.Next = d.run.Now.Add(time.Duration(decision.After * float64(time.Second)))
	}
	return decision.Restart
}

// past is what has ended as decisions are made of it. Times are those of the coordinator's boot clock.
func (d *Diagnosis) past(t *Trials, found failure.Found, began, ended link.Instant) restart.Past {
	p := restart.Past{
		Began: began.Sub(0).Seconds(), Ended: ended.Sub(0).Seconds(), Class: found.Verdict.Class, Rule: restart.Unset,
		// Hosts, arguments and environment are those of the job but for what is in force.
		Situation: fmt.Sprintf("%v %s", t.InForce.Rules, t.InForce.Remedy),
	}
	evidence := failure.Evidence{}
	if found.Rank != failure.NoRank && d.run.Ranks[found.Rank].Ended != nil {
		evidence = d.Evidence(found.Rank).Evidence
	}
	p.Signature, p.Steps = failure.Signature(found.Verdict, evidence), evidence.Steps
	if p.Steps == nil && t.Of == "" {
		p.Steps = d.furthest()
	}
	return p
}

// furthest is how far the run was by what any worker of the attempt has reported: often one rank reports for all.
func (d *Diagnosis) furthest() *failure.Steps {
	var found *failure.Steps
	for _, k := range d.run.Ranks {
		s := failure.StepsReported(k.Observed)
		if s != nil && (found == nil || s.Furthest.Compare(found.Furthest) > 0) {
			found = s
		}
	}
	return found
}

// SayRestarting reports that what has failed is started again.
func (d *Diagnosis) SayRestarting(t *Trials) {
	wait := ""
	if t.Decision.After >= 1 {
		wait = fmt.Sprintf(" in %v", time.Duration(t.Decision.After*float64(time.Second)).Round(time.Second))
	}
	d.run.Say(event.Event{
		Kind: event.Restarting, Host: t.Cause.Host, Rank: t.Cause.Rank,
		Message: fmt.Sprintf("%s (%s); starting again%s: %s", t.Cause.Message, t.Cause.Class, wait, t.Decision.Reason),
	})
}
