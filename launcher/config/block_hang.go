package config

import (
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Hang says when nothing moves any more, and what happens then.
type Hang struct {
	Silence time.Duration // without output, progress and work
	Action  string        // HangReport unless set
	Stacks  bool          // where ranks are is found out; true unless set
	Signal  string        // that has programs which catch it say so: "SIGUSR1" unless set, "SIGUSR2", NoSignal
}

// NoSignal is a program that is sent no signal.
const NoSignal = "none"

// What happens when nothing moves any more.
const (
	HangReport  = "report"  // it is said
	HangRestart = "restart" // the attempt has failed, and the restart block decides
	HangStop    = "stop"    // the run has failed
)

var hangSchema = schema{
	where:     "a hang block",
	attrs:     []attrSchema{{name: "silence"}, {name: "action"}, {name: "stacks"}, {name: "signal"}},
	elsewhere: map[string]string{"timeout": `silence = "10m"`, "after": `silence = "10m"`, "limit": `silence = "10m"`},
}

// Bounds of silence.
const (
	defaultSilence = 10 * time.Minute
	minSilence     = 2 * time.Second
	maxSilence     = 30 * 24 * time.Hour
)

// hang decodes a hang block, nil where there is none. restarts is whether there is a restart
// block.
func (d *decoder) hang(block *hclsyntax.Block, restarts bool) *Hang {
	if block == nil {
		return nil
	}
	c := d.content(block.Body, block.DefRange(), hangSchema)
	h := &Hang{
		Silence: d.duration(c.attrs["silence"], defaultSilence, minSilence, maxSilence),
		Action:  d.oneOf(c.attrs["action"], HangReport, []string{HangReport, HangRestart, HangStop}),
		Stacks:  true,
		Signal:  d.oneOf(c.attrs["signal"], "SIGUSR1", []string{"SIGUSR1", "SIGUSR2", NoSignal}),
	}
	if known := len(d.diags); d.isSet(c.attrs["stacks"]) {
		h.Stacks = d.bool(c.attrs["stacks"]) || len(d.diags) > known
	}
	if !h.Stacks && d.isSet(c.attrs["signal"]) {
		d.warn(c.attrs["signal"].Expr.Range(), "No effect", "With stacks = false no program is asked where it is.")
	}
	if h.Action == HangRestart && !restarts {
		d.missing(c.attrs["action"].Expr.Range(), "No restart block", "action = \"restart\" leaves it to the restart block how often and with what changes, and there is none: write restart { attempts = 1 }.")
	}
	return h
}
