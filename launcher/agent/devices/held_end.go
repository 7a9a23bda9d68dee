//go:build linux

package devices

import (
	"context"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// afterLimit is how long a worker's end is kept back for a snapshot of the devices. It is less than the coordinator
	// waits for a cause when others have noticed the end.
	afterLimit = 1500 * time.Millisecond
	// minHold is how long it is kept back at least: the driver may report an error a moment after the program met it.
	minHold = 200 * time.Millisecond
)

// heldEnd is the end of a worker that is reported once its devices were probed.
type heldEnd struct {
	worker *worker.Worker
	ended  *message.Ended
	at     link.Instant // of the end
	watch  *watch
	asked  bool      // a probe is under way that began after the end
	after  *snapshot // nil: there is none yet; its usage is nil where the probe failed
	why    string    // it failed
}

// HoldBack keeps a worker's end back until its devices were probed, where they may have had to do with it. Most ends
// have not, and wait for nothing.
func (ws *Watcher) HoldBack(k *worker.Worker, e *message.Ended, at link.Instant) bool {
	if ws.watch == nil || !fromDevice(e) {
		return false
	}
	ws.waiting = append(ws.waiting, &heldEnd{worker: k, ended: e, at: at, watch: ws.watch})
	ws.probeAfter()
	return true
}

// probeAfter makes one probe for all that wait for one and ended before it. Those that end meanwhile wait for the next.
func (ws *Watcher) probeAfter() {
	var mine []*heldEnd
	for _, h := range ws.waiting {
		if h.asked && h.after == nil {
			return // a probe is under way
		}
		if !h.asked {
			mine = append(mine, h)
		}
	}
	if len(mine) == 0 {
		return
	}
	for _, h := range mine {
		h.asked = true
	}
	w := mine[0].watch
	go func() {
		found, err := probeWithin(context.Background(), w.prober, afterLimit)
		ended := link.Now()
		ws.Loop.Post(func() { ws.takeAfter(mine, w, found, err, ended) })
	}()
}

func (ws *Watcher) takeAfter(mine []*heldEnd, w *watch, found *gpu.Inventory, err error, ended link.Instant) {
	after, why := &snapshot{ended: ended}, ""
	if err != nil {
		why = err.Error()
	} else {
		after.usage, after.found = ws.usage(found, nil, nil), found
		if w == ws.watch {
			ws.noteHealth(w, found, ended)
		}
	}
	for _, h := range mine {
		h.after, h.why = after, why
	}
	ws.probeAfter()
}

// Tick reports the ends of workers whose devices were probed, or took too long.
func (ws *Watcher) Tick(now link.Instant) {
	for _, h := range slices.Clone(ws.waiting) {
		passed := now.Sub(h.at)
		if passed < minHold || h.after == nil && passed < afterLimit {
			continue
		}
		d := h.ended.Evidence.Devices
		switch {
		case h.after == nil:
			d.NoAfter = "the devices were not seen within " + afterLimit.String() + " after its end"
		case h.after.usage == nil:
			d.NoAfter = h.why
		default:
			d.After = h.after.usage
			d.ECC = grown(h.watch.ecc, uncorrected(h.after.found))
		}
		d.NoEvents, d.Unsupported = h.watch.events.unavailable, h.watch.events.unsupported
		ws.waiting = slices.DeleteFunc(ws.waiting, func(other *heldEnd) bool { return other == h })
		ws.Release(h.worker, h.ended, h.at)
	}
}

// deviceSignals are those by which programs die whose device has failed.
var deviceSignals = []string{"SIGABRT", "SIGSEGV", "SIGBUS"}

func fromDevice(e *message.Ended) bool {
	if e.Sent != "" || e.Error != "" || e.Code == 0 && e.Signal == "" {
		return false
	}
	if slices.Contains(deviceSignals, e.Signal) {
		return true
	}
	return evidence.ConcernsDevice(e.Evidence.Stderr) || evidence.ConcernsDevice(e.Evidence.Stdout)
}
