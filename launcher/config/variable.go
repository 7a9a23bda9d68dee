package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

var variableSchema = schema{
	where: "a variable block",
	attrs: []attrSchema{{name: "default"}, {name: "description"}, {name: "sensitive"}},
}

// variables gives every declared variable its value: what -var says, converted to
// the type of the default, or the default.
func (d *decoder) variables(blocks []*hclsyntax.Block) {
	declared := map[string]*hclsyntax.Block{}
	for _, block := range blocks {
		name, at := label(block)
		switch first := declared[name]; {
		case name == "" && len(block.Labels) == 0:
			continue // reported with the labels
		case !hclsyntax.ValidIdentifier(name):
			d.error(at, "Invalid variable name", "%q cannot be written as var.NAME: use letters, digits, _ and -, and begin with a letter.", name)
			continue
		case first != nil:
			d.errorAlso(at, first.LabelRanges[0], "Repeated variable",
				"Variable %q was declared at %s already.", name, first.LabelRanges[0])
			continue
		}
		declared[name] = block
		d.scope.vars[name] = d.variable(name, block)
	}
	d.checkVars()
}

// label is the block's label with its place, or the block's type and "".
func label(block *hclsyntax.Block) (string, hcl.Range) {
	if len(block.Labels) == 0 {
		return "", block.TypeRange
	}
	return block.Labels[0], block.LabelRanges[0]
}

func (d *decoder) variable(name string, block *hclsyntax.Block) cty.Value {
	c := d.content(block.Body, block.DefRange(), variableSchema)
	d.string(c.attrs["description"])
	if d.bool(c.attrs["sensitive"]) {
		d.scope.secrets[name] = true
		return secret(d.variableValue(name, block, c.attrs["default"]))
	}
	return d.variableValue(name, block, c.attrs["default"])
}

func (d *decoder) variableValue(name string, block *hclsyntax.Block, attr *hclsyntax.Attribute) cty.Value {
	given, isGiven := d.src.Vars[name]
	switch {
	case attr == nil && isGiven:
		return cty.StringVal(given)
	case attr == nil:
		d.missing(block.DefRange(), "Variable without a value",
			"Variable %q has no default: give it a value with -var %s=VALUE.", name, name)
		return cty.DynamicVal
	}
	def, ok := d.defaultOf(name, block, attr)
	switch {
	case !ok:
		return cty.DynamicVal
	case isGiven:
		return d.given(name, given, def, attr)
	}
	d.scope.numbers[name] = d.scope.written(attr.Expr)
	return def
}

func (d *decoder) defaultOf(name string, block *hclsyntax.Block, attr *hclsyntax.Attribute) (cty.Value, bool) {
	if d.scope.secrets[name] {
		return d.secretDefault(name, attr, block.DefRange())
	}
	return d.value(attr.Expr)
}

// given converts what -var says to the type of the default.
func (d *decoder) given(name, text string, def cty.Value, attr *hclsyntax.Attribute) cty.Value {
	var value cty.Value
	var err error
	switch t := def.Type(); {
	case def.IsNull() || t == cty.String:
		return cty.StringVal(text)
	case t == cty.Number || t == cty.Bool:
		value, err = convert.Convert(cty.StringVal(text), t)
		if err == nil && t == cty.Number && !sensible(value) {
			err = fmt.Errorf("the number is too large or too small")
		}
	default:
		value, err = d.givenExpression(name, text)
		if err == nil && !sameKind(value, def) {
			err = fmt.Errorf("it is %s", describe(value))
		}
	}
	if err != nil && d.scope.secrets[name] {
		d.error(attr.NameRange, "Wrong type of -var",
			"-var %s=...: the value must be of the default's kind. It is not shown, as the variable is sensitive.", name)
		return cty.DynamicVal
	}
	if err != nil {
		d.error(attr.Expr.Range(), "Wrong type of -var",
			"-var %s=%s: the default of variable %q is %s, so the value must be one too: %s.", name, text, name, describe(def), err)
		return cty.DynamicVal
	}
	if value.Type() == cty.Number {
		d.scope.numbers[name] = text
	}
	return value
}

// givenExpression reads a -var value that must be a list or an object.
func (d *decoder) givenExpression(name, text string) (cty.Value, error) {
	filename := "-var " + name
	if problem := checkShape([]byte(text), filename); problem != nil {
		return cty.NilVal, fmt.Errorf("it is too complex")
	}
	expr, diags := hclsyntax.ParseExpression([]byte(text), filename, hcl.InitialPos)
	if diags.HasErrors() {
		return cty.NilVal, fmt.Errorf("column %d: %s", diags[0].Subject.Start.Column, diags[0].Summary)
	}
	d.prepare(expr, []byte(text))
	value, diags := metered{expr}.Value(&hcl.EvalContext{Variables: map[string]cty.Value{
		meterName: meterValue(envBudget, d.scope),
	}})
	if diags.HasErrors() {
		return cty.NilVal, fmt.Errorf("column %d: %s", subject(diags[0]).Start.Column, diags[0].Summary)
	}
	return value, nil
}

// sameKind is whether both are lists or both are objects.
func sameKind(a, b cty.Value) bool {
	isList := func(v cty.Value) bool {
		t := v.Type()
		return t.IsTupleType() || t.IsListType() || t.IsSetType()
	}
	isObject := func(v cty.Value) bool { return v.Type().IsObjectType() || v.Type().IsMapType() }
	return isList(a) && isList(b) || isObject(a) && isObject(b)
}

// checkVars reports every -var that no variable block declares.
func (d *decoder) checkVars() {
	for _, name := range slices.Sorted(maps.Keys(d.src.Vars)) {
		if _, declared := d.scope.vars[name]; declared || d.partial {
			continue
		}
		detail := fmt.Sprintf("-var %s: %s declares no variable %q.", name, d.src.Filename, name)
		if near := text.Nearest(name, d.scope.varNames(), 2); near != "" {
			detail += fmt.Sprintf(" Did you mean -var %s=...?", near)
		} else if names := d.scope.varNames(); len(names) > 0 {
			detail += " It declares " + list(names) + "."
		}
		d.diags = append(d.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Undeclared variable", Detail: detail})
	}
}

// warnUnused warns of variables that nothing refers to.
func (d *decoder) warnUnused(blocks []*hclsyntax.Block) {
	if d.diags.HasErrors() {
		return
	}
	for _, block := range blocks {
		if name, at := label(block); !d.used[name] && !d.usedAll {
			d.warn(at, "Unused variable", "Nothing refers to var.%s: it has no effect.", name)
		}
	}
}
