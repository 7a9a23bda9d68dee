package agent

import (
	"context"
	"errors"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// eventWait is how long a plugin waits for an event before it answers that there is none.
	eventWait = 5 * time.Second
	// mostReported bounds what is told of devices within an attempt.
	mostReported = 64
	// mostDeaths is how often a plugin that watches may die or hang within an attempt.
	mostDeaths = 3
	// deathPause is how long is waited before it is started anew.
	deathPause = time.Second
)

// ears are what is heard of the devices of an attempt.
type ears struct {
	deaf     string            // why nothing is; "": all is well
	deafTo   map[string]string // GPUs of which nothing is, as gpu.Events has them
	reported int
	once     map[string]bool // what is told only once
}

func newEars() ears { return ears{deaf: "nobody listens yet", once: map[string]bool{}} }

// listenToDriver has the first plugin watch, by a process of its own: a watch keeps the
// driver open, and may hang. What can be heard is up to the plugin; whatever becomes of it
// the attempt goes on.
func (a *agent) listenToDriver(ctx context.Context, attempt int) {
	plugin := a.look.first(a.place, a.plugins)
	if plugin == nil {
		a.loop.Post(func() { a.heardNothing(attempt, errors.New("nvidia-smi tells of no events"), false) })
		return
	}
	defer plugin.Close() // what cannot be ended the keeper sees to
	listened := false
	for deaths := 0; ctx.Err() == nil; {
		heard, err := plugin.WatchEvents(ctx, eventWait)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			listened = true
			a.loop.Post(func() { a.heard(attempt, heard) })
			continue
		}
		deaths++
		again := listened && deaths < mostDeaths
		a.loop.Post(func() { a.heardNothing(attempt, err, listened) })
		if !again {
			return
		}
		select {
		case <-time.After(deathPause):
		case <-ctx.Done():
		}
	}
}

// heardNothing: nobody listens any more. One who did before is told of to the user.
func (a *agent) heardNothing(attempt int, err error, listened bool) {
	if attempt != a.attempt || a.sight.stop == nil {
		return
	}
	a.sight.ears.deaf = ownWords(err).Error()
	if listened && !a.sight.ears.once["deaf"] {
		a.sight.ears.once["deaf"] = true
		a.loop.Warn(loop.Host, "errors of its GPUs may be missed: %v; the run goes on", ownWords(err))
	}
}

// heard takes in what the driver reports.
func (a *agent) heard(attempt int, all *gpu.Events) {
	if attempt != a.attempt || a.sight.stop == nil {
		return
	}
	a.sight.ears.deaf, a.sight.ears.deafTo = "", all.Unsupported
	for _, e := range all.Events {
		at := link.Now()
		if e.At > 0 {
			at = min(at, link.Instant(e.At*float64(time.Second)))
		}
		a.report(e, at)
	}
}

// report tells the coordinator of an event, within bounds: what comes in floods is told
// once for each GPU.
func (a *agent) report(e gpu.Event, at link.Instant) {
	ears := &a.sight.ears
	if e.Kind == gpu.EventSingleBit || e.Kind == gpu.EventLost {
		key := e.Kind + e.UUID + e.PCI
		if ears.once[key] {
			return
		}
		ears.once[key] = true
	}
	if ears.reported++; ears.reported > mostReported {
		if !ears.once["many"] {
			ears.once["many"] = true
			a.loop.Warn(loop.Host, "its GPUs have had more than %d errors; further ones are not told", mostReported)
		}
		return
	}
	a.loop.ReportAt(message.Update{Device: &message.DeviceEvent{Attempt: a.attempt, Kind: e.Kind, UUID: a.deviceIn(e), PCI: e.PCI, Xid: e.Xid, Text: e.Text}}, at)
}

// deviceIn is the UUID of what an event is about: of a MIG instance, where it is one.
func (a *agent) deviceIn(e gpu.Event) string {
	newest := a.sight.looks[0].found
	if e.GI == nil || newest == nil {
		return e.UUID
	}
	for _, g := range newest.GPUs {
		if g.UUID == e.UUID {
			return g.DeviceOf(gpu.Process{GI: e.GI, CI: e.CI})
		}
	}
	return e.UUID
}

var _ gpu.EventWatcher = (*external.Prober)(nil)
