package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/zclconf/go-cty/cty"
)

// value evaluates expr. ok is false where the value cannot be used: an error was
// reported here, or earlier for something that expr refers to.
func (d *decoder) value(expr hclsyntax.Expression) (value cty.Value, ok bool) {
	if expr == nil || !d.checkNames(expr) {
		return cty.DynamicVal, false
	}
	value, ok = d.evaluate(expr, d.ctx)
	if ok && value.ContainsMarked() {
		d.sensitiveHere(expr)
		return cty.DynamicVal, false
	}
	return value, ok
}

// evaluate is value for an expression whose names are known to be good.
func (d *decoder) evaluate(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, bool) {
	value, diags := metered{expr}.Value(ctx)
	if len(diags) > 0 && d.refersToSecret(expr) {
		diags = withoutValues(diags)
	}
	d.diags = append(d.diags, diags...)
	return value, !diags.HasErrors() && value.IsWhollyKnown()
}

// place is where an expression stands; it decides what the expression knows.
type place int

const (
	inJob place = iota
	inEnv
	inDefault // of a variable
)

// checkNames reports every name and function in expr that there is not.
func (d *decoder) checkNames(expr hclsyntax.Expression) bool {
	refs := &references{}
	_ = hclsyntax.Walk(expr, refs)
	ok := true
	for _, traversal := range refs.names {
		ok = d.checkTraversal(traversal) && ok
	}
	for _, call := range refs.calls {
		ok = d.checkFunction(call) && ok
	}
	return ok
}

func (d *decoder) checkFunction(call *hclsyntax.FunctionCallExpr) bool {
	if _, known := functions[call.Name]; known {
		return true
	}
	if call.Name == envOfHost {
		return d.checkEnvOfHost(call)
	}
	known := functionNames()
	if d.place == inEnv {
		known = append(known, envOfHost)
	}
	near := text.Nearest(call.Name, known, 2)
	advice := impure[call.Name]
	switch {
	case advice != "":
	case near != "":
		advice = fmt.Sprintf("Did you mean %q?", near)
	default:
		advice = "There are " + list(known) + "."
	}
	d.error(call.NameRange, "Unknown function", "There is no function %q. %s", call.Name, advice)
	return false
}

func (d *decoder) checkTraversal(t hcl.Traversal) bool {
	switch root := t.RootName(); {
	case root == "var" && d.place == inDefault:
		d.error(t.SourceRange(), "Not known here", "A default cannot refer to other variables.")
		return false
	case root == "var":
		return d.checkVariable(t)
	case (root == "rank" || root == "host" || root == "gpu") && d.place != inEnv:
		d.error(t.SourceRange(), "Not known here",
			"%s.* can be used in env only: everything else is the same for all ranks of a host.", root)
		return false
	case root == "rank":
		return d.checkMember(t, rankNames)
	case root == "host":
		return d.checkMember(t, hostNames)
	case root == "gpu":
		return d.checkMember(t, gpuNames)
	}
	d.unknownName(t)
	return false
}

func (d *decoder) checkVariable(t hcl.Traversal) bool {
	name, ok := variableName(t)
	if !ok {
		d.usedAll = true
		return true
	}
	if _, declared := d.scope.vars[name]; declared {
		d.used[name] = true
		return true
	}
	near := ""
	if len(d.diags) < maxPrinted { // a slip is looked for among all variables
		near = text.Nearest(name, d.scope.varNames(), 2)
	}
	if near != "" {
		near = fmt.Sprintf(" Did you mean var.%s?", near)
	}
	d.missing(t.SourceRange(), "Unknown variable",
		"There is no variable %q.%s Declare it at the top of the file: variable %q { default = ... }", name, near, name)
	return false
}

// checkMember checks the attribute of rank, host or gpu.
func (d *decoder) checkMember(t hcl.Traversal, names []string) bool {
	name, ok := memberName(t)
	if !ok {
		return true
	}
	for _, known := range names {
		if name == known {
			return true
		}
	}
	near := ""
	if candidate := text.Nearest(name, names, 2); candidate != "" {
		near = fmt.Sprintf(" Did you mean %s.%s?", t.RootName(), candidate)
	}
	d.error(t.SourceRange(), "Unknown name", "There is no %s.%s.%s There are: %s.",
		t.RootName(), name, near, t.RootName()+"."+strings.Join(names, ", "+t.RootName()+"."))
	return false
}

// variableName is the NAME of var.NAME or var["NAME"].
func variableName(t hcl.Traversal) (string, bool) {
	if t.RootName() != "var" {
		return "", false
	}
	return memberName(t)
}

func memberName(t hcl.Traversal) (string, bool) {
	if len(t) < 2 {
		return "", false
	}
	switch step := t[1].(type) {
	case hcl.TraverseAttr:
		return step.Name, true
	case hcl.TraverseIndex:
		if step.Key.Type() == cty.String && step.Key.IsKnown() && !step.Key.IsNull() {
			return step.Key.AsString(), true
		}
	}
	return "", false
}

var shellName = regexp.MustCompile(`^_*[A-Z][A-Z0-9_]*$`)

// unknownName reports a name at the start of an expression. Most often it is a
// shell variable, or a word that lacks its quotes.
func (d *decoder) unknownName(t hcl.Traversal) {
	name, at := t.RootName(), t.SourceRange()
	inTemplate := at.Start.Byte >= 2 && at.End.Byte <= len(d.text) &&
		bytes.HasSuffix(bytes.TrimRight(d.text[:at.Start.Byte], " ~"), []byte("${"))
	_, declared := d.scope.vars[name]
	near := text.Nearest(name, []string{"var", "rank", "host", "gpu"}, 2)
	advice := "Expressions know var.NAME, and in env rank.*, host.* and gpu.*."
	switch {
	case inTemplate && (shellName.MatchString(name) || !declared):
		advice = fmt.Sprintf("If this is meant for the shell, write $${%s}. %s", name, advice)
	case declared:
		advice = fmt.Sprintf("Did you mean var.%s?", name)
	case near != "" && !shellName.MatchString(name):
		advice = fmt.Sprintf("Did you mean %q? %s", near, advice)
	default:
		advice = fmt.Sprintf("If this is text, write it in quotes: %q. %s", name, advice)
	}
	d.error(at, "Unknown name", "There is no %q. %s", name, advice)
}
