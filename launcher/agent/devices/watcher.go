//go:build linux

package devices

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// How often snapshots are taken while workers run: often while ranks open their devices, then seldom.
const (
	earlyPace     = time.Second
	laterPace     = 15 * time.Second
	settled       = 90 * time.Second // after which ranks have opened their devices, or are reported as missing there
	snapshotLimit = 20 * time.Second // for one; after that a driver that hangs is reported
	repeatAfter   = 10 * time.Second // after which the same is reported again
)

// Config is what a Watcher needs of the agent.
type Config struct {
	Flags   *Flags
	Place   rundir.Place
	Loop    *loop.Loop
	Starter external.Starter
	Workers *worker.Set
	// Clients asks the daemons of MPS for their clients. It may be called beside the loop.
	Clients func(context.Context) []gpu.MPSClients
	// Sampled is the newest sample of the devices before a rank's end; nil: there is none.
	Sampled func(rank int, end link.Instant) *sampling.Kept
	// Release is called with a worker's end that HoldBack has kept back.
	Release func(w *worker.Worker, ended *message.Ended, at link.Instant)
}

// Watcher watches the devices while workers run. The loop owns it.
type Watcher struct {
	Config
	watch   *watch // nil: nobody watches
	waiting []*heldEnd
}

// New returns a watcher that does not watch yet.
func New(c Config) *Watcher { return &Watcher{Config: c} }

// watch is what is known of the devices within an attempt.
type watch struct {
	attempt    int
	stop       context.CancelFunc
	started    atomic.Int64 // when ranks were started last, in nanoseconds since 1970
	woken      chan struct{}
	prober     prober
	reported   []byte // what the coordinator knows, less what changes all the time
	reportedAt time.Time
	last       [2]snapshot            // the newer one first
	ecc        map[string]uint64      // uncorrected errors in the first snapshot, by UUID
	owners     map[int]sampling.Owner // whose processes were, also once they are gone
	events     driverEvents
}

type snapshot struct {
	usage *gpu.Usage // nil: there was none
	found *gpu.Inventory
	ended link.Instant
}

// before is the last snapshot that was complete at an instant.
func (w *watch) before(at link.Instant) *gpu.Usage {
	for _, s := range w.last {
		if s.usage != nil && s.ended <= at {
			return s.usage
		}
	}
	return nil
}

