package decode

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// native is an expression as the native syntax has it. One of a JSON file is made of its
// lists, objects and values; its strings are templates, as HCL's specification says.
func native(f *File, expr hcl.Expression) hclsyntax.Expression {
	if expr, is := expr.(hclsyntax.Expression); is {
		return expr
	}
	made := fromJSON(f, expr)
	f.prepare(made)
	return made
}

func fromJSON(f *File, expr hcl.Expression) hclsyntax.Expression {
	at := expr.Range()
	if list, diags := hcl.ExprList(expr); !diags.HasErrors() {
		tuple := &hclsyntax.TupleConsExpr{SrcRange: at, OpenRange: expr.StartRange()}
		for _, element := range list {
			tuple.Exprs = append(tuple.Exprs, fromJSON(f, element))
		}
		return tuple
	}
	if pairs, diags := hcl.ExprMap(expr); !diags.HasErrors() {
		object := &hclsyntax.ObjectConsExpr{SrcRange: at, OpenRange: expr.StartRange()}
		for _, pair := range pairs {
			item := hclsyntax.ObjectConsItem{KeyExpr: fromJSON(f, pair.Key), ValueExpr: fromJSON(f, pair.Value)}
			object.Items = append(object.Items, item)
		}
		return object
	}
	value, _ := expr.Value(nil)
	if value.Type() != cty.String || value.IsNull() {
		return &hclsyntax.LiteralValueExpr{Val: value, SrcRange: at}
	}
	inside := at.Start // behind the quote
	inside.Byte++
	inside.Column++
	template, diags := hclsyntax.ParseTemplate([]byte(value.AsString()), at.Filename, inside)
	f.diags = append(f.diags, diags...)
	if diags.HasErrors() {
		return unknownAt(at)
	}
	return template
}

// unknownAt stands for an expression that has errors, so that those of the rest are found.
func unknownAt(at hcl.Range) hclsyntax.Expression {
	return &hclsyntax.LiteralValueExpr{Val: cty.DynamicVal, SrcRange: at}
}
