package agent

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// How often the devices are looked at while workers run: often while ranks come to their
// devices, then seldom.
const (
	sightPace     = time.Second
	laterPace     = 15 * time.Second
	sightSettled  = 90 * time.Second // after which ranks have come, or are said not to have
	sightLimit    = 20 * time.Second // for one look; a driver that hangs is said once it is past
	sightRepeated = 10 * time.Second // after which the same is told again
)

// sight watches the devices of this host: who holds them, and what the driver reports.
type sight struct {
	stop   context.CancelFunc // nil: nobody watches
	newest *atomic.Int64      // when ranks were started last, in nanoseconds since 1970
	woken  chan struct{}      // gets a value then
	prober prober
	told   []byte // what the coordinator knows, less what changes all the time
	toldAt time.Time
	looks  [2]looked              // the last two, the newer one first
	ecc    map[string]uint64      // uncorrected errors at the first look, by UUID
	owners map[int]sampling.Owner // whose processes were, also once they are gone
	ears   ears
}

// looked is what a look has shown.
type looked struct {
	seen  *gpu.Usage // nil: there was none
	found *gpu.Inventory
	ended link.Instant
}

func (s *sight) end() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// before is the last look that had ended at an instant.
func (s *sight) before(at link.Instant) looked {
	for _, l := range s.looks {
		if l.seen != nil && l.ended <= at {
			return l
		}
	}
	return looked{}
}

