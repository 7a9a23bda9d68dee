package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/rendezvous"
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
	// sampleEnd is how long a file that is being written may take at the end.
	sampleEnd = time.Second
	// samplesFile is the file in the run's folder.
	samplesFile = "samples"
)

// sampling measures ranks while some run. Its goroutines end with endSampling.
type sampling struct {
	run     *sampled
	attempt int // of all ranks; 0 where they start alone
	slots   int // how many ranks run at once
	began   time.Time
	cancel  context.CancelFunc
	over    bool // it was ended
	ended   sync.WaitGroup

	mu    sync.Mutex
	ranks map[int]*sampledRank
	kept  []keptSample // of devices, the newest last
	why   string       // devices are not known
	every time.Duration
	pids  map[int]owner // of the ranks' processes
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
}

// sampled is what the samples of all attempts have in common. Only one goroutine at a time
// uses it.
type sampled struct {
	path     string
	base     time.Time // from which seconds count, on the clock that stands still in a suspend
	recorder *samples.Recorder
	failed   bool // the file cannot be written, which was said
}

// keptSample is a sample of devices with whose processes are whose.
type keptSample struct {
	gpus  *plugins.GPUSamples
	pids  map[int]owner
	at    rendezvous.Instant // when it was complete
	taken time.Time
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
	if a.sampled == nil { // the file is made with the first sample
		a.sampled = &sampled{path: filepath.Join(a.stateDir, samplesFile), base: time.Now()}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampling{
		run: a.sampled, attempt: a.attempt, slots: o.Slots, began: time.Now(), cancel: cancel, every: samplePace,
		ranks: map[int]*sampledRank{}, pids: map[int]owner{},
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

// endSampling ends the goroutines. What they have found stays at hand. Where one does not
// end, because the file system hangs, nothing more is kept.
func (a *agent) endSampling() {
	if a.sampling == nil || a.sampling.over {
		return
	}
	s := a.sampling
	s.cancel()
	s.over = true
	ended := make(chan struct{})
	go func() {
		s.ended.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(sampleEnd):
		a.sampled = &sampled{failed: true}
	}
}

// closeSamples completes the file.
func (a *agent) closeSamples() {
	a.endSampling()
	if a.sampled != nil && a.sampled.recorder != nil {
		_ = a.sampled.recorder.Close() // a full disk was said when it was met
		a.sampled.recorder = nil
	}
}

// lookOn samples devices until ctx ends. A driver that hangs keeps nobody else waiting.
func (s *sampling) lookOn(ctx context.Context, devices prober) {
	for ctx.Err() == nil {
		began := time.Now()
		found, err := devices.sample(ctx)
		pause := s.take(found, err)
		if pause < 0 {
			return
		}
		select {
		case <-time.After(pause - min(pause, time.Since(began))):
		case <-ctx.Done():
		}
	}
}

// take keeps a sample, and says how long to wait for the next; negative: there is none.
func (s *sampling) take(found *plugins.GPUSamples, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.why = err.Error()
		if isUnsupported(err) {
			return -1
		}
		return sampleRetry
	}
	s.why, s.every = "", max(samplePace, time.Duration(found.Every*float64(time.Second)))
	s.kept = append(s.kept, keptSample{found, s.pids, rendezvous.Now(), time.Now()})
	s.kept = slices.Delete(s.kept, 0, max(0, len(s.kept)-samplesKept))
	return s.every
}

func isUnsupported(err error) bool {
	var of *external.Error
	return errors.As(err, &of) && (of.Kind == external.KindUnsupported || of.Kind == external.KindClosed)
}

// measure takes a sample each second and tells the coordinator now and then.
func (a *agent) measure(ctx context.Context, s *sampling) {
	ticker := time.NewTicker(samplePace)
	defer ticker.Stop()
	defer s.flush()
	var tree, told, judged time.Time
	for {
		now := time.Now()
		if now.Sub(tree) >= treePace || now.Sub(s.began) < treeSettled || s.hasStrangers() {
			if !a.findProcesses(ctx, s) {
				return
			}
			tree = now
		}
		if err := s.measureOnce(now); err != nil {
			a.warnOfSamples(ctx, s, err)
		}
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
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
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
		s.mu.Lock()
		s.pids = pids
		s.mu.Unlock()
		return true
	case <-ctx.Done():
		return false
	}
}

// hasStrangers is whether a process that came to the devices of late is not known: it may
// be a rank's new one.
func (s *sampling) hasStrangers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < 2 {
		return false
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

// measureOnce takes a sample of each rank into the peaks and the file.
func (s *sampling) measureOnce(now time.Time) error {
	who, values := s.measureAll(now)
	return s.run.keep(who, now, values) // without the lock: the agent's loop must not wait for a disk
}

// measureAll takes a sample of each rank, and returns them by slot.
func (s *sampling) measureAll(now time.Time) (who []samples.Occupant, values []samples.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resident := residentOf(s.pids)
	processes := map[int][]int{}
	for pid, who := range s.pids {
		processes[who.rank] = append(processes[who.rank], pid)
	}
	who, values = slices.Repeat([]samples.Occupant{samples.Nobody}, s.slots), slices.Repeat([]samples.Values{samples.None()}, s.slots)
	for rank, r := range s.ranks {
		r.now = samples.None()
		if bytes, runs := resident[rank]; runs {
			r.now[samples.RSS] = bytes
			s.ofDevice(&r.now, rank, r.device, now)
			r.signs.look(now, processes[rank], r.now, s.sampledAt())
			phase := r.told(&r.now, samples.PhaseOf(now.Sub(r.began).Seconds()))
			r.peaks = samples.Raise(r.peaks, r.attempt, phase, r.now)
		}
		if r.slot < s.slots {
			who[r.slot], values[r.slot] = samples.Occupant{Rank: rank, Attempt: r.attempt}, r.now
		}
	}
	return who, values
}

const (
	// toldStale is after how many seconds what a rank has told of torch's memory is not that
	// of now any more.
	toldStale = 60
	// mostPhases bounds of how many phases that a program names peaks are kept.
	mostPhases = 12
)

// told fills in what the rank tells of torch's memory of its device, all its processes
// together, and returns the phase that it names, or else this one.
func (r *sampledRank) told(v *samples.Values, phase string) string {
	if r.worker == nil {
		return phase
	}
	latest := r.worker.observer.latest()
	if latest == nil {
		return phase
	}
	age := rendezvous.Now().Sub(r.worker.began).Seconds()
	if latest.Torch != nil {
		for _, d := range latest.Torch.Devices {
			if d.Device != r.seen || r.device == "" || age-d.At > toldStale {
				continue
			}
			plus(&v[samples.Allocated], float64(d.Allocated))
			plus(&v[samples.Reserved], float64(d.Reserved))
			if free := d.LargestFree; free != nil && !(v[samples.LargestFree] > float64(*free)) {
				v[samples.LargestFree] = float64(*free)
			}
		}
	}
	if latest.Phase == "" || len(r.peaks) >= mostPhases && !slices.ContainsFunc(r.peaks, func(p samples.Peak) bool { return p.Phase == latest.Phase }) {
		return phase
	}
	return latest.Phase
}

// plus adds to a value that may not be known yet.
func plus(into *float64, n float64) {
	if math.IsNaN(*into) {
		*into = 0
	}
	*into += n
}

// sampledAt is when the newest sample of devices was taken.
func (s *sampling) sampledAt() (at time.Time) {
	if n := len(s.kept); n > 0 {
		at = s.kept[n-1].taken
	}
	return at
}

// ofDevice fills in what the newest sample of devices tells of a rank's.
func (s *sampling) ofDevice(v *samples.Values, rank int, uuid string, now time.Time) {
	if len(s.kept) == 0 || uuid == "" {
		return
	}
	newest := s.kept[len(s.kept)-1]
	if now.Sub(newest.taken) > s.every+staleAfter {
		return
	}
	if used, _ := newest.gpus.Used(uuid); used != nil {
		v[samples.DeviceUsed] = float64(*used)
	}
	for _, g := range newest.gpus.GPUs {
		if g.UUID == uuid {
			setPercent(&v[samples.GPU], g.Utilization.GPU)
			setPercent(&v[samples.Traffic], g.Utilization.Memory)
		}
	}
	if held, known := heldBy(newest, s.pids, rank, uuid); known {
		v[samples.Process] = held
	}
}

func setPercent(into *float64, percent *int) {
	if percent != nil {
		*into = float64(*percent)
	}
}

// heldBy is what the processes of a rank hold of its device. It is not known where the
// driver tells no amounts, or names processes by numbers that mean others here.
func heldBy(k keptSample, pids map[int]owner, rank int, uuid string) (bytes float64, known bool) {
	known = inFirstPIDNamespace()
	for i := range k.gpus.GPUs {
		g := &k.gpus.GPUs[i]
		if g.Processes == nil && (g.UUID == uuid || hasInstance(g, uuid)) {
			return 0, false
		}
		for _, p := range g.Processes {
			if who, is := pids[p.PID]; !is || who.rank != rank || g.DeviceOf(p) != uuid {
				continue
			}
			if p.Memory == nil {
				return 0, false
			}
			known = true
			bytes += float64(*p.Memory)
		}
	}
	return bytes, known
}

func hasInstance(g *plugins.GPUSample, uuid string) bool {
	return slices.ContainsFunc(g.Instances, func(m plugins.MIGInstance) bool { return m.UUID == uuid })
}

// residentOf is the resident memory of each rank's processes, in bytes; ranks of which no
// process is left are missing. It reads /proc/PID/statm (proc_pid_statm(5)).
func residentOf(pids map[int]owner) map[int]float64 {
	found := map[int]float64{}
	page := float64(os.Getpagesize())
	for pid, who := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text))
		if len(fields) < 2 {
			continue
		}
		if pages, err := strconv.ParseFloat(fields[1], 64); err == nil && (pages > 0 || !who.child) {
			found[who.rank] += pages * page
		}
	}
	return found
}

