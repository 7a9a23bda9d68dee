package agent

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// afterLimit is how long a worker's end is kept back for a look at the devices. It is
	// less than the coordinator waits for a cause when others have noticed the end.
	afterLimit = 1500 * time.Millisecond
	// hearLimit is how long it is kept back at least: the driver may report an error a moment
	// after the program has met it.
	hearLimit = 200 * time.Millisecond
)

// deviceSignals are those by which programs die whose device has failed under them.
var deviceSignals = []string{"SIGABRT", "SIGSEGV", "SIGBUS"}

// deviceWords are of what programs say then, in lower case.
var deviceWords = [][]byte{
	[]byte("out of memory"), []byte("cuda error"), []byte("cudaerror"), []byte("cuda_error"), []byte("unhandled cuda"), []byte("cublas_status"),
	[]byte("cudnn_status"), []byte("ecc error"), []byte("gpu is lost"), []byte("off the bus"), []byte("nvml"), []byte("hip error"), []byte("hsa_status"),
}

// afterwards is a worker that has ended, and is told of once its devices were looked at.
type afterwards struct {
	w     *worker
	ended *message.Ended
	at    link.Instant // of the end
	asked bool         // a look is under way that began after the end
	after *looked      // once there is one; its sight is nil where it failed
	why   string       // it failed
}

// fromDevice is whether a worker's end looks as if a device had to do with it. Most ends
// do not, and nothing waits for a look then.
func (a *agent) fromDevice(e *message.Ended) bool {
	if a.sight.stop == nil || e.Sent != "" || e.Error != "" || e.Code == 0 && e.Signal == "" {
		return false
	}
	if slices.Contains(deviceSignals, e.Signal) {
		return true
	}
	for _, text := range [][]byte{e.Evidence.Stderr, e.Evidence.Stdout} {
		text = bytes.ToLower(text)
		for _, word := range deviceWords {
			if bytes.Contains(text, word) {
				return true
			}
		}
	}
	return false
}

// lookAfterwards keeps a worker's end back until its devices were looked at.
func (a *agent) lookAfterwards(w *worker, e *message.Ended, at link.Instant) {
	w.concluded = true
	a.after = append(a.after, &afterwards{w: w, ended: e, at: at})
	a.lookForAll()
}

// lookForAll makes one look for all that wait for one and ended before it. Those that end
// meanwhile wait for the next.
func (a *agent) lookForAll() {
	waiting := false
	for _, x := range a.after {
		if x.asked && x.after == nil {
			return // a look is under way
		}
		waiting = waiting || !x.asked
	}
	if !waiting {
		return
	}
	var mine []*afterwards
	for _, x := range a.after {
		if !x.asked {
			x.asked = true
			mine = append(mine, x)
		}
	}
	prober, attempt := a.sight.prober, a.attempt
	go func() {
		found, err := probeWithin(context.Background(), prober, afterLimit)
		ended := link.Now()
		a.loop.Post(func() { a.lookedAfter(mine, attempt, found, err, ended) })
	}()
}

func (a *agent) lookedAfter(mine []*afterwards, attempt int, found *gpu.Inventory, err error, ended link.Instant) {
	l := &looked{ended: ended}
	why := ""
	if err != nil {
		why = err.Error()
	} else {
		l.seen, l.found = a.usage(found, nil, nil), found
		if attempt == a.attempt && a.sight.stop != nil {
			a.noteHealth(found, ended)
		}
	}
	for _, x := range mine {
		x.after, x.why = l, why
	}
	a.lookForAll()
}

// endAfterwards tells of the workers whose look was made, or has taken too long.
func (a *agent) endAfterwards(now link.Instant) {
	for _, x := range slices.Clone(a.after) {
		passed := now.Sub(x.at)
		if passed < hearLimit || x.after == nil && passed < afterLimit {
			continue
		}
		d := x.ended.Evidence.Devices
		switch {
		case x.after == nil:
			d.NoAfter = "the devices were not seen within " + afterLimit.String() + " after its end"
		case x.after.seen == nil:
			d.NoAfter = x.why
		default:
			d.After = x.after.seen
			d.ECC = grown(a.sight.ecc, uncorrected(x.after.found))
		}
		d.NoEvents, d.Unsupported = a.sight.ears.deaf, a.sight.ears.deafTo
		x.ended.Evidence.Kernel = x.w.scene.kernel.lines() // its log too may be behind
		a.after = slices.DeleteFunc(a.after, func(other *afterwards) bool { return other == x })
		a.bury(x.w, x.ended, x.at)
	}
}

// devices is what was seen of the devices until a worker's end.
func (a *agent) devices(w *worker) *evidence.Devices {
	if a.sight.stop == nil {
		return nil
	}
	before := a.sight.before(w.endedAt)
	d := &evidence.Devices{Before: before.seen, NoEvents: a.sight.ears.deaf, Unsupported: a.sight.ears.deafTo}
	if held := a.heldBefore(w, w.endedAt); held != nil { // samples are newer than looks
		d.Before = held
	}
	if newest := a.sight.looks[0]; newest.found != nil {
		d.ECC = grown(a.sight.ecc, uncorrected(newest.found))
	}
	return d
}

// grown is by how much counters have grown.
func grown(before, after map[string]uint64) map[string]uint64 {
	counts := map[string]uint64{}
	for uuid, n := range after {
		if was, known := before[uuid]; known && n >= was {
			counts[uuid] = n - was
		}
	}
	return counts
}
