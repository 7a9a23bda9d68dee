//go:build linux

package devices

import (
	"context"
	"errors"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// eventWait is how long a plug-in waits for an event before it answers that there is none.
	eventWait = 5 * time.Second
	// maxEvents bounds what is reported of devices within an attempt.
	maxEvents = 64
	// maxDeaths is how often a plug-in that watches may die or hang within an attempt.
	maxDeaths = 3
	// deathPause is the pause before it is started again.
	deathPause = time.Second
)

// driverEvents is what the driver reports of the devices within an attempt.
type driverEvents struct {
	unavailable string            // why it reports nothing; "": it does
	unsupported map[string]string // GPUs that it reports nothing of, as in gpu.Events
	reported    int
	once        map[string]bool // what is reported only once
}

func newDriverEvents() driverEvents {
	return driverEvents{unavailable: "nobody listens yet", once: map[string]bool{}}
}

func (e *driverEvents) first(what string) bool {
	seen := e.once[what]
	e.once[what] = true
	return !seen
}

// listen has the first plug-in wait for events, in a process of its own: that keeps the driver open, and may hang. The
// attempt goes on whatever becomes of it.
func (ws *Watcher) listen(ctx context.Context, w *watch) {
	plugin := ws.Flags.first(ws.Place, ws.Starter)
	if plugin == nil {
		ws.Loop.Post(func() { ws.eventsLost(w, errors.New("nvidia-smi tells of no events"), false) })
		return
	}
	defer plugin.Close() // the keeper sees to what cannot be ended
	listened := false
	for deaths := 0; ctx.Err() == nil; {
		received, err := plugin.WatchEvents(ctx, eventWait)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			listened = true
			ws.Loop.Post(func() { ws.takeEvents(w, received) })
			continue
		}
		deaths++
		ws.Loop.Post(func() { ws.eventsLost(w, err, listened) })
		if !listened || deaths >= maxDeaths {
			return
		}
		select {
		case <-time.After(deathPause):
		case <-ctx.Done():
		}
	}
}

// eventsLost notes that nobody listens any more; after a success the user is warned.
func (ws *Watcher) eventsLost(w *watch, err error, listened bool) {
	if w != ws.watch {
		return
	}
	w.events.unavailable = withoutPath(err).Error()
	if listened && w.events.first("lost") {
		ws.Loop.Warn(loop.Host, "errors of its GPUs may be missed: %v; the run goes on", withoutPath(err))
	}
}

func (ws *Watcher) takeEvents(w *watch, received *gpu.Events) {
	if w != ws.watch {
		return
	}
	w.events.unavailable, w.events.unsupported = "", received.Unsupported
	for _, e := range received.Events {
		at := link.Now()
		if e.At > 0 {
			at = min(at, link.Instant(e.At*float64(time.Second)))
		}
		ws.reportEvent(w, e, at)
	}
}

// reportEvent reports an event to the coordinator, within bounds: kinds that come in floods once for each GPU.
func (ws *Watcher) reportEvent(w *watch, e gpu.Event, at link.Instant) {
	if (e.Kind == gpu.EventSingleBit || e.Kind == gpu.EventLost) && !w.events.first(e.Kind+e.UUID+e.PCI) {
		return
	}
	if w.events.reported++; w.events.reported > maxEvents {
		if w.events.first("many") {
			ws.Loop.Warn(loop.Host, "its GPUs have had more than %d errors; further ones are not told", maxEvents)
		}
		return
	}
	about := gpu.Event{Kind: e.Kind, UUID: w.deviceOf(e), PCI: e.PCI, Xid: e.Xid, Text: e.Text}
	ws.Loop.ReportAt(message.Update{Device: &message.DeviceEvent{Attempt: w.attempt, Event: about}}, at)
}

// deviceOf is the UUID of an event's device: of the MIG instance, where it is about one.
func (w *watch) deviceOf(e gpu.Event) string {
	newest := w.last[0].found
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