// keep puts a sample into the file, which is made with the first one.
func (r *sampled) keep(who []samples.Occupant, now time.Time, values []samples.Values) error {
	if r.failed {
		return nil
	}
	if r.recorder == nil {
		recorder, err := samples.Create(r.path, len(who), float64(r.base.UnixMilli())/1000)
		if err != nil {
			return err
		}
		r.recorder = recorder
	}
	return r.recorder.Add(now.Sub(r.base).Seconds(), who, values)
}

func (s *sampling) flush() {
	if s.run.recorder != nil && !s.run.failed {
		_ = s.run.recorder.Flush() // closing tries again
	}
}

// warnOfSamples says once that the file cannot be written; the run goes on, and so do peaks.
func (a *agent) warnOfSamples(ctx context.Context, s *sampling, err error) {
	s.run.failed = true
	a.postUntil(ctx, func() {
		a.tell(orders.News{Warning: &orders.Warning{Rank: -1, Message: fmt.Sprintf("how much memory ranks use is not kept any more: %v; the run goes on", err)}})
	})
}

// judge looks for growth in what was kept of the attempt.
func (s *sampling) judge() {
	if s.run.recorder == nil || s.run.failed || s.run.recorder.Flush() != nil {
		return
	}
	series, err := samples.Read(s.run.path)
	if err != nil {
		return // the next one may do; a file that cannot be written is said
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, r := range s.ranks {
		total := 0.0
		if n := len(s.kept); n > 0 {
			total = number(second(s.kept[n-1].gpus.Used(r.device)))
		}
		r.growth = series.Growing(r.attempt, rank, total)
	}
}

func second[A, B any](_ A, b B) B { return b }

func number(n *uint64) float64 {
	if n == nil {
		return 0
	}
	return float64(*n)
}

// digest is what the coordinator is told.
func (s *sampling) digest(now time.Time) *samples.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &samples.Digest{Attempt: s.attempt, Age: now.Sub(s.began).Seconds(), Every: s.every.Seconds(), Why: s.why}
	count := map[int]int{}
	for _, who := range s.pids {
		count[who.rank]++
	}
	for _, rank := range slices.Sorted(maps.Keys(s.ranks)) {
		r := s.ranks[rank]
		if math.IsNaN(r.now[samples.RSS]) {
			continue // it has ended
		}
		one := samples.Rank{Rank: rank, Attempt: r.attempt, Processes: count[rank], Now: r.now, Peaks: slices.Clone(r.peaks), Growth: r.growth}
		if len(s.kept) > 0 {
			newest := s.kept[len(s.kept)-1].gpus
			one.Total, one.GPU = number(second(newest.Used(r.device))), indexOf(newest, r.device)
		}
		d.Ranks = append(d.Ranks, one)
	}
	if len(s.kept) > 0 {
		d.Others = s.others(s.kept[len(s.kept)-1])
	}
	return d
}

