package config

import (
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

var ranksSchema = schema{
	where: "a ranks block",
	attrs: []attrSchema{{name: "per_host"}, {name: "backend"}},
}

// hostRanksSchema is a ranks block within a host block.
var hostRanksSchema = schema{
	where: "the ranks block of one host",
	attrs: []attrSchema{{name: "per_host"}},
}

// maxPerHost bounds per_host: beyond it a number is a slip.
const maxPerHost = 1024

var backends = []string{"nccl", "gloo", "none"}

// ranks are the values of a ranks block.
type ranks struct {
	perHost int
	backend string
}

func (d *decoder) ranks(block *hclsyntax.Block) ranks {
	if block == nil {
		return ranks{}
	}
	c := d.content(block.Body, block.DefRange(), ranksSchema)
	perHost, _ := d.perHost(c.attrs["per_host"])
	return ranks{perHost, d.oneOf(c.attrs["backend"], "", backends)}
}

// perHost is how many ranks a host has; 0 stands for one per GPU, or as the plan
// decides. set is false where nothing usable is written.
func (d *decoder) perHost(attr *hclsyntax.Attribute) (n int, set bool) {
	value, ok := d.attr(attr)
	if !ok {
		return 0, false
	}
	if value.Type() == cty.String && value.AsString() == "gpu" {
		return 0, true
	}
	n, ok = d.wholeNumber(value)
	if !ok || n < 1 || n > maxPerHost {
		d.error(attr.Expr.Range(), "Invalid number of ranks",
			"per_host is a whole number from 1 to %d, or \"gpu\" for one rank per GPU, not %s.", maxPerHost, describe(value))
		return 0, false
	}
	return n, true
}
