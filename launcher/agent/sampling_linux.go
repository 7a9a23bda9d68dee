package agent

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
)

const (
	samplePace = time.Second
	// sampleRetry is how long after a failure devices are sampled again.
	sampleRetry = 30 * time.Second
	// staleAfter is for how long, beyond their own period, samples of devices count.
	staleAfter = 3 * time.Second
	// digestPace is how often the coordinator is told, where nobody looks on; in the first
	// seconds of an attempt each second.
	digestPace  = 5 * time.Second
	digestEarly = 10 * time.Second
	// treePace is how often all processes are looked through for those of ranks, which takes
	// ten milliseconds on a large host; early on, while ranks start theirs, each second.
	treePace    = 10 * time.Second
	treeSettled = 30 * time.Second
	// growthPace is how often what was kept is looked through for growth.
	growthPace = 10 * time.Minute
	// samplesKept is how many samples of devices are at hand when a worker dies.
	samplesKept = 4
	// sampleEnd is how long the goroutines may take to end: what the kernel tells of a process
	// may wait for that process.
	sampleEnd = time.Second
)

// sampling measures ranks while some run. Its goroutines end with endSampling.
type sampling struct {
	file    *sampleFile
	attempt int // of all ranks; 0 where they start alone
	slots   int // how many ranks run at once
	began   time.Time
	cancel  context.CancelFunc
	over    bool // it was ended
	ended   sync.WaitGroup
	fresh   chan struct{} // gets a value when devices were sampled

	mu    sync.Mutex
	ranks map[int]*sampledRank
	kept  []keptSample // of devices, the newest last
	why   string       // devices are not known
	every time.Duration
	pids  map[int]owner // of the ranks' processes
	newer bool          // ranks have started of whose processes pids knows nothing
	turn  int           // which sample of the ranks this is
}

// sampledRank is what is measured of a rank.
type sampledRank struct {
	attempt int
	slot    int
	device  string // UUID; "": none
	seen    int    // N of cuda:N by which it calls that
	worker  *worker
	began   time.Time
	now     samples.Values
	peaks   []samples.Peak
	growth  []samples.Growth
	signs   *signs

	processes []*process
}

