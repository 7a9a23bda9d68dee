// Package expr evaluates the expressions of a job file: what they can refer to, which functions
// there are, and how much they may ask for.
package expr

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/zclconf/go-cty/cty"
)

// Evaluator evaluates the expressions of one job file, and is the sink of what is wrong with it.
type Evaluator struct {
	Scope   *Scope
	Place   Place         // where the next expression stands
	Partial bool          // a syntax error hides parts of the file: what is not there is then no error
	MaxTime time.Duration // of one evaluation
	Diags   hcl.Diagnostics

	tooLong bool            // an evaluation took longer
	used    map[string]bool // variables that an expression refers to
	usedAll bool            // an expression refers to var as a whole
	hostEnv map[string]bool // variables that env_of_host is called with
}

// New is an evaluator of expressions in a scope.
func New(scope *Scope) *Evaluator {
	return &Evaluator{Scope: scope, MaxTime: maxTime, used: map[string]bool{}, hostEnv: map[string]bool{}}
}

// IsUsed reports whether an expression refers to that variable.
func (f *Evaluator) IsUsed(name string) bool { return f.usedAll || f.used[name] }

// Diagnostics are all, by place, each once.
func (f *Evaluator) Diagnostics() hcl.Diagnostics { return diagnostic.Sorted(f.Diags) }

func (f *Evaluator) add(severity hcl.DiagnosticSeverity, at hcl.Range, summary, detail string, extra any) {
	diag := &hcl.Diagnostic{Severity: severity, Summary: summary, Detail: detail, Subject: &at, Extra: extra}
	f.Diags = append(f.Diags, diag)
}

// Error reports what is wrong at a place.
func (f *Evaluator) Error(at hcl.Range, summary, format string, args ...any) {
	f.add(hcl.DiagError, at, summary, fmt.Sprintf(format, args...), nil)
}

// ErrorAlso is Error with a second place that explains it.
func (f *Evaluator) ErrorAlso(at, also hcl.Range, summary, format string, args ...any) {
	f.add(hcl.DiagError, at, summary, fmt.Sprintf(format, args...), diagnostic.SecondPlace(also))
}

// Warn reports what is probably not meant.
func (f *Evaluator) Warn(at hcl.Range, summary, format string, args ...any) {
	f.add(hcl.DiagWarning, at, summary, fmt.Sprintf(format, args...), nil)
}

// Missing reports something that is not in the file, unless a syntax error may have hidden it.
func (f *Evaluator) Missing(at hcl.Range, summary, format string, args ...any) {
	if !f.Partial {
		f.Error(at, summary, format, args...)
	}
}

// Many reports whether more is wrong already than is printed: then no slip is looked for.
func (f *Evaluator) Many() bool { return len(f.Diags) >= diagnostic.MaxPrinted }

// Failed reports whether an error was reported since there were so many diagnostics; see Count.
func (f *Evaluator) Failed(since int) bool { return f.Diags[since:].HasErrors() }

// Count is how many diagnostics there are.
func (f *Evaluator) Count() int { return len(f.Diags) }

// HostEnv are the variables of hosts that expressions refer to, sorted.
func (f *Evaluator) HostEnv() []string { return slices.Sorted(maps.Keys(f.hostEnv)) }

// EnvExpr is the expression of an env argument with its names checked, nil where there is
// nothing to evaluate. Entries with errors are not known to what evaluates the rest.
func (f *Evaluator) EnvExpr(env hclsyntax.Expression) hclsyntax.Expression {
	f.Place = InEnv
	defer func() { f.Place = InJob }()
	object, ok := Unwrap(env).(*hclsyntax.ObjectConsExpr)
	if !ok {
		if !f.checkNames(env) {
			return nil
		}
		return env
	}
	for i, item := range object.Items {
		if !f.checkNames(item.KeyExpr) {
			object.Items[i].KeyExpr = UnknownAt(item.KeyExpr.Range())
		}
		if !f.checkNames(item.ValueExpr) {
			object.Items[i].ValueExpr = UnknownAt(item.ValueExpr.Range())
		}
	}
	return object
}

// UnknownAt stands for an expression that has errors, so that those of the rest are found.
func UnknownAt(at hcl.Range) hclsyntax.Expression {
	return &hclsyntax.LiteralValueExpr{Val: cty.DynamicVal, SrcRange: at}
}
