package config

import "github.com/hashicorp/hcl/v2/hclsyntax"

// Observe says what workers are made to tell of themselves.
type Observe struct {
	Torch    bool // torch's own numbers of GPU memory
	Snapshot bool // a file of torch's memory_snapshot on growth and out of memory
}

var observeSchema = schema{
	where: "an observe block",
	attrs: []attrSchema{{name: "torch"}, {name: "snapshot"}},
}

// observe decodes an observe block.
func (d *decoder) observe(block *hclsyntax.Block) Observe {
	if block == nil {
		return Observe{}
	}
	c := d.content(block.Body, block.DefRange(), observeSchema)
	o := Observe{Torch: d.bool(c.attrs["torch"]), Snapshot: d.bool(c.attrs["snapshot"])}
	at, set := d.written(c.attrs["snapshot"])
	switch {
	case set && o.Snapshot && !o.Torch:
		d.warn(at, "Without effect", "snapshot is written by what observe { torch = true } puts into the workers: set torch too.")
	case block.Body != nil && len(block.Body.Attributes) == 0:
		d.warn(block.DefRange(), "Without effect", "An observe block asks for something: torch = true has each rank tell what torch holds of GPU memory. Steps and values that programs tell need no block.")
	}
	return o
}
