// Package check says what speaks against a job: before the start by facts and plan, while
// it runs by who is seen on which GPU. It is pure: values in, findings out, in the same
// order for the same values; no clock, file or network. It knows neither how facts are got
// nor how findings are shown or what is done about them.
//
// Thresholds are those of public checkers, as far as these agree: Azure's node health
// checks (A), Meta's GCM (M), Imbue's cluster-health (I), gpud (G), the ML Engineering
// handbook (E), NVIDIA's manuals (N) and NCCL's guide (K). What these take a machine out
// of service for is a failure here only if the job would suffer.
package check

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan"
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

// Finding is what a check found.
type Finding = report.Finding

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

// Apply is findings as a job file wants them: without those that it ignores, and with its
// severities.
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
	sortWorstFirst(kept)
	return kept
}

// Refused are the reasons why there is no plan, as findings.
func Refused(problems []plan.Problem) []Finding {
	var found []Finding
	for _, p := range problems {
		found = append(found, Finding{Code: p.Code, Severity: Fail, Host: p.Host, Message: p.Message})
	}
	return found
}

// saidHere are codes of the plan's warnings whose subject Before tells more of.
var saidHere = []string{"busy_device", codes.NCCLSharedGPU}

// Planned are a plan's own warnings as findings, without those that Before gives too.
func Planned(warnings []plan.Problem) []Finding {
	var found []Finding
	for _, w := range warnings {
		if !slices.Contains(saidHere, w.Code) {
			found = append(found, Finding{Code: w.Code, Severity: Warn, Host: w.Host, Message: w.Message})
		}
	}
	return found
}

// sortWorstFirst sorts by severity and code; what is left, by host and GPU, is as found.
func sortWorstFirst(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(codes.Severities, a.Severity), slices.Index(codes.Severities, b.Severity)),
			cmp.Compare(a.Code, b.Code))
	})
}
