package config

import (
	"reflect"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// A few lines of HCL can ask for more values than a machine has memory: nested
// for expressions, a string that is replaced by itself. Evaluation is therefore
// metered. Every place where a value can be made larger than its parts is wrapped
// when the file is parsed; the wrapper charges what the value weighs to the meter
// of the evaluation, which travels in the context. Spent meters yield unknown
// values, so what is left of the evaluation ends quickly.
const (
	evaluateBudget = 8 << 20 // for a whole job file
	envBudget      = 4 << 20 // for the env of one rank
	stepWeight     = 32      // of one evaluation, beside its value
	errorWeight    = 1000    // a loop that fails each time must end soon
	maxExponent    = 4096    // of a number, in bits; beyond it digits are no longer few
	meterName      = "\x00meter"
)

type meter struct {
	left  int
	told  bool
	scope *scope
}

var meterType = cty.Capsule("meter", reflect.TypeFor[meter]())

func meterValue(budget int, s *scope) cty.Value {
	return cty.CapsuleVal(meterType, &meter{left: budget, scope: s})
}

func meterOf(ctx *hcl.EvalContext) *meter {
	for ; ctx != nil; ctx = ctx.Parent() {
		if value, ok := ctx.Variables[meterName]; ok {
			return value.EncapsulatedValue().(*meter)
		}
	}
	return &meter{}
}

// metered is an expression whose value is charged.
type metered struct{ hclsyntax.Expression }

// UnwrapExpression is how hcl's static analysis looks through wrappers.
func (e metered) UnwrapExpression() hcl.Expression { return e.Expression }

// Value evaluates the expression unless the meter is spent.
func (e metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	m := meterOf(ctx)
	if m.left <= 0 {
		return cty.DynamicVal, m.tell(e.Range())
	}
	value, diags := e.Expression.Value(ctx)
	m.left -= stepWeight + errorWeight*len(diags)
	if !m.charge(value) {
		return cty.DynamicVal, append(diags, hugeNumber(e.Range()))
	}
	if m.left <= 0 {
		return cty.DynamicVal, append(diags, m.tell(e.Range())...)
	}
	return value, diags
}

// tell reports the spent meter once.
func (m *meter) tell(at hcl.Range) hcl.Diagnostics {
	if m.told {
		return nil
	}
	m.told = true
	return hcl.Diagnostics{{
		Severity: hcl.DiagError,
		Summary:  "Expression too large",
		Detail:   "This makes more values or longer strings than a job file may have. Make them in the training script instead.",
		Subject:  &at,
	}}
}

func hugeNumber(at hcl.Range) *hcl.Diagnostic {
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Number out of range",
		Detail:   "This number is too large or too small to be written out, or the result of a division by zero.",
		Subject:  &at,
	}
}

// charge takes what value weighs from the meter. It is false when value holds a
// number with more digits than can be sensible.
func (m *meter) charge(value cty.Value) bool {
	value, _ = value.Unmark()
	if m.left -= 8; m.left <= 0 || value.IsNull() || !value.IsKnown() {
		return true
	}
	switch t := value.Type(); {
	case t == cty.String:
		m.left -= len(value.AsString())
	case t == cty.Number:
		return sensible(value)
	case value.CanIterateElements():
		for it := value.ElementIterator(); it.Next() && m.left > 0; {
			key, element := it.Element()
			if !m.charge(key) || !m.charge(element) {
				return false
			}
		}
	}
	return true
}

func sensible(number cty.Value) bool {
	f := number.AsBigFloat()
	exponent := f.MantExp(nil)
	return !f.IsInf() && -maxExponent <= exponent && exponent <= maxExponent
}

// interpolated is a part of a template. A number in it is written as in the file.
type interpolated struct{ metered }

// Value is the part's value, a string where it is a number.
func (e interpolated) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	value, diags := e.metered.Value(ctx)
	plain, marks := value.Unmark()
	if plain.IsKnown() && !plain.IsNull() && plain.Type() == cty.Number {
		return cty.StringVal(meterOf(ctx).scope.number(e.Expression, plain)).WithMarks(marks), diags
	}
	return value, diags
}

// addMeters wraps the expressions below node.
func addMeters(node hclsyntax.Node) {
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		if expr, ok := n.(hclsyntax.Expression); ok {
			meterChildren(unwrap(expr))
		}
		return nil
	})
}

func meterChildren(expr hclsyntax.Expression) {
	switch e := expr.(type) {
	case *hclsyntax.ForExpr:
		meterSlots(&e.CollExpr, &e.KeyExpr, &e.ValExpr, &e.CondExpr)
	case *hclsyntax.FunctionCallExpr:
		meterList(e.Args)
	case *hclsyntax.TemplateExpr:
		for i, part := range e.Parts {
			if _, isLiteral := part.(*hclsyntax.LiteralValueExpr); !isLiteral || !e.IsStringLiteral() {
				e.Parts[i] = interpolated{metered{part}}
			}
		}
	case *hclsyntax.TemplateWrapExpr:
		meterSlots(&e.Wrapped)
	case *hclsyntax.TemplateJoinExpr:
		meterSlots(&e.Tuple)
	case *hclsyntax.TupleConsExpr:
		meterList(e.Exprs)
	case *hclsyntax.ObjectConsExpr:
		for i := range e.Items {
			meterSlots(&e.Items[i].ValueExpr)
		}
	case *hclsyntax.ObjectConsKeyExpr:
		if e.ForceNonLiteral {
			meterSlots(&e.Wrapped)
		}
	case *hclsyntax.BinaryOpExpr:
		meterSlots(&e.LHS, &e.RHS)
	case *hclsyntax.UnaryOpExpr:
		meterSlots(&e.Val)
	case *hclsyntax.ConditionalExpr:
		meterSlots(&e.Condition, &e.TrueResult, &e.FalseResult)
	case *hclsyntax.IndexExpr:
		meterSlots(&e.Collection, &e.Key)
	case *hclsyntax.SplatExpr:
		meterSlots(&e.Source)
	case *hclsyntax.RelativeTraversalExpr:
		meterSlots(&e.Source)
	case *hclsyntax.ParenthesesExpr:
		meterSlots(&e.Expression)
	}
}

func meterList(exprs []hclsyntax.Expression) {
	for i := range exprs {
		meterSlots(&exprs[i])
	}
}

func meterSlots(slots ...*hclsyntax.Expression) {
	for _, slot := range slots {
		switch (*slot).(type) {
		case nil, metered, interpolated:
		default:
			*slot = metered{*slot}
		}
	}
}

// unwrap is the expression below meters.
func unwrap(expr hclsyntax.Expression) hclsyntax.Expression {
	for {
		switch e := expr.(type) {
		case metered:
			expr = e.Expression
		case interpolated:
			expr = e.Expression
		default:
			return expr
		}
	}
}
