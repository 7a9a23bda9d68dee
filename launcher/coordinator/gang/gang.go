// Package gang is the state machine of ranks that work together: they start together, the first that fails ends all,
// and they are started again together.
package gang

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/diagnosis"
	"github.com/muster-dev/muster/launcher/coordinator/machine"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/restart"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// causeWait is how long the others may run on when a rank has failed that only noticed another's end: the one
	// with the reason may be about to say it.
	causeWait = 2 * time.Second
	// maxPortRetries bounds how often a run is started again because its port was taken. It is no part of any other
	// budget: the job has done nothing wrong.
	maxPortRetries = 3
)

// Gang is a run whose ranks need each other.
type Gang struct {
	*machine.Machine
	began     bool
	trials    diagnosis.Trials
	takenPort string // why another attempt follows although no rule says so; "": none does
	ports     int    // attempts that ended because their port was taken
	noticed   link.Instant
	noticedBy int  // the rank that at noticed failed first because of another's end; noticed is 0 while none has
	earlySaid bool // that some ranks have ended and others run on
}

// New is the machine of a gang.
func New(r *run.Run) *Gang {
	g := &Gang{}
	g.Machine = machine.New(r, g, true)
	return g
}

// Begin starts all workers.
func (g *Gang) Begin() {
	g.began = true
	g.Driver.Begin()
	meeting := g.PlanMeeting()
	var all []int
	for i, h := range g.Plan.Hosts {
		var ranks []int
		for rank := h.FirstRank; rank < h.FirstRank+h.Ranks; rank++ {
			ranks = append(ranks, rank)
		}
		start := g.Start(i, ranks, meeting)
		if start == nil {
			return
		}
		g.Send(i, message.Command{Start: start})
		all = append(all, ranks...)
	}
	g.Do(run.Action{Began: &run.Began{Attempt: g.Attempt, Ranks: all}})
	g.SendPace()
}

// Output is which attempts of a rank somebody may read who comes now.
func (g *Gang) Output(rank int) (run.Output, bool) {
	return run.Output{First: g.Attempt, Last: g.Attempt}, g.began
}

// Advance goes on once all workers have ended.
func (g *Gang) Advance() {
	if g.Phase == run.Restarting {
		g.tryRestart()
		return
	}
	if !g.AllEnded() {
		return
	}
	g.Done = g.Now
	g.Memory.Balance()
	switch {
	case g.takenPort != "" && g.Stop == nil && g.Lost == nil:
		g.nextAttempt(report.Attempt{Class: class.Port, Reason: g.takenPort})
	case g.decide():
		g.Diagnosis.SayRestarting(&g.trials)
		d, cause := g.trials.Decision, g.trials.Cause
		g.nextAttempt(report.Attempt{Class: cause.Class, Reason: d.Reason, Changes: d.Changes, Message: cause.Message})
		if d.WaitMemory > 0 {
			g.Clearing.WithOthers(g.Wait, time.Duration(d.WaitMemory*float64(time.Second)))
		}
	default:
		g.Wrap()
	}
}

// decide decides whether an attempt that has failed is followed by another. What the user wanted, and what was
// muster's own fault, is not.
func (g *Gang) decide() bool {
	g.trials.Decision = nil
	diagnosis.WarnSurvived(g.Run, g.Diagnosis.Survived)
	if g.Stop != nil || g.Job.Restart == nil || g.Lost != nil && g.Lost.Class == class.Internal || len(g.Refusals) > 0 {
		return false
	}
	found, ok := g.Diagnosis.First()
	if !ok {
		return false
	}
	unkillable := slices.IndexFunc(g.Ranks, func(k *run.Rank) bool { return k.Ended != nil && run.Unkillable(k.Ended) })
	switch {
	case unkillable >= 0:
		g.trials.Decision = &restart.Decision{Reason: g.RankName(unkillable) +
			" of the attempt before cannot be killed: another one would run beside it"}
		return false
	case g.Diagnosis.HangEnds(found):
		g.trials.Decision = &restart.Decision{Reason: "hang { action = \"stop\" } ends the run"}
		return false
	}
	again := g.Diagnosis.Decide(&g.trials, found, g.Begun, g.Done)
	g.InForce = g.trials.InForce
	return again
}

