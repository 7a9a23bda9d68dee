package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

// makeReport is the report of a run at its end.
func makeReport(m *Machine) *report.Report {
	r := &report.Report{
		Version: report.Version, Run: m.ID, Job: m.Plan.Job, Outcome: report.OK, Attempts: []report.Attempt{},
		Left: append([]string{}, m.Record.Left...), Warnings: append([]string{}, m.Record.Warnings...),
		Findings: append([]report.Finding{}, m.Record.Findings...), Placement: m.Placement.Result(), MPS: m.MPS.GPUs(),
	}
	for rank := range m.Ranks {
		r.Ranks = append(r.Ranks, rankReport(m, rank))
	}
	r.FirstCause, r.Exit = cause(m)
	failedFirst := m.mode.Failed() || m.Lost != nil || len(m.Refusals) > 0
	switch {
	case m.Stop != nil && r.FirstCause == nil && m.Begun != 0 && m.mode.Undone() == 0: // too late to change anything
	case m.Stop != nil && (r.FirstCause == nil || !failedFirst):
		r.Outcome, r.Exit = report.Stopped, m.Stop.Exit
		r.FirstCause = &report.Cause{Class: class.Stopped, Message: "stopped: " + m.Stop.Reason, Attempt: m.Attempt}
		if m.Plan.Independent && m.Begun != 0 {
			r.FirstCause.Message += fmt.Sprintf("; not done: %d of %s",
				m.mode.Undone(), plural.Of(m.Plan.World(), m.Plan.Unit()))
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
	r.Attempts = append(r.Attempts, m.Record.Attempts...)
	if m.Begun != 0 {
		r.Attempts = append(r.Attempts, lastAttempt(m, r))
	}
	return r
}

func lastAttempt(m *Machine, r *report.Report) report.Attempt {
	a := report.Attempt{
		Attempt: m.Attempt, Started: m.Wall(m.Begun), Ended: m.Wall(m.Done), Outcome: r.Outcome,
		Changes: map[string]string{},
	}
	c := r.FirstCause
	if c == nil {
		return a
	}
	a.Class, a.Decision, a.Reason = c.Class, "end", m.mode.Reason(c)
	if r.Outcome == report.Stopped {
		a.Reason = c.Message
	}
	return a
}

func rankReport(m *Machine, rank int) report.Rank {
	k := m.Ranks[rank]
	r := report.Rank{
		Rank: rank, Ends: append(append([]report.End{}, k.Past...), m.EndsOf(k)...), Outcome: m.mode.Outcome(rank),
		Peaks: append([]samples.Peak{}, m.Memory.Peaks(rank)...),
	}
	if len(m.Plan.Tasks) > 0 {
		r.Task = append([]string{}, m.Plan.Tasks[rank].Words...)
	}
	if held, known := samples.Highest(r.Peaks).Held(); known {
		r.MemoryPeak = &held
	}
	if k.Place == run.Nowhere {
		return r
	}
	r.Host = m.HostOf(rank)
	if d := m.PlaceOf(rank).Device; d != nil {
		r.GPU = &report.GPU{Name: d.String(), ID: d.ID, Seen: m.Plan.Seen(k.Place)}
	}
	return r
}

// cause is what came first, and the exit status that follows from it.
func cause(m *Machine) (*report.Cause, int) {
	if len(m.Refusals) > 0 {
		return refusalCause(m)
	}
	if m.Lost != nil && m.Lost.Class == class.Internal {
		return m.Lost.Cause, report.ExitInternal
	}
	return m.mode.Cause()
}

func refusalCause(m *Machine) (*report.Cause, int) {
	c := &report.Cause{Class: class.Refused, Attempt: m.Attempt}
	if !slices.ContainsFunc(m.Refusals, func(r run.Refusal) bool { return !r.Taken }) {
		c.Class = class.Taken
	}
	exit := 0
	var lines, found []string
	for _, r := range m.Refusals {
		if r.Finding != "" { // it says itself where
			lines = append(lines, r.Message)
			if !slices.Contains(found, r.Finding) {
				found = append(found, r.Finding)
			}
		} else {
			lines = append(lines, r.Host+": "+r.Message)
		}
		if r.Log != "" {
			c.Evidence = append(c.Evidence, r.Host+": all of its output is in "+r.Log)
		}
		if c.Tail == "" {
			c.Host, c.Tail, c.Log = r.Host, run.Text(r.Output), r.Log
		}
		exit = max(exit, r.Exit)
	}
	c.Message = strings.Join(lines, "\n")
	if !slices.ContainsFunc(m.Refusals, func(r run.Refusal) bool { return r.Finding == "" }) {
		c.Evidence = append(c.Evidence, "to start all the same: --no-check, or check { ignore = [\""+
			strings.Join(found, `", "`)+"\"] } in the job file")
	}
	return c, exit
}
