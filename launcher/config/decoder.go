package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// decoder turns one job file into a Job. It never stops at the first error: each
// function reports what is wrong and returns what can still be used.
type decoder struct {
	src   Source
	text  []byte // what was parsed
	scope *scope
	diags hcl.Diagnostics

	used    map[string]bool // variables that an expression refers to
	usedAll bool            // an expression refers to var as a whole

	policy Check // of the job: what becomes of doubts about its values

	program string          // of the job: what its variables are for
	hostEnv map[string]bool // variables that env_of_host is called with

	// partial is set when syntax errors hide parts of the file: what is not there
	// is then no error.
	partial bool
	lost    *hcl.Pos // where the parser lost its way, nil if it did not

	ctx   *hcl.EvalContext // for everything but env
	place place            // where the expression that is looked at stands
}

func (d *decoder) add(severity hcl.DiagnosticSeverity, at hcl.Range, summary, detail string, extra any) {
	d.diags = append(d.diags, &hcl.Diagnostic{Severity: severity, Summary: summary, Detail: detail, Subject: &at, Extra: extra})
}

func (d *decoder) error(at hcl.Range, summary, format string, args ...any) {
	d.add(hcl.DiagError, at, summary, fmt.Sprintf(format, args...), nil)
}

// errorAlso is an error that a second place explains.
func (d *decoder) errorAlso(at, also hcl.Range, summary, format string, args ...any) {
	d.add(hcl.DiagError, at, summary, fmt.Sprintf(format, args...), secondPlace{also})
}

func (d *decoder) warn(at hcl.Range, summary, format string, args ...any) {
	d.add(hcl.DiagWarning, at, summary, fmt.Sprintf(format, args...), nil)
}

// missing reports something that is not in the file, unless a syntax error may
// have hidden it.
func (d *decoder) missing(at hcl.Range, summary, format string, args ...any) {
	if !d.partial {
		d.error(at, summary, format, args...)
	}
}

// secondPlace is the Extra of a diagnostic that another place explains.
type secondPlace struct{ at hcl.Range }

// result is the job with every diagnostic in file order, without repetitions.
func (d *decoder) result(job *Job) (*Job, hcl.Diagnostics) {
	diags := tidy(d.diags)
	if diags.HasErrors() {
		return nil, diags
	}
	return job, diags
}

// tidy sorts diagnostics by place and drops repetitions.
func tidy(diags hcl.Diagnostics) hcl.Diagnostics {
	type key struct {
		severity        hcl.DiagnosticSeverity
		summary, detail string
		at              hcl.Range
	}
	seen := map[key]bool{}
	var kept hcl.Diagnostics
	for _, diag := range diags {
		k := key{diag.Severity, diag.Summary, diag.Detail, subject(diag)}
		if !seen[k] {
			seen[k] = true
			kept = append(kept, diag)
		}
	}
	slices.SortStableFunc(kept, func(a, b *hcl.Diagnostic) int {
		x, y := subject(a).Start, subject(b).Start
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return kept
}

func subject(diag *hcl.Diagnostic) hcl.Range {
	if diag.Subject == nil {
		return hcl.Range{}
	}
	return *diag.Subject
}