// watchDevices begins to watch the devices of an attempt, where its ranks have some. What
// is watched already goes on where ranks join those that run.
func (a *agent) watchDevices(o *message.Start) {
	if o.Alone && a.sight.stop != nil {
		a.sight.newest.Store(time.Now().UnixNano())
		a.sample(o, nil)
		select {
		case a.sight.woken <- struct{}{}:
		default:
		}
		return
	}
	a.sight.end()
	if !o.Watch {
		a.sample(o, nil)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	prober := a.look.prober(a.place, a.plugins)
	newest := &atomic.Int64{}
	newest.Store(time.Now().UnixNano())
	a.sight = sight{stop: stop, newest: newest, woken: make(chan struct{}, 1), prober: prober, owners: map[int]sampling.Owner{}, ears: newEars()}
	attempt, woken := a.attempt, a.sight.woken
	go a.listenToDriver(ctx, attempt)
	a.sample(o, prober)
	go func() {
		defer prober.close()
		for ctx.Err() == nil {
			found, err := probeWithin(ctx, prober, sightLimit)
			ended := link.Now()
			served := a.mps.Clients(ctx) // after: who holds memory has been a client before
			if ctx.Err() != nil {
				return
			}
			a.loop.Post(func() { a.tellSight(attempt, found, served, err, ended) })
			pace := sightPace
			if time.Since(time.Unix(0, newest.Load())) > sightSettled {
				pace = laterPace
			}
			select {
			case <-time.After(pace):
			case <-woken:
			case <-ctx.Done():
			}
		}
	}()
}

// lookOnce answers the coordinator's question, beside the loop. While workers run who
// watches their devices answers, since each plugin that is started opens the driver anew.
func (a *agent) lookOnce(o *message.Look) {
	prober, watched := a.sight.prober, a.sight.stop != nil
	if !watched {
		prober = a.look.prober(a.place, a.plugins)
	}
	go func() {
		found, err := probeWithin(context.Background(), prober, sightLimit)
		served := a.mps.Clients(context.Background())
		if !watched {
			prober.close()
		}
		a.loop.Post(func() {
			seen := a.usage(found, served, err)
			a.loop.Report(message.Update{Usage: &message.DeviceUsage{Attempt: a.attempt, Asked: o.Number, Usage: *seen}})
		})
	}()
}

func probeWithin(ctx context.Context, p prober, limit time.Duration) (*gpu.Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.Probe(ctx)
}

// tellSight tells the coordinator what was seen, where it is new.
func (a *agent) tellSight(attempt int, found *gpu.Inventory, served []gpu.MPSClients, err error, ended link.Instant) {
	if attempt != a.attempt || a.sight.stop == nil {
		return // of an earlier attempt, or too late
	}
	seen := a.usage(found, served, err)
	if err == nil {
		a.sight.looks = [2]looked{{seen, found, ended}, a.sight.looks[0]}
		a.noteHealth(found, ended)
	}
	text := message.Encode(seen.Steady())
	if bytes.Equal(text, a.sight.told) && time.Since(a.sight.toldAt) < sightRepeated {
		return
	}
	a.sight.told, a.sight.toldAt = text, time.Now()
	a.loop.Report(message.Update{Usage: &message.DeviceUsage{Attempt: attempt, Usage: *seen}})
}

// noteHealth takes from a look what counts before, and tells of GPUs that are lost.
func (a *agent) noteHealth(found *gpu.Inventory, at link.Instant) {
	if a.sight.ecc == nil {
		a.sight.ecc = uncorrected(found)
	}
	for _, g := range found.GPUs {
		if g.State == gpu.StateLost {
			a.report(gpu.Event{Kind: gpu.EventLost, UUID: g.UUID, PCI: g.PCI, Text: g.Why["state"]}, at)
		}
	}
}

// uncorrected are the GPUs' counts of errors of memory since the driver was loaded.
func uncorrected(found *gpu.Inventory) map[string]uint64 {
	counts := map[string]uint64{}
	for _, g := range found.GPUs {
		if g.ECC.Volatile != nil {
			counts[g.UUID] = *g.ECC.Volatile
		}
	}
	return counts
}

// usage is the snapshot that a probe gives.
func (a *agent) usage(found *gpu.Inventory, served []gpu.MPSClients, err error) *gpu.Usage {
	seen := &gpu.Usage{}
	if err != nil {
		seen.Error = err.Error()
	} else {
		a.fillSight(seen, found, a.ranksByPID())
	}
	a.fillMPS(seen, served)
	return seen
}

// fillSight finds out whose the processes on the devices are.
func (a *agent) fillSight(seen *gpu.Usage, found *gpu.Inventory, rankOf map[int]sampling.Owner) {
	users := facts.Owners("", found.GPUs)
	seen.Used = map[string]uint64{}
	ours := 0
	for _, g := range found.GPUs {
		if g.Memory.Used != nil {
			seen.Used[g.UUID] = *g.Memory.Used
		}
		for _, p := range g.Processes {
			h := gpu.Holder{UUID: g.DeviceOf(p), PID: p.PID, Rank: gpu.Nobody, Kind: p.Kind, Bytes: p.Memory, Command: p.Name}
			owner, known := rankOf[p.PID]
			if !known && users[p.PID] == "" { // gone, or going
				owner, known = a.sight.owners[p.PID]
			}
			if known {
				h.Rank, h.Child = owner.Rank, owner.Child
				ours++
				a.remember(p.PID, owner)
			} else {
				h.User = users[p.PID]
			}
			seen.Holders = append(seen.Holders, h)
		}
	}
	if ours == 0 && len(a.workers) > 0 && !proc.InFirstNamespace() {
		seen.Blind = "muster runs in a container with process numbers of its own there, and the driver tells the machine's"
	}
}

// remember keeps whose a process is: the driver may show it when it has ended.
func (a *agent) remember(pid int, o sampling.Owner) {
	if a.sight.owners != nil {
		a.sight.owners[pid] = o
	}
}

// ranksByPID are the processes of this host's ranks.
func (a *agent) ranksByPID() map[int]sampling.Owner { return a.ranksByPIDOf(proc.All()) }

func (a *agent) ranksByPIDOf(all []proc.Stat) map[int]sampling.Owner {
	found := map[int]sampling.Owner{}
	for rank, w := range a.workers {
		found[w.child.ID.PID] = sampling.Owner{Rank: rank}
	}
	for rank, others := range a.ranksOf(all) {
		for _, s := range others {
			found[s.PID] = sampling.Owner{Rank: rank, Child: true}
		}
	}
	return found
}

// fillMPS finds out which ranks the clients are.
func (a *agent) fillMPS(seen *gpu.Usage, told []gpu.MPSClients) {
	if len(told) == 0 {
		return
	}
	rankOf, serves := a.ranksByPID(), map[int]bool{}
	for _, one := range told {
		for pid := range one.Clients {
			if owner, known := rankOf[pid]; known {
				one.Clients[pid] = owner.Rank
			}
		}
		for _, pid := range one.Servers {
			serves[pid] = true
		}
		seen.MPS = append(seen.MPS, one)
	}
	for i, h := range seen.Holders {
		seen.Holders[i].Serves = serves[h.PID]
	}
}
