package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// Verdict is what an estimate comes to for a GPU.
type Verdict string

// Verdicts, the worst first.
const (
	TooLarge Verdict = "does_not_fit" // even with the least that NCCL may take
	Tight    Verdict = "tight"        // the rest is less than what NCCL may take, or is lost to fragmentation
	Fits     Verdict = "fits"
	Unknown  Verdict = "unknown" // the GPU does not tell its free memory, or there is none
)

// usable are the hundredths of free memory that are counted on: the caching allocator rounds sizes up and leaves
// gaps.
const usable = 95

// Estimate is what a job is estimated to need.
type Estimate struct {
	Degrees       Degrees
	Words         string // Degrees in words
	Communicators []string
	Stages        []Parts // of a rank, by pipeline stage; one without pipeline
	Ranks         []Rank
	Verdict       Verdict // the worst of all ranks
	Worst         int     // the rank that lacks most, or has least left
	// Copied says that nothing is divided, where that decides; "" where it does not.
	Copied string
	// Offloaded is what the host that lacks most, or has least left, is to keep in its own memory; nil where nothing
	// is offloaded.
	Offloaded *Offloaded
	Assumed   []string
	Remedies  []Remedy // by cost; nil where it fits
	// Together are remedies that fit with each other and cost less than each that fits alone; nil where that is not
	// so.
	Together *Remedy
}

// Cheapest is the remedy of least cost that makes it fit, nil where there is none.
func (e *Estimate) Cheapest() *Remedy {
	if e.Together != nil {
		return e.Together
	}
	if at := slices.IndexFunc(e.Remedies, func(r Remedy) bool { return r.Fits }); at >= 0 {
		return &e.Remedies[at]
	}
	return nil
}

// Offloaded is what a host keeps in its own memory for its ranks.
type Offloaded struct {
	Host int     `json:"host_index"` // in the order of the job file
	Need uint64  `json:"need"`       // bytes
	Free *uint64 `json:"free"`       // bytes; nil: not told
}

// Fits reports whether the host has the memory, as far as that is known.
func (o *Offloaded) Fits() bool { return o == nil || o.Free == nil || o.Need <= *o.Free/100*usable }

// left is what the host has beyond, as far as that is known.
func (o *Offloaded) left() int64 {
	if o.Free == nil {
		return 1 << 62
	}
	return int64(*o.Free) - int64(o.Need)
}

// offloaded is what hosts keep where ranks of these stages do not: each as if all its ranks were of the stage that
// has most.
func offloaded(stages []Parts, hosts []Host) *Offloaded {
	var worst *Offloaded
	most := uint64(0)
	for _, p := range stages {
		most = max(most, p.Host)
	}
	for at, h := range hosts {
		o := &Offloaded{Host: at, Need: uint64(h.Ranks) * most, Free: h.Free}
		if most > 0 && (worst == nil || o.left() < worst.left()) {
			worst = o
		}
	}
	return worst
}

// Rank is a rank's part.
type Rank struct {
	Stage   int     `json:"stage"`
	Sharing int     `json:"sharing"`   // ranks on its GPU, itself too; 0: it has none
	Need    uint64  `json:"need"`      // bytes of its GPU, for all ranks on it: the least
	Most    uint64  `json:"need_most"` // with the most that NCCL may take
	Free    *uint64 `json:"free"`      // bytes of its GPU; nil: not told
	Verdict Verdict `json:"verdict"`
}

// Make estimates a job. The error says what of the layout contradicts itself.
func Make(m Model, l Layout) (*Estimate, error) {
	d, err := degrees(m, l)
	if err != nil {
		return nil, err
	}
	m.CPUOffload = m.offloads() // remedies may shard what is copied, and do not offload it by themselves
	s := setup{Model: m, Degrees: d, groups: l.Groups, buffers: buffersOf(l)}
	e := &Estimate{Degrees: d, Words: d.words(m), Communicators: d.communicators(l.Groups), Verdict: Unknown}
	if !l.NCCL {
		e.Communicators = nil
	}
	for stage := range d.Pipeline {
		e.Stages = append(e.Stages, s.parts(stage))
	}
	e.place(s, l)
	e.Offloaded = offloaded(e.Stages, l.Hosts)
	e.Assumed = s.assumed(l)
	if e.Verdict == TooLarge || e.Verdict == Tight {
		c := newCase(s, l)
		e.Remedies, e.Together = c.remedies()
		e.Copied = s.copied(e)
	}
	return e, nil
}

// place compares what ranks need with what their GPUs have free.
func (e *Estimate) place(s setup, l Layout) {
	e.Ranks = make([]Rank, l.World)
	for rank := range e.Ranks {
		stage := s.stageOf(rank)
		e.Ranks[rank] = Rank{Stage: stage, Need: e.Stages[stage].Least(), Most: e.Stages[stage].Most(), Verdict: Unknown}
	}
	for _, card := range l.Cards {
		seat := seatOf(s, card)
		need, most := seat.need(e.Stages)
		verdict := seat.verdict(e.Stages)
		for _, rank := range card.Ranks {
			e.Ranks[rank] = Rank{Stage: s.stageOf(rank), Sharing: len(card.Ranks), Need: need, Most: most, Free: card.Free, Verdict: verdict}
		}
	}
	for rank := range e.Ranks {
		if e.Ranks[rank].worseThan(e.Ranks[e.Worst]) {
			e.Worst = rank
		}
	}
	if l.World > 0 {
		e.Verdict = e.Ranks[e.Worst].Verdict
	}
}

