package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

var ranksSchema = schema{
	where: "a ranks block",
	attrs: []attrSchema{
		{name: "per_host"},
		{name: "backend"},
		{name: "devices"},
		{name: "shared"},
		{name: "min_free"},
		{name: "visibility"},
		{name: "device_names"},
		{name: "groups"},
		{name: "equal"},
		{name: "bind"},
	},
}

// hostRanksSchema is a ranks block within a host block.
var hostRanksSchema = schema{
	where: "the ranks block of one host",
	attrs: []attrSchema{{name: "per_host"}, {name: "devices"}},
	hint:  "It takes the arguments devices, per_host; the others are for all hosts: write them in the job's own ranks block.",
}

// maxPerHost bounds per_host: beyond it a number is a slip.
const maxPerHost = 1024

// Bounds of min_free.
const (
	minMinFree = 1 << 20
	maxMinFree = 16 << 40
)

var (
	backends     = []string{"nccl", "gloo", "none"}
	visibilities = []string{"host", "rank"}
	namings      = []string{"uuid", "index"}
	bindings     = []string{"numa", "none"}
)

// ranks are the values of a ranks block.
type ranks struct {
	perHost   rankCount
	devices   Devices
	backend   string
	placement Placement
	attrs     map[string]*hclsyntax.Attribute // what is written, for checks across hosts
}

func (d *decoder) ranks(block *hclsyntax.Block) ranks {
	c := content{}
	if block != nil {
		c = d.content(block.Body, block.DefRange(), ranksSchema)
	}
	return ranks{
		perHost:   d.perHost(c.attrs["per_host"], rankCount{}),
		devices:   d.devices(c.attrs["devices"], Devices{Kind: DevicesAll}),
		backend:   d.oneOf(c.attrs["backend"], "", backends),
		placement: d.placement(c),
		attrs:     c.attrs,
	}
}

func (d *decoder) placement(c content) Placement {
	return Placement{
		Groups:      d.groups(c.attrs["groups"]),
		Equal:       d.bool(c.attrs["equal"]),
		Shared:      d.bool(c.attrs["shared"]),
		Visibility:  d.oneOf(c.attrs["visibility"], "", visibilities),
		DeviceNames: d.oneOf(c.attrs["device_names"], "", namings),
		Bind:        d.oneOf(c.attrs["bind"], "numa", bindings),
		MinFree:     d.size(c.attrs["min_free"], 0, minMinFree, maxMinFree),

		VisibilityAt:  d.valueAt(c.attrs["visibility"]),
		DeviceNamesAt: d.valueAt(c.attrs["device_names"]),
	}
}

// valueAt is where the value of an attribute is written; "" where none is.
func (d *decoder) valueAt(attr *hclsyntax.Attribute) string {
	if attr == nil || !d.isSet(attr) {
		return ""
	}
	return placeOf(attr.Expr.Range())
}

// overrideRanks applies the ranks block of a host block.
func (d *decoder) overrideRanks(host *Host, block *hclsyntax.Block) {
	if block == nil {
		return
	}
	c := d.content(block.Body, block.DefRange(), hostRanksSchema)
	host.setRanks(d.perHost(c.attrs["per_host"], host.ranks()))
	host.Devices = d.devices(c.attrs["devices"], host.Devices)
}

// rankCount is what per_host says, and where.
type rankCount struct {
	n      int  // 0: the plan counts
	perGPU bool // "gpu" is written
	at     hcl.Range
}

func (h *Host) ranks() rankCount { return rankCount{h.PerHost, h.PerGPU, h.perHostAt} }

func (h *Host) setRanks(count rankCount) {
	h.PerHost, h.PerGPU, h.perHostAt = count.n, count.perGPU, count.at
}

// perHost is how many ranks a host has; def where nothing is written. What is wrong
// counts as not known, so that nothing is concluded from it.
func (d *decoder) perHost(attr *hclsyntax.Attribute, def rankCount) rankCount {
	if attr == nil {
		return def
	}
	count := rankCount{at: attr.Expr.Range()}
	value, ok := d.value(attr.Expr)
	switch {
	case !ok:
		return count
	case value.IsNull():
		return def
	case value.Type() == cty.String && value.AsString() == "gpu":
		count.perGPU = true
		return count
	}
	if count.n, ok = d.wholeNumber(value); !ok || count.n < 1 || count.n > maxPerHost {
		d.error(attr.Expr.Range(), "Invalid number of ranks",
			"per_host is a whole number from 1 to %d, or \"gpu\" for one rank per GPU, not %s.", maxPerHost, describe(value))
		count.n = 0
	}
	return count
}
