package config

import (
	"math"
	"math/big"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// number is how a number reaches a worker: as the job file or -var has it where
// the expression is that number, else as few digits as say it, without exponent.
func (s *scope) number(expr hclsyntax.Expression, value cty.Value) string {
	if written := s.written(expr); written != "" {
		return written
	}
	return digits(value.AsBigFloat())
}

// written is the source text of a number literal or of a variable that is one.
func (s *scope) written(expr hclsyntax.Expression) string {
	switch e := unwrap(expr).(type) {
	case *hclsyntax.LiteralValueExpr:
		return s.literals[e.SrcRange]
	case *hclsyntax.ParenthesesExpr:
		return s.written(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return s.written(e.Wrapped)
	case *hclsyntax.UnaryOpExpr:
		if written := s.written(e.Val); written != "" && written[0] != '-' && e.Op == hclsyntax.OpNegate {
			return "-" + written
		}
	case *hclsyntax.ScopeTraversalExpr:
		if name, ok := variableName(e.Traversal); ok && len(e.Traversal) == 2 {
			return s.numbers[name]
		}
	}
	return ""
}

// digits writes a computed number.
func digits(f *big.Float) string {
	if f.IsInt() {
		return f.Text('f', 0)
	}
	rounded, _ := f.Float64()
	if rounded == 0 || math.IsInf(rounded, 0) {
		return f.Text('f', -1)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// keepLiterals remembers how the numbers below node are written, and takes those
// out that no program could want: writing them in digits would fill the memory.
func (d *decoder) keepLiterals(node hclsyntax.Node, text []byte) {
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		literal, ok := n.(*hclsyntax.LiteralValueExpr)
		if !ok || literal.Val.Type() != cty.Number || literal.Val.IsNull() || !literal.Val.IsKnown() {
			return nil
		}
		if !sensible(literal.Val) {
			d.diags = append(d.diags, hugeNumber(literal.SrcRange))
			literal.Val = cty.UnknownVal(cty.Number)
			return nil
		}
		if literal.SrcRange.CanSliceBytes(text) {
			d.scope.literals[literal.SrcRange] = string(literal.SrcRange.SliceBytes(text))
		}
		return nil
	})
}
