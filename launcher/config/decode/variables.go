package decode

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/internal/text"
)

var variableSchema = Schema{Where: "a variable block", Args: []string{"default", "description", "sensitive"}}

// Variables gives every declared variable its value: what -var says, converted to the type of
// the default, or the default.
func (f *File) Variables(blocks []*Block) {
	f.Place = expr.InDefault
	defer func() { f.Place = expr.InJob }()
	declared := map[string]*Block{}
	for _, b := range blocks {
		switch first := declared[b.Label]; {
		case b.Bare:
			continue
		case !hclsyntax.ValidIdentifier(b.Label):
			f.Error(b.NameAt, "Invalid variable name", "%q cannot be written as var.NAME: use letters, digits, _ and -, and begin with a letter.", b.Label)
			continue
		case first != nil:
			f.ErrorAlso(b.NameAt, first.NameAt, "Repeated variable", "Variable %q was declared at %s already.", b.Label, first.NameAt)
			continue
		}
		declared[b.Label] = b
		f.Scope.Vars[b.Label] = decodeVariable(b)
	}
	checkVars(f)
}

func decodeVariable(b *Block) cty.Value {
	b.Open(variableSchema)
	Text(b.Arg("description"))
	if Bool(b.Arg("sensitive"), false) {
		b.File.Scope.Secrets[b.Label] = true
		return variableValue(b).Mark(expr.Sensitive{})
	}
	return variableValue(b)
}

func variableValue(b *Block) cty.Value {
	f, name, def := b.File, b.Label, b.Arg("default")
	given, isGiven := f.Vars[name]
	switch {
	case def == nil && isGiven:
		return cty.StringVal(given)
	case def == nil:
		f.Missing(b.At, "Variable without a value", "Variable %q has no default: give it a value with -var %s=VALUE.", name, name)
		return cty.DynamicVal
	}
	read := def.Value
	if f.Scope.Secrets[name] {
		read = func() (cty.Value, bool) { return secretDefault(b, def) }
	}
	value, ok := read()
	switch {
	case !ok:
		return cty.DynamicVal
	case isGiven:
		return givenValue(b, given, value)
	}
	f.Scope.Numbers[name] = f.Scope.Written(def.Expr)
	return value
}

// givenValue converts what -var says to the type of the default.
func givenValue(b *Block, word string, def cty.Value) cty.Value {
	f, name := b.File, b.Label
	var value cty.Value
	var err error
	switch t := def.Type(); {
	case def.IsNull() || t == cty.String:
		return cty.StringVal(word)
	case t == cty.Number || t == cty.Bool:
		value, err = convert.Convert(cty.StringVal(word), t)
		if err == nil && t == cty.Number && !expr.Sensible(value) {
			err = fmt.Errorf("the number is too large or too small")
		}
	default:
		value, err = givenExpression(name, word)
		if err == nil && (value.IsNull() || !value.CanIterateElements() || expr.IsObject(value) != expr.IsObject(def)) {
			err = fmt.Errorf("it is %s", expr.Describe(value))
		}
	}
	arg := b.Arg("default")
	switch {
	case err != nil && f.Scope.Secrets[name]:
		f.Error(arg.NameAt, "Wrong type of -var",
			"-var %s=...: the value must be of the default's kind. It is not shown, as the variable is sensitive.", name)
		return cty.DynamicVal
	case err != nil:
		arg.Error("Wrong type of -var",
			"-var %s=%s: the default of variable %q is %s, so the value must be one too: %s.", name, word, name, expr.Describe(def), err)
		return cty.DynamicVal
	}
	if value.Type() == cty.Number {
		f.Scope.Numbers[name] = word
	}
	return value
}

// givenExpression reads a -var value that must be a list or an object.
func givenExpression(name, word string) (cty.Value, error) {
	filename := "-var " + name
	if problem := expr.CheckShape([]byte(word), filename); problem != nil {
		return cty.NilVal, fmt.Errorf("it is too complex")
	}
	parsed, diags := hclsyntax.ParseExpression([]byte(word), filename, hcl.InitialPos)
	value := cty.DynamicVal
	if !diags.HasErrors() {
		alone := expr.New(expr.NewScope(filename, []byte(word)))
		alone.Prepare(parsed)
		value, diags = alone.Limited(parsed, &hcl.EvalContext{})
		diags = append(diags, alone.Diags...)
	}
	if diags.HasErrors() {
		return cty.NilVal, fmt.Errorf("column %d: %s", diagnostic.Subject(diags[0]).Start.Column, diags[0].Summary)
	}
	return value, nil
}

// checkVars reports every -var that no variable block declares.
func checkVars(f *File) {
	for _, name := range slices.Sorted(maps.Keys(f.Vars)) {
		if f.Scope.Declares(name) || f.Partial {
			continue
		}
		detail := fmt.Sprintf("-var %s: %s declares no variable %q.", name, f.Name, name)
		names := f.Scope.Names()
		if near := text.Nearest(name, names, 2); near != "" {
			detail += fmt.Sprintf(" Did you mean -var %s=...?", near)
		} else if len(names) > 0 {
			detail += " It declares " + expr.List(names) + "."
		}
		f.Diags = append(f.Diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Undeclared variable", Detail: detail})
	}
}

// WarnUnused warns of variables that nothing refers to.
func (f *File) WarnUnused(blocks []*Block) {
	if f.Diags.HasErrors() {
		return
	}
	for _, b := range blocks {
		if !f.IsUsed(b.Label) && !b.Bare {
			f.Warn(b.NameAt, "Unused variable", "Nothing refers to var.%s: it has no effect.", b.Label)
		}
	}
}

// secretDefault evaluates the default of a sensitive variable. What it says stands in the job
// file, but goes no further.
func secretDefault(b *Block, def *Arg) (cty.Value, bool) {
	f := b.File
	known := len(f.Diags)
	value, ok := f.Value(def.Expr)
	if !ok {
		f.Diags = f.Diags[:known]
		f.Error(b.At, "Invalid default", "The default of variable %q is no value. What is wrong with it is not shown, as the variable is sensitive. Text stands in quotes.", b.Label)
		return value, false
	}
	isEmpty := value.IsNull() || value.Type() == cty.String && value.AsString() == "" || value.CanIterateElements() && value.LengthInt() == 0
	if !isEmpty { // else it only says what a value looks like
		f.Warn(b.At, "Secret in the job file", "The default of the sensitive variable %q can be read by whoever reads this file. Leave it out, and give the value when the job is started.", b.Label)
	}
	return value, true
}

// SecretLines are the lines of a job file in which the default of a sensitive variable may
// stand: all within its block, whatever the parser made of them.
func SecretLines(name string, source []byte) map[int]bool {
	lines := map[int]bool{}
	hide := func(first, last int) {
		for line := first; line <= last; line++ {
			lines[line] = true
		}
	}
	secret := []byte("sensitive")
	if expr.CheckShape(source, name) != nil || !bytes.Contains(source, secret) {
		return lines
	}
	if IsJSON(name) {
		hide(1, bytes.Count(source, []byte("\n"))+1)
		return lines
	}
	file, _ := hclsyntax.ParseConfig(source, name, hcl.InitialPos)
	for _, block := range file.Body.(*hclsyntax.Body).Blocks {
		at := hcl.RangeBetween(block.TypeRange, block.Range())
		if block.Type != "variable" || !at.CanSliceBytes(source) || !bytes.Contains(at.SliceBytes(source), secret) {
			continue
		}
		first := at.Start.Line
		if at.End.Line > first {
			first++ // the block's own name may be shown
		}
		hide(first, at.End.Line)
	}
	return lines
}
