package coordinator

import (
	"slices"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
)

// passes checks the hosts, once all are ready, and reports whether the run may start.
func (b *brain) passes() bool {
	if b.checked || b.checking == submission.CheckNone {
		for _, p := range b.ofLibraries() {
			b.warn(p.Host, "%s", p.Message)
		}
		return true
	}
	b.checked = true
	for _, f := range b.judge() {
		if f.Severity != codes.Fail && b.wasShown(f) {
			b.keep(&f)
			continue
		}
		b.find(f)
		if f.Severity == codes.Fail {
			b.refusals = append(b.refusals, refusal{host: f.Host, message: f.Words(), code: report.ExitRefused, found: f.Code})
		}
	}
	return len(b.refusals) == 0 && b.checking != submission.CheckOnly
}

// judge returns the findings before the start. What the plan has warned of was shown with
// it; here it counts where the job file makes it fail.
func (b *brain) judge() []report.Finding {
	planned := append(check.Planned(b.plan.Warnings), check.Planned(b.ofLibraries())...)
	all := check.Apply(append(planned, check.Before(b.checkInput())...), b.job.Check)
	for i := range all {
		if len(b.plan.Tasks) > 0 { // checks know places, which no task has yet
			all[i].Rank = nil
		}
	}
	return all
}

func (b *brain) checkInput() check.Input {
	in := check.Input{Job: b.job, Plan: b.plan, MasterAddr: b.meeting().MasterAddr, LimitsRaised: true}
	for i, h := range b.hosts {
		one := check.Host{Name: h.name, Facts: b.plan.Facts[i], Software: h.software}
		if i < len(b.clocks) {
			one.ClockOffset, one.ClockError = &b.clocks[i].offset, b.clocks[i].wrong
		}
		for _, candidate := range b.plan.Candidates() {
			if r, tried := h.reachOf(candidate.Addr); tried {
				one.Reach = append(one.Reach, check.Reach{Addr: r.Addr, From: r.Local, Error: r.Error})
			}
		}
		visits := b.visitsBy(i)
		for of := range b.hosts {
			v, made := visits[of]
			if !made {
				continue
			}
			if of > 0 { // how the head host is reached was seen by every address of it
				one.Reach = append(one.Reach, check.Reach{Of: of, Addr: v.Addr, From: v.Local, Error: v.Error})
			}
			one.Visits = append(one.Visits, check.Visit{Of: of, Addr: hostPart(v.Addr), From: v.Local, Error: v.Error, Stuck: v.Stuck, Passes: v.Passes})
		}
		in.Hosts = append(in.Hosts, one)
	}
	return in
}

// wasShown reports whether the launcher has shown it with the plan.
func (b *brain) wasShown(f report.Finding) bool {
	return slices.ContainsFunc(b.plan.Warnings, func(w plan.Problem) bool { return w.Message == f.Message })
}

// keep takes a finding into the report.
func (b *brain) keep(f *report.Finding) {
	f.Attempt = b.attempt
	if b.begun != 0 {
		f.At = b.wall(b.now)
	}
	if f.Rank != nil && b.begun != 0 {
		f.Attempt = b.ranks[*f.Rank].attempt
	}
	b.findings = append(b.findings, *f)
}

// find takes a finding into the report and tells of it.
func (b *brain) find(f report.Finding) {
	b.keep(&f)
	b.say(event.Event{Kind: event.Found, Host: f.Host, Rank: f.Rank, Message: f.Words(), Finding: &f})
}

// ofLibraries is what is known of NCCL's and torch's settings only now that setup has shown
// which versions there are.
func (b *brain) ofLibraries() []plan.Problem {
	return slices.DeleteFunc(lint.Libraries(b.plan, b.meeting()), func(p plan.Problem) bool {
		return slices.ContainsFunc(b.plan.Warnings, func(w plan.Problem) bool { return w.Message == p.Message })
	})
}

// unreachable is the finding of a head host that has no address which all others reach.
func unreachable(host, message string) report.Finding {
	return report.Finding{Code: codes.Unreachable, Severity: codes.Fail, Host: host, Message: host + ": " + message, Fix: check.UnreachableFix}
}