// nextAttempt keeps the ended attempt for the report and gathers the ranks for another.
func (g *Gang) nextAttempt(a report.Attempt) {
	changes := map[string]string{"MASTER_PORT": "another"}
	for name, value := range a.Changes {
		changes[name] = value
	}
	a.Attempt, a.Started, a.Ended, a.Outcome = g.Attempt, g.Wall(g.Begun), g.Wall(g.Done), report.Failed
	a.Decision, a.Changes = "restart", changes
	g.Record.Attempts = append(g.Record.Attempts, a)
	for _, k := range g.Ranks {
		*k = run.Rank{Place: k.Place, Host: k.Host, Attempt: g.Attempt + 1, Past: append(k.Past, g.EndsOf(k)...)}
	}
	g.NextAttempt()
	g.takenPort, g.earlySaid, g.noticed = "", false, 0
	g.ClearAll(g.trials.Next.Sub(g.Now))
	g.MPS.ServeAll()
	g.HoldPort()
}

// tryRestart starts the next attempt once its devices are empty and there is a port.
func (g *Gang) tryRestart() {
	if len(g.Refusals) > 0 {
		g.Wrap()
		return
	}
	if !g.Cleared() || !g.Meeting.MayCommit() || g.Now < g.trials.Next || !g.MPS.AllServed() {
		return
	}
	g.Phase, g.Begun = run.Running, g.Now
	g.Say(event.Event{
		Kind: event.Meeting, Host: g.Hosts[0].Name,
		Message: fmt.Sprintf("attempt %d: ranks meet at %s:%d", g.Attempt, g.Meeting.Master(), g.Meeting.Port()),
	})
	g.Placement.Begin()
	g.Begin()
}

// Handle handles what has happened.
func (g *Gang) Handle(occurrence any) {
	switch o := occurrence.(type) {
	case machine.Ended:
		if g.Phase == run.Running && run.FailedByItself(g.Ranks[o.Rank].Ended) && !g.portWasTaken(o.Rank) {
			g.stopAfter(o.Rank)
		}
	case machine.HostLost:
		g.hostLost(o)
	case machine.MPSLost:
		if g.Stop != nil || g.Lost != nil {
			return
		}
		cause := &report.Cause{
			Class: o.Class(), Message: o.Loss.Host + ": " + o.Message, Host: o.Loss.Host, Attempt: g.Attempt,
			Evidence: o.Lines, Log: o.Log,
		}
		g.lose(cause, o.At, o.Message)
	case machine.Misplaced:
		g.lose(o.Cause, g.Now, o.Message)
	case machine.Hung:
		g.lose(o.Cause, o.At, "nothing moves any more")
	case run.Stop:
		g.StopAll(o.Reason, o.Kill)
	}
}

// lose ends the run, or the attempt, for a cause since at.
func (g *Gang) lose(cause *report.Cause, at link.Instant, reason string) {
	g.Lost = &run.Loss{Cause: cause, At: at}
	if g.Phase == run.Running || g.Phase == run.Restarting {
		g.StopAll(reason, false)
	}
}

// hostLost: a host is no part of the run any more, which ends it for the others.
func (g *Gang) hostLost(o machine.HostLost) {
	name := g.Hosts[o.Host].Name
	cause := &report.Cause{Class: o.Class, Message: o.Message, Host: name, Attempt: g.Attempt}
	switch {
	case !o.Late:
		g.Say(event.Event{Kind: event.Lost, Host: name, Message: o.Message, Silent: o.Class == class.HostLost})
		g.lose(cause, o.At, name+" is lost")
	case g.Stop == nil && g.Lost == nil && g.Phase == run.Stopping:
		// A host that is silent since before a worker failed was lost first, and the failure comes of that. It was due
		// a heartbeat after it was last heard.
		g.Lost = &run.Loss{Cause: cause, At: o.At.Add(link.HeartbeatOf(g.Job.Lease))}
	}
}