// indexOf is the number of the GPU that has this UUID, or a MIG instance with it.
func indexOf(s *plugins.GPUSamples, uuid string) *int {
	for i := range s.GPUs {
		if g := &s.GPUs[i]; uuid != "" && (g.UUID == uuid || hasInstance(g, uuid)) {
			return &g.Index
		}
	}
	return nil
}

// mostOthers is how many processes of others a digest names.
const mostOthers = 16

// others are the processes on the ranks' devices that are of no rank.
func (s *sampling) others(k keptSample) []samples.Holder {
	ours := map[string]bool{}
	for _, r := range s.ranks {
		ours[r.device] = true
	}
	var found []samples.Holder
	var users map[int]string
	for i := range k.gpus.GPUs {
		g := &k.gpus.GPUs[i]
		for _, p := range g.Processes {
			uuid := g.DeviceOf(p)
			if _, known := s.pids[p.PID]; known || !ours[uuid] || len(found) == mostOthers {
				continue
			}
			if users == nil {
				users = facts.Owners("", asProbed(k.gpus).GPUs)
			}
			found = append(found, samples.Holder{Device: uuid, Rank: orders.Nobodys, PID: p.PID, User: users[p.PID], Name: p.Name, Bytes: p.Memory})
		}
	}
	return found
}

