package config

import (
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

var stopSchema = schema{
	where: "a stop block",
	attrs: []attrSchema{{name: "grace"}, {name: "signal"}},
}

const (
	defaultGrace  = 30 * time.Second
	maxGrace      = 24 * time.Hour
	defaultSignal = "SIGTERM"
)

var stopSignals = []string{"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT"}

func (d *decoder) stop(block *hclsyntax.Block) Stop {
	stop := Stop{Grace: defaultGrace, Signal: defaultSignal}
	if block == nil {
		return stop
	}
	c := d.content(block.Body, block.DefRange(), stopSchema)
	stop.Grace = d.duration(c.attrs["grace"], defaultGrace, 0, maxGrace)
	stop.Signal = d.oneOf(c.attrs["signal"], defaultSignal, stopSignals)
	return stop
}
