package coordinator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

func (b *brain) overWords(r *report.Report) string {
	if r.FirstCause != nil {
		return r.FirstCause.Message
	}
	return fmt.Sprintf("all %ss ended well", b.plan.Unit())
}

// report tells the end.
func (b *brain) report() *report.Report {
	r := &report.Report{
		Version: report.Version, Run: b.run, Job: b.plan.Job, Outcome: report.OK,
		Left: append([]string{}, b.left...), Warnings: append([]string{}, b.warnings...), Attempts: []report.Attempt{},
		Findings: append([]report.Finding{}, b.findings...), Placement: b.placement(), MPS: b.allSharedGPUs(),
	}
	for rank, s := range b.ranks {
		r.Ranks = append(r.Ranks, b.rankReport(rank, s))
	}
	r.FirstCause, r.Exit = b.cause()
	switch {
	case b.stop != nil && r.FirstCause == nil && b.allEndedWell(): // too late to change anything
	case b.stop != nil && (r.FirstCause == nil || b.phaseWhenStopped()):
		r.Outcome, r.Exit = report.Stopped, b.stop.exit
		r.FirstCause = &report.Cause{Class: class.Stopped, Message: "stopped: " + b.stop.reason, Attempt: b.attempt}
		if b.places != nil && b.begun != 0 {
			r.FirstCause.Message += fmt.Sprintf("; not done: %d of %s", b.undone(), plural.Of(b.plan.World(), b.plan.Unit()))
		}
	case r.FirstCause != nil:
		r.Outcome = report.Failed
	}
	if c := r.FirstCause; c != nil {
		c.Evidence = append([]string{}, c.Evidence...)
		if c.Numbers == nil {
			c.Numbers = map[string]float64{}
		}
	}
	r.Attempts = append(r.Attempts, b.past...)
	if b.begun != 0 {
		r.Attempts = append(r.Attempts, b.attemptReport(r))
	}
	return r
}

func (b *brain) attemptReport(r *report.Report) report.Attempt {
	a := report.Attempt{Attempt: b.attempt, Started: b.wall(b.begun), Ended: b.wall(b.done), Outcome: r.Outcome, Changes: map[string]string{}}
	if r.FirstCause != nil {
		a.Class, a.Decision, a.Reason = r.FirstCause.Class, "end", report.NoRestartBlock
		if d := b.trials.decision; d != nil {
			a.Reason = d.Reason
		}
		if b.places != nil && r.FirstCause.Rank != nil {
			a.Reason = b.reasonOf(b.ranks[*r.FirstCause.Rank].alone)
		}
		if r.Outcome == report.Stopped {
			a.Reason = r.FirstCause.Message
		}
	}
	return a
}

// allEndedWell reports whether every rank has done its work, and none ended by being stopped.
func (b *brain) allEndedWell() bool {
	if b.begun == 0 {
		return false
	}
	if b.places != nil {
		return b.undone() == 0
	}
	return !slices.ContainsFunc(b.ranks, func(r *rankState) bool {
		e := r.ended
		return e == nil || e.Code != 0 || e.Signal != "" || e.Sent != "" || e.Error != ""
	})
}

// phaseWhenStopped reports whether the user's stop came before any failure: then what
// workers made of it is no failure of theirs.
func (b *brain) phaseWhenStopped() bool {
	if b.places != nil {
		cause, _ := b.causeAlone()
		return cause == nil && b.lost == nil && len(b.refusals) == 0
	}
	return b.firstFailure() < 0 && b.lost == nil && len(b.refusals) == 0
}

