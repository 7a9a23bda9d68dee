package expr

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
)

// A few lines of HCL can ask for more values than a machine has memory: nested for
// expressions, a string that is replaced by itself. What one expression may come to is
// therefore limited, and the time that it takes.
const (
	maxWeight   = 4 << 20 // bytes of a value, counting 8 for each part of it
	maxTime     = 3 * time.Second
	maxExponent = 4096 // of a number, in bits; beyond it digits are no longer few
)

// Value evaluates an expression. ok is false where the value cannot be used: an error was
// reported here, or earlier for something that it refers to.
func (f *Evaluator) Value(expr hclsyntax.Expression) (value cty.Value, ok bool) {
	if expr == nil || !f.checkNames(expr) {
		return cty.DynamicVal, false
	}
	value, ok = f.Evaluate(expr, f.Scope.Context(nil))
	if ok && value.ContainsMarked() {
		f.Error(expr.Range(), "Sensitive value",
			"This comes of a sensitive variable, and would be seen by others here: in lists of processes, plans or logs. Pass it in env, and let the program read it there.")
		return cty.DynamicVal, false
	}
	return value, ok
}

// Evaluate is Value for an expression whose names are known to be good; it may be sensitive.
func (f *Evaluator) Evaluate(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, bool) {
	if f.tooLong {
		return cty.DynamicVal, false
	}
	value, diags := f.Limited(expr, ctx)
	if len(diags) > 0 && f.Scope.refersToSecret(expr) {
		diags = withoutValues(diags)
	}
	f.Diags = append(f.Diags, diags...)
	return value, !diags.HasErrors() && value.IsWhollyKnown()
}

// Limited evaluates within MaxTime. HCL cannot be interrupted; but loops over range end early,
// and what else goes on ends with the program.
func (f *Evaluator) Limited(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if literal, is := expr.(*hclsyntax.LiteralValueExpr); is {
		return literal.Val, nil
	}
	stop := &atomic.Bool{}
	ctx = ctx.NewChild()
	ctx.Functions = map[string]function.Function{"range": rangeUntil(stop)}
	var value cty.Value
	var diags hcl.Diagnostics
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, diags = expr.Value(ctx)
	}()
	timer := time.NewTimer(f.MaxTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		stop.Store(true)
		f.tooLong = true
		return cty.DynamicVal, tooLarge(expr.Range())
	case <-done:
	}
	diags = diags[:min(len(diags), diagnostic.MaxPrinted)] // a loop may fail each time
	weight, fine := weigh(value, maxWeight)
	switch {
	case !fine:
		return cty.DynamicVal, append(diags, hugeNumber(expr.Range()))
	case weight > maxWeight:
		return cty.DynamicVal, append(diags, tooLarge(expr.Range())...)
	}
	return value, diags
}

// rangeUntil is range until the evaluation has taken too long.
func rangeUntil(stop *atomic.Bool) function.Function {
	return limited(stdlib.RangeFunc, func([]cty.Value) error {
		if stop.Load() {
			return errResult
		}
		return nil
	})
}

func tooLarge(at hcl.Range) hcl.Diagnostics {
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

// weigh is how large a value is, as far as it is not over a limit. fine is false where it holds
// a number with more digits than can be sensible.
func weigh(value cty.Value, limit int) (weight int, fine bool) {
	value, _ = value.Unmark()
	weight = 8
	switch {
	case value.IsNull() || !value.IsKnown():
	case value.Type() == cty.String:
		weight += len(value.AsString())
	case value.Type() == cty.Number:
		return weight, Sensible(value)
	case value.CanIterateElements():
		for it := value.ElementIterator(); it.Next() && weight <= limit; {
			key, element := it.Element()
			for _, part := range []cty.Value{key, element} {
				more, fine := weigh(part, limit-weight)
				if weight += more; !fine {
					return weight, false
				}
			}
		}
	}
	return weight, true
}

func Sensible(number cty.Value) bool {
	f := number.AsBigFloat()
	exponent := f.MantExp(nil)
	return !f.IsInf() && -maxExponent <= exponent && exponent <= maxExponent
}

// Prepare makes the expressions below node ready for evaluation. Numbers that no program could
// want are taken out, as writing them in digits would fill the memory, and parts of templates
// are wrapped.
func (f *Evaluator) Prepare(node hclsyntax.Node) {
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		switch e := n.(type) {
		case *hclsyntax.LiteralValueExpr:
			if e.Val.Type() == cty.Number && e.Val.IsKnown() && !e.Val.IsNull() && !Sensible(e.Val) {
				f.Diags = append(f.Diags, hugeNumber(e.SrcRange))
				e.Val = cty.UnknownVal(cty.Number)
			}
		case *hclsyntax.TemplateExpr:
			for i, part := range e.Parts {
				if literal, is := part.(*hclsyntax.LiteralValueExpr); !is || literal.Val.Type() != cty.String {
					e.Parts[i] = interpolated{part, f.Scope}
				}
			}
		}
		return nil
	})
}

// interpolated is a part of a template that is no text. A number in it is written as in the
// file, and the part alone is not larger than a whole value may be.
type interpolated struct {
	hclsyntax.Expression
	scope *Scope
}

// Value is the part's value, a string where it is a number.
func (e interpolated) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	value, diags := e.Expression.Value(ctx)
	weight, fine := weigh(value, maxResult)
	switch {
	case !fine:
		return cty.DynamicVal, append(diags, hugeNumber(e.Range()))
	case weight > maxResult:
		return cty.DynamicVal, append(diags, tooLarge(e.Range())...)
	}
	plain, marks := value.Unmark()
	if plain.IsKnown() && !plain.IsNull() && plain.Type() == cty.Number {
		return cty.StringVal(e.scope.Number(e.Expression, plain)).WithMarks(marks), diags
	}
	return value, diags
}

// Unwrap is the expression itself.
func Unwrap(expr hclsyntax.Expression) hclsyntax.Expression {
	if part, is := expr.(interpolated); is {
		return part.Expression
	}
	return expr
}