// sample begins to measure the ranks of an order, or adds them to those that are measured
// where each starts alone. devices answers for theirs; nil: none has one, or somebody
// answers already.
func (a *agent) sample(o *orders.Start, devices prober) {
	started := a.startedOf(o)
	if s := a.sampling; o.Alone && s != nil && !s.over {
		s.add(started, a.workers)
		return
	}
	a.endSampling()
	if a.samples == nil {
		a.samples = newSampleFile(filepath.Join(a.stateDir, samplesFile), a.warnOfSamples)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampling{
		file: a.samples, attempt: a.attempt, slots: o.Slots, began: time.Now(), cancel: cancel, every: samplePace,
		ranks: map[int]*sampledRank{}, pids: map[int]owner{}, fresh: make(chan struct{}, 1),
	}
	s.add(started, a.workers)
	a.sampling = s
	if devices != nil {
		s.ended.Go(func() { s.lookOn(ctx, devices) })
	}
	s.ended.Go(func() { a.measure(ctx, s) })
}

// startedOf is an order with those of its ranks that could be started: of the others no end
// follows that would take them out again.
func (a *agent) startedOf(o *orders.Start) *orders.Start {
	started := *o
	started.Ranks = slices.DeleteFunc(slices.Clone(o.Ranks), func(r orders.RankStart) bool {
		w := a.workers[r.Rank]
		return w == nil || w.attempt != o.Attempt
	})
	return &started
}

func (s *sampling) add(o *orders.Start, workers map[int]*worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range o.Ranks {
		s.ranks[r.Rank] = &sampledRank{
			attempt: o.Attempt, slot: r.Local, device: r.Device, seen: r.Seen, worker: workers[r.Rank], began: time.Now(), now: samples.None(),
			signs: signsOf(workers[r.Rank], o.Alone),
		}
	}
	s.newer = true
}

// know takes in which processes are the ranks'.
func (s *sampling) know(pids map[int]owner) {
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
	for pid, who := range pids {
		r := s.ranks[who.rank]
		if r == nil {
			continue
		}
		p := known[pid]
		if p == nil {
			p = &process{pid: pid}
		}
		p.child = who.child
		r.processes = append(r.processes, p)
	}
}

// signsOf are a rank's signs of life; nil: it is not measured.
func (s *sampling) signsOf(rank int) *signs {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.ranks[rank]; r != nil {
		return r.signs
	}
	return nil
}

// leave takes a rank out that has ended, and returns its peaks.
func (s *sampling) leave(w *worker) []samples.Peak {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ranks[w.rank]
	if r == nil || r.attempt != w.attempt {
		return nil
	}
	delete(s.ranks, w.rank)
	return r.peaks
}

// endSampling ends the goroutines. What they have found stays at hand.
func (a *agent) endSampling() {
	if a.sampling == nil || a.sampling.over {
		return
	}
	s := a.sampling
	s.cancel()
	s.over = true
	within(sampleEnd, func() (nothing struct{}) {
		s.ended.Wait()
		return nothing
	})
}

// closeSamples completes the file.
func (a *agent) closeSamples() {
	a.endSampling()
	if a.samples != nil {
		a.samples.close()
	}
}

// warnOfSamples tells what the file of samples has to say.
func (a *agent) warnOfSamples(ctx context.Context, message string) {
	a.postUntil(ctx, func() { a.tell(orders.News{Warning: &orders.Warning{Rank: -1, Message: message}}) })
}

// measure takes a sample each second and tells the coordinator now and then.
func (a *agent) measure(ctx context.Context, s *sampling) {
	defer s.file.flush()
	var tree, told, judged time.Time
	for first := true; first || s.awaitTurn(ctx); first = false {
		now := time.Now()
		if now.Sub(tree) >= treePace || now.Sub(s.began) < treeSettled || s.isBehind() {
			if !a.findProcesses(ctx, s) {
				return
			}
			tree = now
		}
		s.measureOnce(now)
		if judged.IsZero() {
			judged = now
		} else if now.Sub(judged) >= growthPace {
			judged = now
			s.judge()
		}
		if now.Sub(told) >= time.Duration(a.digestPace.Load())-samplePace/2 || now.Sub(s.began) < digestEarly {
			told = now
			digest, pulses := s.digest(now), s.pulses(now)
			a.postUntil(ctx, func() {
				a.tell(orders.News{Samples: digest})
				a.tell(orders.News{Pulses: pulses})
			})
		}
	}
}

// awaitTurn waits until ranks are to be measured: once their devices were, so that all is of
// one moment and this process wakes up once, and without them each second; false: ctx has
// ended.
func (s *sampling) awaitTurn(ctx context.Context) bool {
	limit := samplePace
	if s.isFed() {
		limit += samplePace / 2
	}
	select {
	case <-s.fresh:
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// isFed reports whether devices are sampled as often as ranks are.
func (s *sampling) isFed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why == "" && s.every <= samplePace && time.Since(s.sampledAt()) < 2*samplePace
}

// postUntil posts to the loop, unless ctx ends before it has room.
func (a *agent) postUntil(ctx context.Context, f func()) {
	select {
	case a.inbox <- f:
	case <-ctx.Done():
	}
}

// findProcesses finds out which processes are the ranks'; false: ctx has ended.
func (a *agent) findProcesses(ctx context.Context, s *sampling) bool {
	all := proc.All()
	answer := make(chan map[int]owner, 1)
	a.postUntil(ctx, func() { answer <- a.ranksByPIDOf(all) })
	select {
	case pids := <-answer:
		s.know(pids)
		return true
	case <-ctx.Done():
		return false
	}
}

// isBehind reports whether ranks have processes that are not known: they have just started,
// or a process has come to the devices of late that may be theirs.
func (s *sampling) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newer || len(s.kept) < 2 {
		return s.newer
	}
	before := map[int]bool{}
	for _, g := range s.kept[len(s.kept)-2].gpus.GPUs {
		for _, p := range g.Processes {
			before[p.PID] = true
		}
	}
	for _, g := range s.kept[len(s.kept)-1].gpus.GPUs {
		for _, p := range g.Processes {
			if _, known := s.pids[p.PID]; !known && !before[p.PID] {
				return true
			}
		}
	}
	return false
}