// stopAfter stops the others because a rank has failed; at once where it is the reason.
func (g *Gang) stopAfter(rank int) {
	if !g.Diagnosis.Classify(rank).Consequence || g.AllEnded() {
		g.StopAll(fmt.Sprintf("rank %d failed", rank), false)
		return
	}
	if g.noticed == 0 {
		g.noticed, g.noticedBy = g.Now, rank
	}
}

// portWasTaken reports whether a rank failed because somebody else took MASTER_PORT between muster's release of it
// and rank 0's listening, and if so has the attempt ended and another one follow.
func (g *Gang) portWasTaken(rank int) bool {
	if rank != 0 || g.ports >= maxPortRetries || !saysPortTaken(g.Ranks[0].Ended.Tail, g.Meeting.Port()) {
		return false
	}
	g.ports++
	g.takenPort = fmt.Sprintf("port %d was taken by another program before rank 0 listened on it", g.Meeting.Port())
	g.StopAll(g.takenPort+"; starting again with another one", false)
	return true
}

// saysPortTaken looks for what PyTorch's store and other servers say of a port in use, with the port itself: a
// program's own trouble with another port is its own.
func saysPortTaken(tail []byte, port int) bool {
	inUse := bytes.Contains(tail, []byte("EADDRINUSE")) || bytes.Contains(tail, []byte("ddress already in use"))
	return inUse && bytes.Contains(tail, fmt.Append(nil, port))
}

// Tick lets time pass.
func (g *Gang) Tick() {
	g.checkEarlyExit()
	if g.Phase == run.Running && g.noticed != 0 && g.Now.Sub(g.noticed) >= causeWait {
		g.StopAll(fmt.Sprintf("rank %d failed", g.noticedBy), false)
	}
}

// checkEarlyExit reports ranks that ended well while others run on, which usually wait for them in vain, and ends the
// run when that lasts.
func (g *Gang) checkEarlyExit() {
	if g.Phase != run.Running {
		return
	}
	var ended, others []int
	var since link.Instant
	for rank, k := range g.Ranks {
		if k.Ended == nil {
			others = append(others, rank)
			continue
		}
		if ended = append(ended, rank); since == 0 || k.At < since {
			since = k.At
		}
	}
	if len(ended) == 0 || len(others) == 0 {
		return
	}
	passed, verb, early := g.Now.Sub(since), "run", g.Job.EarlyExit
	if len(others) == 1 {
		verb = "runs"
	}
	text := fmt.Sprintf("%s ended well %v ago, but %s still %s",
		g.ListRanks(ended), passed.Round(time.Second), g.ListRanks(others), verb)
	switch {
	case passed >= early.Limit:
		cause := &report.Cause{Class: class.EarlyExit, Message: text, Attempt: g.Attempt}
		g.lose(cause, g.Now, text+" (early_exit limit)")
	case passed >= early.Notice && !g.earlySaid:
		g.earlySaid = true
		g.Warn("", "%s; the run fails when that lasts for %v (early_exit { limit })", text, early.Limit)
	}
}

// Cause is the failure that counts: what came first.
func (g *Gang) Cause() (*report.Cause, int) {
	if found, ok := g.Diagnosis.First(); ok {
		return g.Diagnosis.Cause(found)
	}
	return nil, report.ExitOK
}

// Failed reports whether a rank has failed by itself.
func (g *Gang) Failed() bool { return g.FirstFailure() != run.Nowhere }

// Undone counts the ranks that have not ended well.
func (g *Gang) Undone() (n int) {
	for _, k := range g.Ranks {
		if k.Ended == nil || !run.Succeeded(k.Ended) {
			n++
		}
	}
	return n
}

// Outcome is empty: that of a rank is the run's.
func (g *Gang) Outcome(int) string { return "" }

// Reason is why no attempt follows.
func (g *Gang) Reason(*report.Cause) string {
	if d := g.trials.Decision; d != nil {
		return d.Reason
	}
	return report.NoRestartBlock
}
