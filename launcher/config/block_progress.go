package config

import (
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/muster-dev/muster/launcher/failure/progress"
)

// Progress says how one sees how far a run is.
type Progress struct {
	Pattern progress.Pattern // of a line; the zero value knows the usual forms
	Folder  string           // of checkpoints, on each host; "" for none
}

var progressSchema = schema{
	where: "a progress block",
	attrs: []attrSchema{{name: "pattern"}, {name: "folder"}},
}

// maxPattern bounds a pattern: it is tried on every line that a rank writes.
const maxPattern = 1000

// progress decodes a progress block.
func (d *decoder) progress(block *hclsyntax.Block) Progress {
	if block == nil {
		return Progress{}
	}
	c := d.content(block.Body, block.DefRange(), progressSchema)
	p := Progress{Folder: d.path(c.attrs["folder"])}
	known := len(d.diags)
	text := d.string(c.attrs["pattern"])
	if !d.isSet(c.attrs["pattern"]) || len(d.diags) > known {
		return p
	}
	at := c.attrs["pattern"].Expr.Range()
	pattern, err := progress.Compile(text)
	switch {
	case text == "":
		d.error(at, "Invalid pattern", "pattern is empty: write what a line of progress looks like, such as \"step ([0-9]+)\", or leave it out for the usual forms.")
	case len(text) > maxPattern:
		d.error(at, "Invalid pattern", "A pattern has at most %d characters, as it is tried on every line.", maxPattern)
	case err != nil:
		d.error(at, "Invalid pattern", "%s.", capital(strings.TrimSuffix(err.Error(), ".")))
	default:
		p.Pattern = pattern
	}
	return p
}
