// Package check says what speaks against a job: before the start by facts and plan, while it runs by who is seen on
// which GPU. It puts the rules together; each knows its own matter, and none how facts are got or what is done about
// findings.
package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/gpus"
	"github.com/muster-dev/muster/launcher/check/hosts"
	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/check/live"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan"
)

// What rules take and give.
type (
	Input    = rule.Input
	Host     = rule.Host
	Reach    = rule.Reach
	Visit    = rule.Visit
	Finding  = rule.Finding
	Severity = rule.Severity
	Watch    = live.Watch
	Sight    = live.Sight
)

// Severities, the worst first.
const (
	Fail = codes.Fail
	Warn = codes.Warn
	Info = codes.Info
)

// UnreachableFix is what to do where hosts do not reach each other.
const UnreachableFix = hosts.UnreachableFix

// Rules by what they are for.
var (
	// Before are those on hosts before the start. Without a plan those run that need facts only.
	Before = slices.Concat(gpus.Rules, hosts.Rules)
	// Notes are good to know of a host, whatever job is put there.
	Notes = gpus.Notes
)

// OfHosts is what speaks against each of some hosts, and what there is to know of it, whatever job is put there. What
// nobody needs to do anything about is left out.
func OfHosts(hosts []Host) [][]Finding {
	in := Input{Hosts: hosts, LimitsRaised: true}
	found := slices.DeleteFunc(Run(in, Before), func(f Finding) bool { return f.Severity == Info })
	of := make([][]Finding, len(hosts))
	for _, f := range append(found, Run(in, Notes)...) {
		at := slices.IndexFunc(hosts, func(h Host) bool { return h.Name == f.Host })
		of[at] = append(of[at], f)
	}
	return of
}

// saidBefore are codes of a plan's warnings whose subject the rules before the start tell more of.
var saidBefore = []string{"busy_device", codes.NCCLSharedGPU}

// OfPlan are a plan's warnings as findings.
func OfPlan(p *plan.Plan) []Finding {
	found := make([]Finding, len(p.Warnings))
	for i, w := range p.Warnings {
		found[i] = Finding{Code: w.Code, Severity: Warn, Host: w.Host, Message: w.Message}
	}
	return found
}

// Start judges before the start: the hosts, and the plan by what it was warned of. What libraries make of their
// settings is judged again, now that setup has shown which there are.
func Start(in Input) []Finding {
	warnings := slices.DeleteFunc(OfPlan(in.Plan), func(f Finding) bool {
		return strings.HasPrefix(f.Code, "nccl_") || strings.HasPrefix(f.Code, "allocator_")
	})
	warnings = slices.DeleteFunc(append(warnings, Run(in, []rule.Rule{lint.Libraries})...), func(f Finding) bool {
		return slices.Contains(saidBefore, f.Code)
	})
	return Apply(append(warnings, Run(in, Before)...), in.Job.Check)
}

// Libraries judges again what NCCL and torch make of their settings, which depends on what was found there last.
func Libraries(in Input) []Finding {
	return slices.DeleteFunc(Run(in, []rule.Rule{lint.Libraries}), func(f Finding) bool {
		return slices.Contains(in.Job.Check.Ignore, f.Code)
	})
}

// Run judges by the rules whose needs the input meets, and returns findings, the worst first.
func Run(in Input, rules []rule.Rule) []Finding { return rule.Run(in, rules...) }

// NewWatch begins to follow an attempt.
func NewWatch(p *plan.Plan) *Watch { return live.New(p) }

// Verdicts over findings.
const (
	Passed = "pass"
	Warned = "warn"
	Failed = "fail"
)

// Verdict is what findings come to: the worst of them. What is only good to know passes.
func Verdict(findings []Finding) string {
	verdict := Passed
	for _, f := range findings {
		switch f.Severity {
		case Fail:
			return Failed
		case Warn:
			verdict = Warned
		}
	}
	return verdict
}

// Apply is findings as a job file wants them: without those that it ignores, and with its severities.
func Apply(findings []Finding, c config.Check) []Finding {
	var kept []Finding
	for _, f := range findings {
		if slices.Contains(c.Ignore, f.Code) {
			continue
		}
		code, _ := codes.Find(f.Code)
		if severity, set := c.Severity[f.Code]; set {
			f.Severity = severity
		} else if code.Placement && c.WrongGPU == config.WrongGPUStop {
			f.Severity = Fail
		}
		kept = append(kept, f)
	}
	rule.Sort(kept)
	return kept
}

// Key is the same for findings about the same thing, however they are worded.
func Key(f Finding) string {
	number := func(n *int) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprint(f.Code, " ", f.Host, " ", number(f.GPU), " ", number(f.Rank))
}

// CountKeys counts findings by what they are about.
func CountKeys(findings []Finding) map[string]int {
	counts := map[string]int{}
	for _, f := range findings {
		counts[Key(f)]++
	}
	return counts
}

// Refused are the reasons why there is no plan, as findings.
func Refused(problems []plan.Problem) []Finding {
	var found []Finding
	for _, p := range problems {
		found = append(found, Finding{Code: p.Code, Severity: Fail, Host: p.Host, Message: p.Message})
	}
	return found
}