// order of verdicts, by what there is to say of them.
var order = []Verdict{TooLarge, Tight, Fits, Unknown}

func (r Rank) worseThan(other Rank) bool {
	a, b := slices.Index(order, r.Verdict), slices.Index(order, other.Verdict)
	if a != b || r.Free == nil || other.Free == nil {
		return a < b
	}
	return int64(r.Need)-int64(*r.Free) > int64(other.Need)-int64(*other.Free)
}

// seat is a GPU as the ranks on it see it.
type seat struct {
	stages []int // of its ranks
	free   *uint64
	used   uint64
}

func seatOf(s setup, card Card) seat {
	found := seat{free: card.Free, used: card.Used}
	for _, rank := range card.Ranks {
		found.stages = append(found.stages, s.stageOf(rank))
	}
	slices.Sort(found.stages)
	return found
}

// need is what all of its ranks need, least and most.
func (s seat) need(of []Parts) (least, most uint64) {
	for _, stage := range s.stages {
		least, most = least+of[stage].Least(), most+of[stage].Most()
	}
	return least, most
}

func (s seat) verdict(of []Parts) Verdict {
	least, most := s.need(of)
	switch {
	case s.free == nil:
		return Unknown
	case least > *s.free:
		return TooLarge
	case most > *s.free/100*usable:
		return Tight
	}
	return Fits
}

// copied says what copies hold, and what that means for more GPUs.
func (s setup) copied(e *Estimate) string {
	if !s.copies() || s.Data == 1 {
		return ""
	}
	what := "DDP copies"
	if s.Strategy != DDP {
		what = "data parallelism copies"
	}
	return fmt.Sprintf("%s parameters, gradients and optimizer state to every GPU and splits none of it: %d times the same %s; more GPUs do not lower what each needs",
		what, s.Data, text.GiB(e.Stages[e.Ranks[e.Worst].Stage].States()))
}

// assumed are what the estimate takes for given beside what it was told.
func (s setup) assumed(l Layout) []string {
	all := []string{s.perParameter()}
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(s.Activations == 0, "activations are not told, and count nothing")
	add(s.Tensor > 1 && !s.SequenceParallel && s.Activations > 0, "10 of 34 parts of the activations stay whole on each tensor rank (no sequence_parallel)")
	add(s.Pipeline > 1, "layers are parted evenly, stages follow each other in a row of ranks, and with %s a stage has %d to %d micro-batches in flight",
		s.Schedule, min(s.inFlight(0), s.inFlight(s.Pipeline-1)), max(s.inFlight(0), s.inFlight(s.Pipeline-1)))
	add(s.stepMilli() > 0, "activations and what the optimizer's step has for a moment are not there at once: the larger counts")
	add(s.stepDecides(), "the step is torch's default on CUDA (foreach); where AdamW(fused=True) or DeepSpeed's FusedAdam runs, write fused = true")
	add(s.copies() && s.Data > 1 && !s.BucketView, "DDP holds its buckets beside the gradients (no gradient_as_bucket_view)")
	add(s.stage() == 3 && s.parted() && s.Unit == 0, "the largest unit that is gathered is 1/%d of the model, and two are held at a time", usualUnits(s.Model.Parameters))
	add(s.stage() == 3 && s.parted() && s.Unit > 0, "two units of %s parameters are held at a time", Count(s.Unit))
	add(s.stage() > 0 && s.stage() < 3 && s.parted(), "gradients are reduced in buckets of at most 500M elements")
	least, most := s.buffers(1)
	add(l.NCCL && l.World > 1, "NCCL: %s for each communicator (%s), and what NVLS may take on top", span(least, most), strings.Join(s.communicators(s.groups), ", "))
	add(true, "CUDA context %s for each process; %d%% of free memory can be used, the rest is lost to rounding and gaps", text.GiB(contextSize), usable)
	add(slices.ContainsFunc(l.Cards, func(c Card) bool { return c.Spreads }), "a rank that has several GPUs divides what it needs evenly over them")
	_, unknown := byKind(l.Groups)
	for _, g := range unknown {
		add(true, "%s divides nothing", g)
	}
	return all
}

// stepDecides reports whether the optimizer's step has more than a stage's activations.
func (s setup) stepDecides() bool {
	for stage := range s.Pipeline {
		if p := s.parts(stage); p.Step > p.Activations {
			return true
		}
	}
	return false
}

func span(least, most uint64) string {
	return fmt.Sprintf("%.1f to %s", float64(least)/(1<<30), text.GiB(most))
}
