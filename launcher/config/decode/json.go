package decode

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/zclconf/go-cty/cty"
)

// native is an expression as the native syntax has it. One of a JSON file is made of its
// lists, objects and values; its strings are templates, as HCL's specification says.
func native(f *File, e hcl.Expression) hclsyntax.Expression {
	if written, is := e.(hclsyntax.Expression); is {
		return written
	}
	made := fromJSON(f, e)
	f.Prepare(made)
	return made
}

func fromJSON(f *File, e hcl.Expression) hclsyntax.Expression {
	at := e.Range()
	if list, diags := hcl.ExprList(e); !diags.HasErrors() {
		tuple := &hclsyntax.TupleConsExpr{SrcRange: at, OpenRange: e.StartRange()}
		for _, element := range list {
			tuple.Exprs = append(tuple.Exprs, fromJSON(f, element))
		}
		return tuple
	}
	if pairs, diags := hcl.ExprMap(e); !diags.HasErrors() {
		object := &hclsyntax.ObjectConsExpr{SrcRange: at, OpenRange: e.StartRange()}
		for _, pair := range pairs {
			item := hclsyntax.ObjectConsItem{KeyExpr: fromJSON(f, pair.Key), ValueExpr: fromJSON(f, pair.Value)}
			object.Items = append(object.Items, item)
		}
		return object
	}
	value, _ := e.Value(nil)
	if value.Type() != cty.String || value.IsNull() {
		return &hclsyntax.LiteralValueExpr{Val: value, SrcRange: at}
	}
	inside := at.Start // behind the quote
	inside.Byte++
	inside.Column++
	template, diags := hclsyntax.ParseTemplate([]byte(value.AsString()), at.Filename, inside)
	f.Diags = append(f.Diags, diags...)
	if diags.HasErrors() {
		return expr.UnknownAt(at)
	}
	return template
}