// before is the newest sample of devices that was complete at an instant and in which the
// rank still held memory: the driver frees it before anybody hears of an end. Where it held
// none in any, it is the newest; nil: there is none.
func (s *sampling) before(rank int, at rendezvous.Instant) *keptSample {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *keptSample
	for _, k := range slices.Backward(s.kept) {
		if k.at > at {
			continue
		}
		if newest == nil {
			newest = &k
		}
		for _, g := range k.gpus.GPUs {
			for _, p := range g.Processes {
				if who, is := k.pids[p.PID]; is && who.rank == rank {
					return &k
				}
			}
		}
	}
	return newest
}

// heldBefore is who held the devices just before a worker's end; nil where that is not known.
func (a *agent) heldBefore(w *worker, end rendezvous.Instant) *orders.Sight {
	k := a.sampling.before(w.rank, end)
	if k == nil {
		return nil
	}
	seen := &orders.Sight{Attempt: w.attempt}
	a.fillSight(seen, asProbed(k.gpus), k.pids)
	return seen
}

// asProbed is a sample in the form of a probe.
func asProbed(s *plugins.GPUSamples) *plugins.GPUs {
	found := &plugins.GPUs{Source: s.Source}
	for _, g := range s.GPUs {
		found.GPUs = append(found.GPUs, plugins.GPU{Index: g.Index, UUID: g.UUID, State: g.State, Memory: g.Memory,
			Processes: g.Processes, MIG: plugins.MIG{Instances: g.Instances}})
	}
	return found
}

// sample asks one plugin after the other, as Probe does. That one tells no samples is only
// said where no other does.
func (p prober) sample(ctx context.Context) (*plugins.GPUSamples, error) {
	ctx, cancel := context.WithTimeout(ctx, sightLimit)
	defer cancel()
	var failed []error
	for _, one := range p {
		found, err := one.Sample(ctx)
		if err == nil {
			return found, nil
		}
		failed = append(failed, ownWords(err))
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, oneLine(failed)
}
