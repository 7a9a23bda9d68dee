package expr

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// A sensitive variable's value is marked, and cty carries the mark on to whatever is made of
// the value. Such values can be in the values of env and nowhere else: all the rest of a job
// is shown to people. Where evaluation fails, what it says may quote a value, so that its
// details are put aside for expressions that refer to a sensitive variable.

// Sensitive is the mark.
type Sensitive struct{}

// refersToSecret is whether an expression can see the value of a sensitive variable.
func (s *Scope) refersToSecret(expr hclsyntax.Expression) bool {
	return len(s.Secrets) > 0 && slices.ContainsFunc(referencesIn(expr).names, func(t hcl.Traversal) bool {
		name, one := variableName(t)
		return t.RootName() == "var" && (!one || s.Secrets[name])
	})
}

// withoutValues are diagnostics of an evaluation without what could quote a value.
func withoutValues(diags hcl.Diagnostics) hcl.Diagnostics {
	hidden := make(hcl.Diagnostics, len(diags))
	for i, diag := range diags {
		plain := &hcl.Diagnostic{Severity: diag.Severity, Summary: diag.Summary, Detail: diag.Detail}
		plain.Subject = diag.Subject
		if diag.Summary != "Expression too large" && diag.Summary != "Number out of range" {
			plain.Detail = "This fails for the value that it has now. What exactly is wrong is not shown, as a sensitive variable is part of it."
		}
		hidden[i] = plain
	}
	return hidden
}