func (b *brain) rankReport(rank int, s *rankState) report.Rank {
	r := report.Rank{Rank: rank, Ends: append(append([]report.End{}, s.past...), b.endsOf(s)...)}
	if s.alone != nil {
		r.Outcome = outcomeOf(s)
	}
	if len(b.plan.Tasks) > 0 {
		r.Task = append([]string{}, b.plan.Tasks[rank].Words...)
	}
	r.Peaks = append([]samples.Peak{}, b.memory.peaks[rank]...)
	if held, known := samples.Most(r.Peaks).Held(); known {
		r.MemoryPeak = &held
	}
	if s.place == nowhere {
		return r
	}
	r.Host = b.hosts[s.host].name
	if d := b.placeOf(rank).Device; d != nil {
		r.GPU = &report.GPU{Name: d.String(), ID: d.ID, Seen: b.plan.Seen(s.place)}
	}
	return r
}

// outcomeOf is what became of an independent rank.
func outcomeOf(s *rankState) string {
	switch ends := s.past; {
	case s.alone.cause != nil:
		return report.Failed
	case len(ends) == 0:
		return report.NotRun
	case !s.alone.over, ends[len(ends)-1].StoppedByMuster != "", ends[len(ends)-1].Error != "":
		return report.Stopped
	}
	return report.OK
}

// endsOf is how a rank ended in the attempt in progress: one end, or none if it was not
// started.
func (b *brain) endsOf(s *rankState) []report.End {
	switch e := s.ended; {
	case e != nil:
		return []report.End{{
			Attempt: s.attempt, Exit: e.Code, Signal: e.Signal, StoppedByMuster: e.Sent, Log: s.log, Error: e.Error, Left: e.Left, Observed: s.observed,
		}}
	case s.started:
		return []report.End{{Attempt: s.attempt, Log: s.log, Error: "its end is not known: " + b.hosts[s.host].name + " was lost", Observed: s.observed}}
	}
	return nil
}

// cause finds what came first, and the exit status that follows from it.
func (b *brain) cause() (*report.Cause, int) {
	if len(b.refusals) > 0 {
		return b.refusalCause()
	}
	if b.lost != nil && b.lost.Class == class.Internal {
		return b.lost, report.ExitInternal
	}
	if b.places != nil {
		if c, exit := b.causeAlone(); c != nil || b.lost == nil {
			return c, exit
		}
		return b.lost, lossExit(b.lost.Class)
	}
	if found, ok := b.diagnose(); ok {
		return b.causeOf(found)
	}
	return nil, report.ExitOK
}

func lossExit(name string) int {
	switch name {
	case class.Internal:
		return report.ExitInternal
	case class.EarlyExit, class.Hang:
		return report.ExitTimeout
	case class.WrongGPU:
		return report.ExitRefused
	}
	return report.ExitUnreachable
}

func (b *brain) refusalCause() (*report.Cause, int) {
	c := &report.Cause{Class: class.Refused, Attempt: b.attempt}
	if !slices.ContainsFunc(b.refusals, func(r refusal) bool { return !r.taken }) {
		c.Class = class.Taken
	}
	exit := 0
	var lines, found []string
	for _, r := range b.refusals {
		if r.found != "" { // it says itself where
			lines = append(lines, r.message)
			if !slices.Contains(found, r.found) {
				found = append(found, r.found)
			}
		} else {
			lines = append(lines, r.host+": "+r.message)
		}
		if r.log != "" {
			c.Evidence = append(c.Evidence, r.host+": all of its output is in "+r.log)
		}
		if c.Tail == "" {
			c.Host, c.Tail, c.Log = r.host, text(r.output), r.log
		}
		exit = max(exit, r.code)
	}
	c.Message = strings.Join(lines, "\n")
	if !slices.ContainsFunc(b.refusals, func(r refusal) bool { return r.found == "" }) {
		c.Evidence = append(c.Evidence, fmt.Sprintf("to start all the same: --no-check, or check { ignore = [\"%s\"] } in the job file", strings.Join(found, `", "`)))
	}
	return c, exit
}

// firstFailure is the rank that failed first by itself, on the coordinator's clock; -1
// if none did.
func (b *brain) firstFailure() int {
	first := -1
	for rank, r := range b.ranks {
		if r.ended != nil && failedByItself(r.ended) && (first < 0 || r.at < b.ranks[first].at) {
			first = rank
		}
	}
	return first
}
