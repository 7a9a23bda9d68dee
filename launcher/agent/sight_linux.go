package agent

import (
	"bytes"
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/plugins"
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

// sight watches who holds the devices of this host.
type sight struct {
	stop   context.CancelFunc // nil: nobody watches
	newest *atomic.Int64      // when ranks were started last, in nanoseconds since 1970
	told   []byte             // what the coordinator knows, less what changes all the time
	toldAt time.Time
}

func (s *sight) end() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// watchDevices begins to watch the devices of an attempt, where its ranks have some. What
// is watched already goes on where ranks join those that run.
func (a *agent) watchDevices(o *orders.Start) {
	if o.Alone && a.sight.stop != nil {
		a.sight.newest.Store(time.Now().UnixNano())
		a.sample(o, nil)
		return
	}
	a.sight.end()
	if !o.Watch {
		a.sample(o, nil)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	newest := &atomic.Int64{}
	newest.Store(time.Now().UnixNano())
	a.sight = sight{stop: stop, newest: newest}
	attempt := a.attempt
	prober := a.look.prober(a.place, a.plugins)
	a.sample(o, prober)
	go func() {
		defer prober.close()
		for ctx.Err() == nil {
			found, err := probeWithin(ctx, prober)
			if ctx.Err() != nil {
				return
			}
			a.post(func() { a.tellSight(attempt, found, err) })
			pace := sightPace
			if time.Since(time.Unix(0, newest.Load())) > sightSettled {
				pace = laterPace
			}
			select {
			case <-time.After(pace):
			case <-ctx.Done():
			}
		}
	}()
}

// lookOnce answers the coordinator's question.
func (a *agent) lookOnce(o *orders.Look) {
	prober := a.look.prober(a.place, a.plugins)
	found, err := probeWithin(context.Background(), prober)
	prober.close()
	a.post(func() {
		seen := a.sightOf(a.attempt, found, err)
		seen.Asked = o.Number
		a.tell(orders.News{Sight: seen})
	})
}

func probeWithin(ctx context.Context, p prober) (*plugins.GPUs, error) {
	ctx, cancel := context.WithTimeout(ctx, sightLimit)
	defer cancel()
	return p.Probe(ctx)
}

// tellSight tells the coordinator what was seen, where it is new.
func (a *agent) tellSight(attempt int, found *plugins.GPUs, err error) {
	if attempt != a.attempt || a.sight.stop == nil {
		return // of an earlier attempt, or too late
	}
	seen := a.sightOf(attempt, found, err)
	text := orders.Encode(seen.Steady())
	if bytes.Equal(text, a.sight.told) && time.Since(a.sight.toldAt) < sightRepeated {
		return
	}
	a.sight.told, a.sight.toldAt = text, time.Now()
	a.tell(orders.News{Sight: seen})
}

func (a *agent) sightOf(attempt int, found *plugins.GPUs, err error) *orders.Sight {
	seen := &orders.Sight{Attempt: attempt}
	if err != nil {
		seen.Error = err.Error()
	} else {
		a.fillSight(seen, found, a.ranksByPID())
	}
	return seen
}

// fillSight finds out whose the processes on the devices are.
func (a *agent) fillSight(seen *orders.Sight, found *plugins.GPUs, rankOf map[int]owner) {
	users := facts.Owners("", found.GPUs)
	seen.Used = map[string]uint64{}
	ours := 0
	for _, g := range found.GPUs {
		if g.Memory.Used != nil {
			seen.Used[g.UUID] = *g.Memory.Used
		}
		for _, p := range g.Processes {
			h := orders.Held{UUID: g.DeviceOf(p), PID: p.PID, Rank: orders.Nobodys, Kind: p.Kind, Bytes: p.Memory, Command: p.Name}
			if owner, known := rankOf[p.PID]; known {
				h.Rank, h.Child = owner.rank, owner.child
				ours++
			} else {
				h.User = users[p.PID]
			}
			seen.Held = append(seen.Held, h)
		}
	}
	if ours == 0 && len(a.workers) > 0 && !inFirstPIDNamespace() {
		seen.Blind = "muster runs in a container with process numbers of its own there, and the driver tells the machine's"
	}
}

// owner is whose a process is.
type owner struct {
	rank  int
	child bool
}

// ranksByPID are the processes of this host's ranks.
func (a *agent) ranksByPID() map[int]owner { return a.ranksByPIDOf(proc.All()) }

func (a *agent) ranksByPIDOf(all []proc.Stat) map[int]owner {
	found := map[int]owner{}
	for rank, w := range a.workers {
		found[w.child.ID.PID] = owner{rank: rank}
	}
	for rank, others := range a.ranksOf(all) {
		for _, s := range others {
			found[s.PID] = owner{rank: rank, child: true}
		}
	}
	return found
}

// inFirstPIDNamespace reports whether process numbers here are the machine's own; the
// kernel fixes the number of its namespace (PROC_PID_INIT_INO).
func inFirstPIDNamespace() bool {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return namespace == "pid:[4026531836]"
}
