//go:build linux

// Package sampling measures ranks while they run: what their processes use and hold, how busy their devices are, and
// when they last gave a sign of life. It keeps what it measures in files and reports digests of it.
package sampling

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// Pace is how often a sample is taken.
	Pace = time.Second
	// sampleRetry is how long after a failure devices are sampled again.
	sampleRetry = 30 * time.Second
	// staleAfter is for how long, beyond their own period, samples of devices count.
	staleAfter = 3 * time.Second
	// QuietPace is how often a digest is reported where nobody watches; in the first seconds of an attempt,
	// digestEarly, each second.
	QuietPace   = 5 * time.Second
	digestEarly = 10 * time.Second
	// treePace is how often all processes are searched for those of ranks, which takes ten milliseconds on a large
	// host; early on, while ranks start theirs, each second.
	treePace    = 10 * time.Second
	treeSettled = 30 * time.Second
	// growthPace is how often what was kept is searched for growth.
	growthPace = 10 * time.Minute
	// samplesKept is how many samples of devices are at hand when a worker dies.
	samplesKept = 4
	// sampleEnd is how long the goroutines may take to end: reading /proc of a process may wait for that process.
	sampleEnd = time.Second
)

// Rank is one to measure.
type Rank struct {
	Rank, Attempt, Slot int
	Device              string // UUID; "": none
	Seen                int    // N of cuda:N by which it calls that
	Alone               bool   // it talks to no other rank
	Began               link.Instant
	// Written is how many bytes it has written so far, kept or not; nil: not known. It must not wait for a disk.
	Written func() int64
	// Reported is the newest that it reports about itself, nil: nothing; the function may be nil too.
	Reported func() *observe.Latest
}

func (r *Rank) latest() *observe.Latest {
	if r.Reported == nil {
		return nil
	}
	return r.Reported()
}

// Owner is the rank that a process belongs to.
type Owner struct {
	Rank  int
	Child bool // of the process that muster has started
}

// Means are what a Sampler asks, and whom it reports to.
type Means struct {
	File *File
	// Devices takes a sample of the ranks' devices; nil: none has one, or they are sampled already.
	Devices func(context.Context) (*gpu.Samples, error)
	// Owners returns the owners of all processes of ranks; false: ctx has ended.
	Owners func(context.Context, []proc.Stat) (map[int]Owner, bool)
	// Report takes the reports for the coordinator, every Pace.
	Report func(context.Context, *samples.Digest, *message.Pulses)
	Pace   func() time.Duration
}

// Sampler measures ranks until End. Its methods may be called from any goroutine; those of a nil Sampler know nothing.
type Sampler struct {
	Means
	attempt int // of all ranks; 0 where they start alone
	slots   int // how many ranks run at once
	began   time.Time
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	fresh   chan struct{} // gets a value when devices were sampled

	mu    sync.Mutex
	ranks map[int]*sampledRank
	kept  []Kept // of devices, the newest last
	why   string // devices are not known
	every time.Duration
	pids  map[int]Owner // of the ranks' processes
	newer bool          // ranks have started whose processes are not in pids
	turn  int           // which sample of the ranks this is
}

type sampledRank struct {
	Rank
	began     time.Time
	now       samples.Values
	peaks     []samples.Peak
	growth    []samples.Growth
	signs     *Signs
	processes []*process
}

// Begin begins to measure ranks, of which so many run at once.
func Begin(m Means, attempt, slots int, ranks []Rank) *Sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := newSampler(m, attempt, slots, ranks)
	s.cancel = cancel
	if m.Devices != nil {
		s.ended.Go(func() { s.sampleDevices(ctx) })
	}
	s.ended.Go(func() { s.measure(ctx) })
	return s
}

func newSampler(m Means, attempt, slots int, ranks []Rank) *Sampler {
	s := &Sampler{
		Means: m, attempt: attempt, slots: slots, began: time.Now(), every: Pace,
		ranks: map[int]*sampledRank{}, pids: map[int]Owner{}, fresh: make(chan struct{}, 1),
	}
	s.Add(ranks)
	return s
}

// Add measures further ranks.
func (s *Sampler) Add(ranks []Rank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range ranks {
		s.ranks[r.Rank] = &sampledRank{Rank: r, began: time.Now(), now: samples.None(), signs: newSigns(r)}
	}
	s.newer = true
}

// SignsOf are a rank's signs of life; nil: it is not measured.
func (s *Sampler) SignsOf(rank int) *Signs {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.ranks[rank]; r != nil {
		return r.signs
	}
	return nil
}

// Leave takes a rank out that has ended, and returns its peaks.
func (s *Sampler) Leave(rank, attempt int) []samples.Peak {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ranks[rank]
	if r == nil || r.Attempt != attempt {
		return nil
	}
	delete(s.ranks, rank)
	return r.peaks
}

// End ends the goroutines. What they have found stays at hand.
func (s *Sampler) End() {
	s.cancel()
	done := make(chan struct{})
	go func() {
		s.ended.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(sampleEnd):
	}
}

func (s *Sampler) measure(ctx context.Context) {
	defer s.File.flush()
	var tree, reported time.Time
	judged := time.Now()
	for first := true; first || s.awaitTurn(ctx); first = false {
		now := time.Now()
		if now.Sub(tree) >= treePace || now.Sub(s.began) < treeSettled || s.isBehind() {
			pids, found := s.Owners(ctx, proc.All())
			if !found {
				return
			}
			s.know(pids)
			tree = now
		}
		s.measureOnce(now)
		if now.Sub(judged) >= growthPace {
			judged = now
			s.judge()
		}
		if now.Sub(reported) >= s.Pace()-Pace/2 || now.Sub(s.began) < digestEarly {
			reported = now
			s.Report(ctx, s.digest(now), s.pulses(now))
		}
	}
}

// awaitTurn waits until ranks are to be measured: once their devices were, so that all is of one moment and this
// process wakes up once, and without them each second; false: ctx has ended.
func (s *Sampler) awaitTurn(ctx context.Context) bool {
	limit := Pace
	s.mu.Lock()
	if s.why == "" && s.every <= Pace && time.Since(s.sampledAt()) < 2*Pace { // devices are sampled as often as ranks
		limit += Pace / 2
	}
	s.mu.Unlock()
	select {
	case <-s.fresh:
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (s *Sampler) know(pids map[int]Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids, s.newer = pids, false
	known := map[int]*process{}
	for _, r := range s.ranks {
		for _, p := range r.processes {
			known[p.pid] = p
		}
		r.processes = nil
	}
	for pid, owner := range pids {
		r := s.ranks[owner.Rank]
		if r == nil {
			continue
		}
		p := known[pid]
		if p == nil {
			p = &process{pid: pid}
		}
		p.child = owner.Child
		r.processes = append(r.processes, p)
	}
}

// isBehind reports whether ranks have processes that are not known: they have just started, or a process has come to
// the devices of late that may be theirs.
func (s *Sampler) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newer || len(s.kept) < 2 {
		return s.newer
	}
	before := map[int]bool{}
	for _, g := range s.kept[len(s.kept)-2].GPUs.GPUs {
		for _, p := range g.Processes {
			before[p.PID] = true
		}
	}
	for _, g := range s.kept[len(s.kept)-1].GPUs.GPUs {
		for _, p := range g.Processes {
			if _, known := s.pids[p.PID]; !known && !before[p.PID] {
				return true
			}
		}
	}
	return false
}

// measureOnce takes a sample of each rank into the peaks and the file.
func (s *Sampler) measureOnce(now time.Time) {
	who, values := s.measureAll(now)
	s.File.keep(now, who, values)
}
