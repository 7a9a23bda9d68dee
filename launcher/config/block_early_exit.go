package config

import (
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

var earlyExitSchema = schema{
	where: "an early_exit block",
	attrs: []attrSchema{{name: "notice"}, {name: "limit"}},
}

const (
	defaultEarlyNotice = 30 * time.Second
	defaultEarlyLimit  = 10 * time.Minute
	maxEarly           = 30 * 24 * time.Hour
)

func (d *decoder) earlyExit(block *hclsyntax.Block) EarlyExit {
	early := EarlyExit{Notice: defaultEarlyNotice, Limit: defaultEarlyLimit}
	if block == nil {
		return early
	}
	c := d.content(block.Body, block.DefRange(), earlyExitSchema)
	early.Notice = d.duration(c.attrs["notice"], defaultEarlyNotice, 0, maxEarly)
	early.Limit = d.duration(c.attrs["limit"], defaultEarlyLimit, time.Second, maxEarly)
	return early
}
