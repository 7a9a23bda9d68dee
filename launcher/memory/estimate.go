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
	Unknown  Verdict = "unknown" // the GPU's free memory is not known, or there is none
)

// order of verdicts, by what there is to say about them.
var order = []Verdict{TooLarge, Tight, Fits, Unknown}

// usable are the hundredths of free memory that are counted on: the caching allocator rounds sizes up and leaves
// gaps.
const usable = 95

// Estimate is what a job is estimated to need.
type Estimate struct {
	Degrees       Degrees
	Words         string // Degrees as text
	Communicators []string
	Stages        []Parts // of a rank, by pipeline stage; one without pipeline
	Ranks         []Rank
	Verdict       Verdict    // the worst of all ranks
	Worst         int        // the rank that is shortest of memory
	Copied        string     // says that nothing is divided, where that decides; "" where it does not
	Offloaded     *Offloaded // by the host that is shortest of memory; nil where nothing is offloaded
	Assumed       []string
	Remedies      []Remedy // by cost; nil where it fits
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
	Free *uint64 `json:"free"`       // bytes; nil: not known
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

// offloaded is what the host that is shortest of memory keeps instead of ranks of these stages: as if all its ranks
// were of the stage that has most.
func offloaded(stages []Parts, hosts []Host) *Offloaded {
	var worst *Offloaded
	each := uint64(0)
	for _, p := range stages {
		each = max(each, p.Host)
	}
	for at, h := range hosts {
		o := &Offloaded{Host: at, Need: uint64(h.Ranks) * each, Free: h.Free}
		if each > 0 && (worst == nil || o.left() < worst.left()) {
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
	Max     uint64  `json:"need_most"` // with the most that NCCL may take
	Free    *uint64 `json:"free"`      // bytes of its GPU; nil: not known
	Verdict Verdict `json:"verdict"`
}

// Make estimates a job. The error says what of the layout contradicts itself.
func Make(m Model, l Layout) (*Estimate, error) {
	d, err := degrees(m, l)
	if err != nil {
		return nil, err
	}
	m.CPUOffload = m.offloads() // remedies may shard what is copied, and do not offload it by themselves
	s := newSetup(m, d, l)
	e := &Estimate{Degrees: d, Words: d.describe(m.Strategy), Stages: s.stages(), Verdict: Unknown}
	e.Assumed = s.assumed(l)
	if l.NCCL {
		e.Communicators = d.communicators(l.Groups)
	}
	e.place(s, l)
	e.Offloaded = offloaded(e.Stages, l.Hosts)
	if e.Verdict == TooLarge || e.Verdict == Tight {
		e.Remedies, e.Together = situationOf(s, l).remedies()
		e.Copied = s.copied(e)
	}
	return e, nil
}

// place compares what ranks need with what their GPUs have free.
func (e *Estimate) place(s setup, l Layout) {
	e.Ranks = make([]Rank, l.World)
	for rank := range e.Ranks {
		p := e.Stages[s.stageOf(rank)]
		e.Ranks[rank] = Rank{Stage: s.stageOf(rank), Need: p.Min(), Max: p.Max(), Verdict: Unknown}
	}
	for _, card := range l.Cards {
		seat := seatOf(s, card)
		low, high := seat.need(e.Stages)
		for _, rank := range card.Ranks {
			r := &e.Ranks[rank]
			r.Sharing, r.Free, r.Verdict = len(card.Ranks), card.Free, seat.verdict(e.Stages)
			r.Need, r.Max = low, high
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
func (s seat) need(of []Parts) (low, high uint64) {
	for _, stage := range s.stages {
		low, high = low+of[stage].Min(), high+of[stage].Max()
	}
	return low, high
}

func (s seat) verdict(of []Parts) Verdict {
	low, high := s.need(of)
	switch {
	case s.free == nil:
		return Unknown
	case low > *s.free:
		return TooLarge
	case high > *s.free/100*usable:
		return Tight
	}
	return Fits
}

// copied says what copies hold, and what that means for more GPUs.
func (s setup) copied(e *Estimate) string {
	if !s.copies() || s.Data == 1 {
		return ""
	}
	what := "data parallelism copies"
	if s.Strategy == DDP {
		what = "DDP copies"
	}
	return fmt.Sprintf("%s parameters, gradients and optimizer state to every GPU and splits none of it: "+
		"%d times the same %s; more GPUs do not lower what each needs",
		what, s.Data, text.GiB(e.Stages[e.Ranks[e.Worst].Stage].States()))
}

// assumed is what the estimate takes for given beside its input.
func (s setup) assumed(l Layout) []string {
	all := []string{s.perParameter()}
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	gathers, first, last := s.stage() == 3 && s.parted(), s.inFlight(0), s.inFlight(s.Pipeline-1)
	add(s.Activations == 0, "activations are not told, and count nothing")
	add(s.Tensor > 1 && !s.SequenceParallel && s.Activations > 0,
		"10 of 34 parts of the activations stay whole on each tensor rank (no sequence_parallel)")
	add(s.Pipeline > 1, "layers are parted evenly, stages follow each other in a row of ranks, "+
		"and with %s a stage has %d to %d micro-batches in flight", s.Schedule, min(first, last), max(first, last))
	add(s.stepMilli() > 0, "activations and what the optimizer's step has for a moment are not there at once: the larger counts")
	add(slices.ContainsFunc(s.stages(), func(p Parts) bool { return p.Step > p.Activations }),
		"the step is torch's default on CUDA (foreach); where AdamW(fused=True) or DeepSpeed's FusedAdam runs, write fused = true")
	add(s.copies() && s.Data > 1 && !s.BucketView, "DDP holds its buckets beside the gradients (no gradient_as_bucket_view)")
	add(gathers && s.Unit == 0, "the largest unit that is gathered is 1/%d of the model, and two are held at a time",
		usualUnits(s.Model.Parameters))
	add(gathers && s.Unit > 0, "two units of %s parameters are held at a time", Count(s.Unit))
	add(s.stage() > 0 && s.stage() < 3 && s.parted(), "gradients are reduced in buckets of at most 500M elements")
	add(l.NCCL && l.World > 1, "NCCL: %.1f to %s for each communicator (%s), and what NVLS may take on top",
		float64(s.bufferMin)/(1<<30), text.GiB(s.bufferMax), strings.Join(s.communicators(s.groups), ", "))
	add(true, "CUDA context %s for each process; %d%% of free memory can be used, the rest is lost to rounding and gaps",
		text.GiB(contextSize), usable)
	add(slices.ContainsFunc(l.Cards, func(c Card) bool { return c.Spreads }),
		"a rank that has several GPUs divides what it needs evenly over them")
	_, unknown := byKind(l.Groups)
	for _, g := range unknown {
		add(true, "%s divides nothing", g)
	}
	return all
}
