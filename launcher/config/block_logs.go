package config

import (
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

var logsSchema = schema{
	where: "a logs block",
	attrs: []attrSchema{{name: "show"}},
}

// logs decodes a logs block. worldSize is 0 where the plan decides it.
func (d *decoder) logs(block *hclsyntax.Block, worldSize int) Logs {
	if block == nil {
		return Logs{}
	}
	c := d.content(block.Body, block.DefRange(), logsSchema)
	attr := c.attrs["show"]
	text, ok := d.rankList(attr)
	if !ok {
		return Logs{}
	}
	set, err := ParseRankSet(text)
	if err != nil {
		d.error(attr.Expr.Range(), "Invalid ranks", "%s.", capital(err.Error()))
	}
	if last := set.Last(); worldSize > 0 && last >= worldSize {
		d.warn(attr.Expr.Range(), "No such rank", "There is no rank %d: this job has the ranks 0 to %d.", last, worldSize-1)
	}
	return Logs{Show: set}
}

// rankList is a set of ranks as text: written so, as a number, or as a list.
func (d *decoder) rankList(attr *hclsyntax.Attribute) (string, bool) {
	value, ok := d.attr(attr)
	if !ok {
		return "", false
	}
	if text, ok := d.scope.scalar(attr.Expr, value); ok && value.Type() != cty.Bool {
		return text, true
	}
	elements, ok := d.elements(attr.Expr)
	if !ok {
		d.error(attr.Expr.Range(), "Wrong type", "show is \"all\", \"none\", ranks such as \"0,3-5\", or a list of ranks, not %s.", describe(value))
		return "", false
	}
	parts := make([]string, len(elements))
	for i, e := range elements {
		if parts[i], ok = d.scope.scalar(e.expr, e.value); !ok || e.value.Type() == cty.Bool {
			d.error(e.expr.Range(), "Wrong type", "A rank is a number, not %s.", describe(e.value))
			return "", false
		}
	}
	if len(parts) == 0 {
		return "none", true
	}
	return strings.Join(parts, ","), true
}
