// Package rule is the engine of checks: rules are values, each with the code of its findings, what it needs to know and
// a pure function that judges.
package rule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/report"
)

// Severity is what a finding means for the job.
type Severity = codes.Severity

// Severities, the worst first.
const (
	Fail = codes.Fail
	Warn = codes.Warn
	Info = codes.Info
)

// Finding is what a rule found.
type Finding = report.Finding

// Findings are what a rule found. Run fills in the rule's code, and the code's severity where there is none.
type Findings []Finding

// Needs is what a rule cannot do without.
type Needs int

// What rules need: the facts of hosts, which are always there, or the job and its plan too.
const (
	Facts Needs = iota
	Plan
)

// Rule is one check.
type Rule struct {
	Code  string // of its findings; "" where they bring their own
	Needs Needs
	Judge func(in *Input) Findings
}

// OfAll is a rule about all hosts together.
func OfAll(code string, needs Needs, judge func(in *Input) Findings) Rule {
	return Rule{code, needs, judge}
}

// OfHost is a rule about each host.
func OfHost(code string, needs Needs, judge func(h *Host) Findings) Rule {
	return Rule{code, needs, func(in *Input) (all Findings) {
		for i := range in.Hosts {
			all = append(all, judge(&in.Hosts[i])...)
		}
		return all
	}}
}

// OfGPU is a rule about each GPU that answers: others tell nothing that could be relied on. Of GPUs that the plan does
// not use it is good to know what is broken.
func OfGPU(code string, needs Needs, judge func(g *GPU) Findings) Rule {
	return ofEveryGPU(code, needs, func(g *GPU) Findings {
		if !g.Answers() {
			return nil
		}
		return judge(g)
	})
}

// OfState is a rule about GPUs that are in a state.
func OfState(code, state, fix, format string) Rule {
	return ofEveryGPU(code, Facts, func(g *GPU) Findings {
		if g.State != state {
			return nil
		}
		return g.Find(fix, "%s", fmt.Sprintf(format, g.PCI))
	})
}

func ofEveryGPU(code string, needs Needs, judge func(g *GPU) Findings) Rule {
	return OfHost(code, needs, func(h *Host) (all Findings) {
		for _, g := range h.GPUs {
			found := judge(g)
			if !g.IsUsed() {
				found = found.As(Info)
				for i := range found {
					found[i].Fix = ""
				}
			}
			all = append(all, found...)
		}
		return all
	})
}

// Run judges by the rules whose needs are met. The same input gives the same findings in the same order: the worst
// first, then by code, host and GPU.
func Run(in Input, rules ...Rule) []Finding {
	all := Collect(in, rules...)
	Sort(all)
	return all
}

// Collect is Run with findings in the order of the rules.
func Collect(in Input, rules ...Rule) []Finding {
	in.prepare()
	var all []Finding
	for _, r := range rules {
		if r.Needs == Plan && in.Plan == nil {
			continue
		}
		for _, f := range r.Judge(&in) {
			f.Code = cmp.Or(f.Code, r.Code)
			if f.Severity == "" {
				code, _ := codes.Find(f.Code)
				f.Severity = cmp.Or(code.Severity, Info)
			}
			all = append(all, f)
		}
	}
	return all
}

// Sort sorts by severity, the worst first, and code; what is left, by host and GPU, is as found.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(codes.Severities, a.Severity), slices.Index(codes.Severities, b.Severity)),
			cmp.Compare(a.Code, b.Code))
	})
}

// Find makes a finding about what where says: its code, if it has one, host, GPU and rank.
func Find(where Finding, fix, format string, args ...any) Findings {
	where.Fix, where.Message = fix, where.Where()+fmt.Sprintf(format, args...)
	return Findings{where}
}

// As gives findings a severity other than their code's.
func (f Findings) As(s Severity) Findings {
	for i := range f {
		f[i].Severity = s
	}
	return f
}

// AsIf gives findings another severity in some circumstances.
func (f Findings) AsIf(lower bool, s Severity) Findings {
	if lower {
		return f.As(s)
	}
	return f
}

// Of gives findings a code, where a rule has several.
func (f Findings) Of(code string) Findings {
	for i := range f {
		f[i].Code = code
	}
	return f
}
