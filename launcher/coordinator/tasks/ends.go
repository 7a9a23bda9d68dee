package tasks

import (
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/diagnosis"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/watch"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/report"
)

// ended: a worker has ended. It is started again where a rule says so, in its place; else the place is free.
func (t *Tasks) ended(rank int) {
	k, u := t.Ranks[rank], t.units[rank]
	p := t.places[k.Place]
	if closed := t.closed.cause(p.host); closed != nil && !run.Succeeded(k.Ended) {
		t.settle(p, closed)
		return
	}
	if u.misplaced != nil { // it would go there again
		t.settle(p, u.misplaced)
		return
	}
	u.survived = t.Diagnosis.Survived(rank)
	p.blocked = run.Unkillable(k.Ended)
	lost := t.MPS.LossOf(rank, k.Begun)
	if u.hung != nil {
		lost = append(lost, *u.hung)
		u.hung = nil
	}
	failed := run.FailedByItself(k.Ended)
	if run.Succeeded(k.Ended) || !failed && lost == nil {
		t.settle(p, nil) // what was lost or silent came too late to keep it from its end
		return
	}
	var evidence []failure.RankEvidence
	if failed { // else the host has ended it for what it lost
		evidence = append(evidence, t.Diagnosis.Evidence(rank))
	}
	found, _ := failure.First(evidence, lost)
	goesOn := t.Phase == run.Running && !t.draining && !p.blocked
	goesOn = goesOn && t.Job.Restart != nil && !t.Diagnosis.HangEnds(found)
	if goesOn && t.Diagnosis.Decide(&u.trials, found, k.Begun, k.At) {
		t.restart(p)
		return
	}
	cause, exit := t.Diagnosis.Cause(found)
	u.exit = exit
	t.settle(p, cause)
}

// restart keeps how a rank ended, and has it started again when it is due.
func (t *Tasks) restart(p *place) {
	rank := t.At[p.at]
	k, trials := t.Ranks[rank], &t.units[rank].trials
	t.Diagnosis.SayRestarting(trials)
	end := t.EndsOf(k)[0]
	end.Class, end.Message, end.Decision = trials.Cause.Class, trials.Cause.Message, "restart"
	end.Reason, end.Changes = trials.Decision.Reason, trials.Decision.Changes
	k.Past = append(k.Past, end)
	k.Ended, k.Started, k.Log, k.Observed = nil, false, "", nil
	k.Attempt++
	p.runs, p.due = false, trials.Next
	t.clear(p, watch.Patience, false)
	p.wait.AtLeast(trials.Next.Sub(t.Now)) // it is watched until then
	if wait := trials.Decision.WaitMemory; wait > 0 {
		t.clear(p, time.Duration(wait*float64(time.Second)), true)
	}
}

// settle keeps how a rank ended that is not started again; cause is why it failed, nil where it did not.
func (t *Tasks) settle(p *place, cause *report.Cause) {
	rank := t.At[p.at]
	k, u := t.Ranks[rank], t.units[rank]
	u.over, u.trials = true, diagnosis.Trials{Decision: u.trials.Decision} // there may be many, and their past is long
	// It may have been started; whether, and how it ended, nobody can say any more.
	k.Started = k.Started || p.runs && k.Lost
	if cause != nil {
		u.failedAt = t.Now
		if closed := t.closed[p.host]; cause == closed.Cause {
			u.failedAt = closed.At
		}
		if t.failed { // the first is the run's: the last output of the others is in their logs
			cause = &report.Cause{
				Class: cause.Class, Message: cause.Message, Host: cause.Host, Rank: cause.Rank, Attempt: cause.Attempt,
			}
		}
		t.failed, u.cause = true, cause
		if u.exit == 0 {
			u.exit = run.LossExit(cause.Class)
		}
	}
	for _, end := range t.EndsOf(k) {
		if cause != nil {
			end.Class, end.Message, end.Decision, end.Reason = cause.Class, cause.Message, "end", t.reason(u)
		}
		k.Past = append(k.Past, end)
	}
	k.Ended, k.Started, k.Lost, k.Observed = nil, false, false, nil // there may be many, and evidence is long
	p.runs = false
	t.clear(p, watch.Patience, false)
	t.At[p.at] = run.Nowhere
}

// reason is why a rank that failed is not started again.
func (t *Tasks) reason(u *unit) string {
	switch {
	case u.trials.Decision != nil && !u.trials.Decision.Restart:
		return u.trials.Decision.Reason
	case t.Job.Restart == nil:
		return report.NoRestartBlock
	case t.Stop != nil:
		return "the run is being ended: " + t.Stop.Reason
	}
	return u.cause.Message
}

// Cause is the failure that counts: of those that were for good, the first. A host that was lost counts where work was
// left undone thereby.
func (t *Tasks) Cause() (*report.Cause, int) {
	if first, undone := t.firstFailed(); first != nil {
		return first.cause, first.exit
	} else if undone {
		for host := range t.Hosts {
			if c := t.closed.cause(host); c != nil {
				return c, run.LossExit(c.Class)
			}
		}
	}
	if t.Lost != nil {
		return t.Lost.Cause, run.LossExit(t.Lost.Class)
	}
	return nil, report.ExitOK
}

// firstFailed is the rank that failed for good first; undone is set where one has not come to its end.
func (t *Tasks) firstFailed() (first *unit, undone bool) {
	for _, u := range t.units {
		undone = undone || !u.over
		if u.cause != nil && (first == nil || u.failedAt < first.failedAt) {
			first = u
		}
	}
	return first, undone
}

// Failed reports whether work has failed or was left undone for a lost host.
func (t *Tasks) Failed() bool {
	c, _ := t.Cause()
	return c != nil
}

// Undone counts what was not done because the user has wanted an end.
func (t *Tasks) Undone() (n int) {
	for rank := range t.Ranks {
		if o := t.Outcome(rank); o == report.NotRun || o == report.Stopped {
			n++
		}
	}
	return n
}

// Outcome is what became of a rank.
func (t *Tasks) Outcome(rank int) string {
	ends, u := t.Ranks[rank].Past, t.units[rank]
	switch {
	case u.cause != nil:
		return report.Failed
	case len(ends) == 0:
		return report.NotRun
	case !u.over, ends[len(ends)-1].StoppedByMuster != "", ends[len(ends)-1].Error != "":
		return report.Stopped
	}
	return report.OK
}

// Reason is why no attempt of the rank follows that the run has failed for.
func (t *Tasks) Reason(c *report.Cause) string {
	if c.Rank == nil {
		return report.NoRestartBlock
	}
	return t.reason(t.units[*c.Rank])
}