// Watch begins to watch the devices of an attempt, where its ranks have some, and returns what samples them; nil where
// none has one, or they are sampled already: ranks have joined those that run.
func (ws *Watcher) Watch(c *message.Start, attempt int) func(context.Context) (*gpu.Samples, error) {
	if c.Alone && ws.watch != nil {
		ws.watch.started.Store(time.Now().UnixNano())
		select {
		case ws.watch.woken <- struct{}{}:
		default:
		}
		return nil
	}
	ws.End()
	if !c.Watch {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{
		attempt: attempt, stop: stop, woken: make(chan struct{}, 1),
		prober: ws.Flags.prober(ws.Place, ws.Starter), owners: map[int]sampling.Owner{}, events: newDriverEvents(),
	}
	w.started.Store(time.Now().UnixNano())
	ws.watch = w
	go ws.listen(ctx, w)
	go ws.takeSnapshots(ctx, w)
	return w.prober.sample
}

// End ends Watch.
func (ws *Watcher) End() {
	if ws.watch != nil {
		ws.watch.stop()
		ws.watch = nil
	}
}

func (ws *Watcher) takeSnapshots(ctx context.Context, w *watch) {
	defer w.prober.close()
	for ctx.Err() == nil {
		found, err := probeWithin(ctx, w.prober, snapshotLimit)
		ended := link.Now()
		clients := ws.Clients(ctx) // after the probe: a process that holds memory has been a client before
		if ctx.Err() != nil {
			return
		}
		ws.Loop.Post(func() { ws.report(w, found, clients, err, ended) })
		pace := earlyPace
		if time.Since(time.Unix(0, w.started.Load())) > settled {
			pace = laterPace
		}
		select {
		case <-time.After(pace):
		case <-w.woken:
		case <-ctx.Done():
		}
	}
}

func probeWithin(ctx context.Context, p prober, limit time.Duration) (*gpu.Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.Probe(ctx)
}

// Look answers the coordinator's question, beside the loop. While workers run, the watch's plug-in answers, since each
// plug-in that is started opens the driver again.
func (ws *Watcher) Look(c *message.Look, attempt int) {
	w := ws.watch
	var p prober
	if w != nil {
		p = w.prober
	} else {
		p = ws.Flags.prober(ws.Place, ws.Starter)
	}
	go func() {
		found, err := probeWithin(context.Background(), p, snapshotLimit)
		clients := ws.Clients(context.Background())
		if w == nil {
			p.close()
		}
		ws.Loop.Post(func() {
			usage := message.DeviceUsage{Attempt: attempt, Asked: c.Number, Usage: *ws.usage(found, clients, err)}
			ws.Loop.Report(message.Update{Usage: &usage})
		})
	}()
}

func (ws *Watcher) report(w *watch, found *gpu.Inventory, clients []gpu.MPSClients, err error, ended link.Instant) {
	if w != ws.watch {
		return // of an earlier attempt, or too late
	}
	usage := ws.usage(found, clients, err)
	if err == nil {
		w.last = [2]snapshot{{usage, found, ended}, w.last[0]}
		ws.noteHealth(w, found, ended)
	}
	text := message.Encode(usage.Steady())
	if bytes.Equal(text, w.reported) && time.Since(w.reportedAt) < repeatAfter {
		return
	}
	w.reported, w.reportedAt = text, time.Now()
	ws.Loop.Report(message.Update{Usage: &message.DeviceUsage{Attempt: w.attempt, Usage: *usage}})
}

// noteHealth keeps the first counters of errors, and reports GPUs that are lost.
func (ws *Watcher) noteHealth(w *watch, found *gpu.Inventory, at link.Instant) {
	if w.ecc == nil {
		w.ecc = uncorrected(found)
	}
	for _, g := range found.GPUs {
		if g.State == gpu.StateLost {
			ws.reportEvent(w, gpu.Event{Kind: gpu.EventLost, UUID: g.UUID, PCI: g.PCI, Text: g.Why["state"]}, at)
		}
	}
}

func uncorrected(found *gpu.Inventory) map[string]uint64 {
	counts := map[string]uint64{}
	for _, g := range found.GPUs {
		if g.ECC.Volatile != nil {
			counts[g.UUID] = *g.ECC.Volatile
		}
	}
	return counts
}

func grown(before, after map[string]uint64) map[string]uint64 {
	counts := map[string]uint64{}
	for uuid, n := range after {
		if was, known := before[uuid]; known && n >= was {
			counts[uuid] = n - was
		}
	}
	return counts
}

// Evidence is what is known of the devices until a worker's end; nil where nobody watches them.
func (ws *Watcher) Evidence(k *worker.Worker) *evidence.Devices {
	w := ws.watch
	if w == nil {
		return nil
	}
	d := &evidence.Devices{
		Before: w.before(k.EndedAt), NoEvents: w.events.unavailable, Unsupported: w.events.unsupported,
	}
	if sample := ws.Sampled(k.Rank, k.EndedAt); sample != nil { // newer than snapshots
		d.Before = &gpu.Usage{}
		ws.fill(d.Before, sample.GPUs.Probed(), sample.Owners)
	}
	if newest := w.last[0]; newest.found != nil {
		d.ECC = grown(w.ecc, uncorrected(newest.found))
	}
	return d
}

// usage is who uses the devices, by a probe and the daemons of MPS.
func (ws *Watcher) usage(found *gpu.Inventory, clients []gpu.MPSClients, err error) *gpu.Usage {
	u := &gpu.Usage{}
	owners := ws.Workers.Owners(proc.All())
	if err != nil {
		u.Error = err.Error()
	} else {
		ws.fill(u, found, owners)
	}
	serves := map[int]bool{}
	for _, one := range clients {
		for pid := range one.Clients {
			if owner, known := owners[pid]; known {
				one.Clients[pid] = owner.Rank
			}
		}
		for _, pid := range one.Servers {
			serves[pid] = true
		}
		u.MPS = append(u.MPS, one)
	}
	for i, h := range u.Holders {
		u.Holders[i].Serves = serves[h.PID]
	}
	return u
}

// fill finds out whose the processes on the devices are.
func (ws *Watcher) fill(u *gpu.Usage, found *gpu.Inventory, owners map[int]sampling.Owner) {
	users := facts.Owners("", found.GPUs)
	u.Used = map[string]uint64{}
	ours := 0
	for _, g := range found.GPUs {
		if g.Memory.Used != nil {
			u.Used[g.UUID] = *g.Memory.Used
		}
		for _, p := range g.Processes {
			h := gpu.Holder{
				UUID: g.DeviceOf(p), PID: p.PID, Rank: gpu.Nobody, Kind: p.Kind, Bytes: p.Memory, Command: p.Name,
			}
			owner, known := owners[p.PID]
			if !known && users[p.PID] == "" && ws.watch != nil { // gone, or going
				owner, known = ws.watch.owners[p.PID]
			}
			if known {
				h.Rank, h.Child = owner.Rank, owner.Child
				ours++
				if ws.watch != nil { // the driver may show it when it has ended
					ws.watch.owners[p.PID] = owner
				}
			} else {
				h.User = users[p.PID]
			}
			u.Holders = append(u.Holders, h)
		}
	}
	if ours == 0 && ws.Workers.Len() > 0 && !proc.InFirstNamespace() {
		u.Blind = "muster runs in a container with process numbers of its own there, and the driver tells the machine's"
	}
}
