package config

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// A sensitive variable's value is marked, and cty carries the mark on to whatever is made
// of the value. Such values can be in the values of env and nowhere else: all the rest
// of a job is shown to people. Where evaluation fails, what it says may quote a value, so
// that its words are put aside for expressions that refer to a sensitive variable.

// sensitive is the mark.
type sensitive struct{}

// secret is value with the mark.
func secret(value cty.Value) cty.Value { return value.Mark(sensitive{}) }

// sensitiveHere reports a secret where others would see it.
func (d *decoder) sensitiveHere(expr hclsyntax.Expression) {
	d.error(expr.Range(), "Sensitive value",
		"This comes of a sensitive variable, and would be seen by others here: in lists of processes, plans or logs. Pass it in env, and let the program read it there.")
}

// sensitiveName reports names of variables that come of a secret.
func (d *decoder) sensitiveName(expr hclsyntax.Expression) {
	d.error(expr.Range(), "Sensitive value",
		"The names of variables are shown, and these come of a sensitive variable. Write them out: { NAME = var.x[\"NAME\"] }.")
}

// refersToSecret is whether an expression can see the value of a sensitive variable.
func (d *decoder) refersToSecret(expr hclsyntax.Expression) bool {
	if len(d.scope.secrets) == 0 {
		return false
	}
	refs := &references{}
	_ = hclsyntax.Walk(expr, refs)
	for _, t := range refs.names {
		name, one := variableName(t)
		if t.RootName() == "var" && (!one || d.scope.secrets[name]) {
			return true
		}
	}
	return false
}

// plainWords are summaries of diagnostics whose details quote no value.
var plainWords = map[string]bool{"Expression too large": true, "Number out of range": true}

// withoutValues are diagnostics of an evaluation without what could quote a value.
func withoutValues(diags hcl.Diagnostics) hcl.Diagnostics {
	hidden := make(hcl.Diagnostics, len(diags))
	for i, diag := range diags {
		plain := &hcl.Diagnostic{Severity: diag.Severity, Summary: diag.Summary, Detail: diag.Detail, Subject: diag.Subject}
		if !plainWords[diag.Summary] {
			plain.Detail = "This fails for the value that it has now. What exactly is wrong is not shown, as a sensitive variable is part of it."
		}
		hidden[i] = plain
	}
	return hidden
}

// secretDefault evaluates the default of a sensitive variable. What it says stands in the
// job file, but goes no further.
func (d *decoder) secretDefault(name string, attr *hclsyntax.Attribute, at hcl.Range) (cty.Value, bool) {
	known := len(d.diags)
	value, ok := d.value(attr.Expr)
	if !ok {
		d.diags = d.diags[:known]
		d.error(at, "Invalid default", "The default of variable %q is no value. What is wrong with it is not shown, as the variable is sensitive. Text stands in quotes.", name)
		return value, false
	}
	if !isEmpty(value) {
		d.warn(at, "Secret in the job file", "The default of the sensitive variable %q can be read by whoever reads this file. Leave it out, and give the value when the job is started.", name)
	}
	return value, true
}

// isEmpty is whether a default is only there to say what a value looks like.
func isEmpty(value cty.Value) bool {
	switch {
	case value.IsNull():
		return true
	case value.Type() == cty.String:
		return value.AsString() == ""
	case value.CanIterateElements():
		return value.LengthInt() == 0
	}
	return false
}

// secretLines are the lines of a job file in which the default of a sensitive variable may
// stand: all within its block, whatever the parser made of them.
func secretLines(src Source) map[int]bool {
	lines := map[int]bool{}
	text := src.plainText()
	if len(text) > maxText || checkShape(text, src.Filename) != nil {
		return lines
	}
	file, _ := hclsyntax.ParseConfig(text, src.Filename, hcl.InitialPos)
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return lines
	}
	for _, block := range body.Blocks {
		at := hcl.RangeBetween(block.TypeRange, block.Range())
		if block.Type != "variable" || !at.CanSliceBytes(text) || !bytes.Contains(at.SliceBytes(text), []byte("sensitive")) {
			continue
		}
		first := at.Start.Line
		if at.End.Line > first {
			first++ // the block's own name may be shown
		}
		for line := first; line <= at.End.Line; line++ {
			lines[line] = true
		}
	}
	return lines
}

// String is the variable for people: without its value where that is a secret.
func (v EnvVar) String() string {
	if v.Sensitive {
		return v.Name + "=(sensitive)"
	}
	return v.Name + "=" + v.Value
}

// GoString is String: %#v hides secrets too.
func (v EnvVar) GoString() string { return v.String() }
