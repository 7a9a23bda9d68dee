package expr

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// Place is where an expression stands; it decides what the expression knows.
type Place int

const (
	InJob Place = iota
	InEnv
	InDefault // of a variable
)

// references collects, as a walker, what an expression refers to. HCL's own Variables knows
// no functions, and nothing of interpolated.
type references struct {
	names  []hcl.Traversal
	calls  []*hclsyntax.FunctionCallExpr
	locals []map[string]struct{} // names that for expressions around have made
}

func referencesIn(expr hclsyntax.Expression) *references {
	refs := &references{}
	_ = hclsyntax.Walk(expr, refs)
	return refs
}

// Enter notes a node.
func (r *references) Enter(node hclsyntax.Node) hcl.Diagnostics {
	if child, ok := node.(hclsyntax.ChildScope); ok {
		r.locals = append(r.locals, child.LocalNames)
	}
	if part, is := node.(interpolated); is {
		node = part.Expression
	}
	switch e := node.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		isLocal := func(names map[string]struct{}) bool { _, ok := names[e.Traversal.RootName()]; return ok }
		if !slices.ContainsFunc(r.locals, isLocal) {
			r.names = append(r.names, e.Traversal)
		}
	case *hclsyntax.FunctionCallExpr:
		r.calls = append(r.calls, e)
	}
	return nil
}

// Exit leaves a node.
func (r *references) Exit(node hclsyntax.Node) hcl.Diagnostics {
	if _, ok := node.(hclsyntax.ChildScope); ok {
		r.locals = r.locals[:len(r.locals)-1]
	}
	return nil
}

// checkNames reports every name and function in expr that there is not.
func (f *Evaluator) checkNames(expr hclsyntax.Expression) bool {
	refs := referencesIn(expr)
	ok := true
	for _, traversal := range refs.names {
		ok = checkTraversal(f, traversal) && ok
	}
	for _, call := range refs.calls {
		ok = checkFunction(f, call) && ok
	}
	return ok
}

func checkFunction(f *Evaluator, call *hclsyntax.FunctionCallExpr) bool {
	if _, known := functions[call.Name]; known {
		return true
	}
	if call.Name == envOfHost {
		return checkEnvOfHost(f, call)
	}
	known := functionNames()
	if f.Place == InEnv {
		known = append(known, envOfHost)
	}
	advice := notHere[call.Name]
	if advice == "" {
		advice = strings.TrimSpace(text.DidYouMean(call.Name, known))
	}
	if advice == "" {
		advice = "There are " + List(known) + "."
	}
	f.Error(call.NameRange, "Unknown function", "There is no function %q. %s", call.Name, advice)
	return false
}

func checkTraversal(f *Evaluator, t hcl.Traversal) bool {
	root := t.RootName()
	switch _, isMember := members[root]; {
	case root == "var" && f.Place == InDefault:
		f.Error(t.SourceRange(), "Not known here", "A default cannot refer to other variables.")
	case root == "var":
		return checkVariable(f, t)
	case isMember && f.Place != InEnv:
		f.Error(t.SourceRange(), "Not known here", "%s.* can be used in env only: everything else is the same for all ranks of a host.", root)
	case isMember:
		return checkMember(f, t, members[root])
	default:
		unknownName(f, t)
	}
	return false
}

func checkVariable(f *Evaluator, t hcl.Traversal) bool {
	name, ok := variableName(t)
	if !ok {
		f.usedAll = true
		return true
	}
	if f.Scope.Declares(name) {
		f.used[name] = true
		return true
	}
	near := ""
	if !f.Many() {
		near = text.Nearest(name, f.Scope.Names(), 2)
	}
	if near != "" {
		near = fmt.Sprintf(" Did you mean var.%s?", near)
	}
	f.Missing(t.SourceRange(), "Unknown variable",
		"There is no variable %q.%s Declare it at the top of the file: variable %q { default = ... }", name, near, name)
	return false
}

// checkMember checks the attribute of rank, host or gpu.
func checkMember(f *Evaluator, t hcl.Traversal, names []string) bool {
	name, ok := memberName(t)
	if !ok || slices.Contains(names, name) {
		return true
	}
	root, near := t.RootName(), text.Nearest(name, names, 2)
	if near != "" {
		near = fmt.Sprintf(" Did you mean %s.%s?", root, near)
	}
	f.Error(t.SourceRange(), "Unknown name", "There is no %s.%s.%s There are: %s.", root, name, near, root+"."+strings.Join(names, ", "+root+"."))
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

// unknownName reports a name at the start of an expression. Most often it is a shell variable,
// or a word that lacks its quotes.
func unknownName(f *Evaluator, t hcl.Traversal) {
	name, at, source := t.RootName(), t.SourceRange(), f.Scope.Text
	inTemplate := at.Start.Byte >= 2 && at.End.Byte <= len(source) &&
		bytes.HasSuffix(bytes.TrimRight(source[:at.Start.Byte], " ~"), []byte("${"))
	declared := f.Scope.Declares(name)
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
	f.Error(at, "Unknown name", "There is no %q. %s", name, advice)
}
