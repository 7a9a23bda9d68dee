package memory

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/muster-dev/muster/launcher/plural"
)

// Remedy is a change, and what would be needed with it.
type Remedy struct {
	Change string `json:"change"`
	Cost   string `json:"cost"`
	Need   uint64 `json:"need"`         // bytes of the GPU that is then the fullest: the least
	Most   uint64 `json:"need_most"`    // with the most that NCCL may take
	Free   uint64 `json:"free"`         // bytes of that GPU
	Fits   bool   `json:"fits"`         // on every GPU, and not only just
	Other  bool   `json:"trains_other"` // another model comes out than was asked for
}

// situation is a job and its GPUs, alike ones once. It is a value: changes make new ones.
type situation struct {
	setup
	seats []seat
}

// newCase is the situation of a job: of GPUs with the same stages the one with the least
// free memory counts.
func newCase(s setup, l Layout) situation {
	at := map[string]int{}
	c := situation{setup: s}
	for _, card := range l.Cards {
		if card.Free == nil {
			continue
		}
		found := seatOf(s, card)
		key := fmt.Sprint(found.stages)
		i, known := at[key]
		if !known {
			at[key] = len(c.seats)
			c.seats = append(c.seats, found)
		} else if *found.free < *c.seats[i].free {
			c.seats[i] = found
		}
	}
	return c
}

// outcome is the GPU that lacks most, or has least left.
func (c situation) outcome() (need, most, free uint64, fits bool) {
	stages := make([]Parts, c.Pipeline)
	for stage := range stages {
		stages[stage] = c.parts(stage)
	}
	fits = true
	left := int64(1) << 62
	for _, s := range c.seats {
		least, all := s.need(stages)
		fits = fits && s.verdict(stages) == Fits
		if rest := int64(*s.free) - int64(least); rest < left {
			left, need, most, free = rest, least, all, *s.free
		}
	}
	return need, most, free, fits
}

func (c situation) fits() bool {
	_, _, _, fits := c.outcome()
	return fits
}

// change returns a changed situation with what the change is and costs in words, or false
// where there is nothing to change.
type change func(situation) (situation, Remedy, bool)

// option is something that can be changed.
type option struct {
	change
	// seeks is set where the change goes as far as it has to: it comes after those that have
	// one size.
	seeks bool
	// other is set where another model comes out than was asked for.
	other bool
}

// options are all, the least costly first: what costs nothing; what costs time; what
// changes how the optimizer works, or the program; what costs machines; what trains less.
var options = []option{
	{change: freeCards},
	{change: bucketView},
	{change: sequenceParallel},
	{change: smallerMicroBatch, seeks: true},
	{change: checkpointing},
	{change: shardedOptimizer},
	{change: eightBit},
	{change: shardedGradients},
	{change: shardedModel},
	{change: moreGPUs, seeks: true},
	{change: adapters, other: true},
	{change: fourBit, other: true},
}

// remedies are the changes that lessen the need, each by itself; and, where none is enough
// without training something else, the first ones that are enough together.
func (c situation) remedies() ([]Remedy, *Remedy) {
	now, _, _, _ := c.outcome()
	var found []Remedy
	enough := map[bool]bool{} // by whether another model comes out
	for _, o := range options {
		if r, is := c.try(o); is && (r.Need < now || r.Fits) {
			found = append(found, r)
			enough[o.other] = enough[o.other] || r.Fits
		}
	}
	if enough[false] {
		return found, nil
	}
	same := slices.DeleteFunc(slices.Clone(options), func(o option) bool { return o.other })
	if together := c.together(same); together != nil || enough[true] {
		return found, together
	}
	return found, c.together(options)
}

func (c situation) try(o option) (Remedy, bool) {
	to, r, is := o.change(c)
	if !is {
		return r, false
	}
	r.Other = o.other
	r.Need, r.Most, r.Free, r.Fits = to.outcome()
	return r, true
}

// together adds change to change until it fits, and then leaves out those, the costliest
// first, without which it still fits on as many GPUs. nil: that is not enough.
func (c situation) together(of []option) *Remedy {
	var chosen []option
	for _, o := range of {
		chosen = append(chosen, o)
		if to, _ := c.all(chosen); to.fits() {
			return c.fewest(chosen)
		}
	}
	return nil
}

func (c situation) fewest(chosen []option) *Remedy {
	whole, _ := c.all(chosen)
	for at := len(chosen) - 1; at >= 0; at-- {
		fewer := slices.Delete(slices.Clone(chosen), at, at+1)
		if to, _ := c.all(fewer); to.fits() && to.World() <= whole.World() {
			chosen = fewer
		}
	}
	to, parts := c.all(chosen)
	r := &Remedy{}
	var changes, costs []string
	for _, part := range parts {
		changes, r.Other = append(changes, part.Change), r.Other || part.Other
		if !slices.Contains(costs, part.Cost) {
			costs = append(costs, part.Cost)
		}
	}
	r.Change, r.Cost = strings.Join(changes, "; "), strings.Join(costs, "; ")
	r.Need, r.Most, r.Free, r.Fits = to.outcome()
	return r
}

// all applies changes one after the other, those that go as far as they have to last.
func (c situation) all(of []option) (situation, []Remedy) {
	var done []Remedy
	for _, seeking := range []bool{false, true} {
		for _, o := range of {
			if o.seeks != seeking {
				continue
			}
			if to, r, is := o.change(c); is {
				r.Other = o.other
				c, done = to, append(done, r)
			}
		}
	}
	return c, done
}

// worthFreeing is how much others must hold for it to be told, in bytes.
const worthFreeing = 1 << 30

func freeCards(c situation) (situation, Remedy, bool) {
	most := uint64(0)
	seats := slices.Clone(c.seats)
	for i, s := range seats {
		if s.used < worthFreeing {
			continue
		}
		free := *s.free + s.used
		seats[i].free, seats[i].used = &free, 0
		most = max(most, s.used)
	}
	c.seats = seats
	return c, Remedy{Change: fmt.Sprintf("free the GPUs of what others hold there, up to %s", gib(most)), Cost: "none to the job"}, most > 0
}

func bucketView(c situation) (situation, Remedy, bool) {
	applies := c.copies() && c.Data > 1 && !c.BucketView
	c.BucketView = true
	return c, Remedy{Change: "gradient_as_bucket_view=True in DDP", Cost: "none"}, applies
}

func sequenceParallel(c situation) (situation, Remedy, bool) {
	applies := c.Tensor > 1 && !c.SequenceParallel && c.Activations > 0
	c.SequenceParallel = true
	return c, Remedy{Change: "sequence parallelism beside tensor parallelism", Cost: "no more communication, a change of the program"}, applies
}

// mostSplits bounds into how many a micro-batch of unknown size is parted.
const mostSplits = 8

// smallerMicroBatch finds the largest micro-batch that fits; of those that do not, the
// smallest is told.
func smallerMicroBatch(c situation) (situation, Remedy, bool) {
	size := c.MicroBatch
	if c.Activations == 0 || size == 1 {
		return c, Remedy{}, false
	}
	const cost = "the same mathematics in more, smaller steps"
	if size == 0 {
		to, parts := c, 1
		for parts < mostSplits && (parts == 1 || !to.fits()) {
			parts *= 2
			to = c.withMicroBatch(1, parts)
		}
		return to, Remedy{Change: fmt.Sprintf("micro-batches of 1/%d of the size, %d times as many accumulated", parts, parts), Cost: cost}, true
	}
	// The first of 2, 3, ... that does not fit comes after the largest that does.
	left := 1 + sort.Search(size-2, func(i int) bool { return !c.withMicroBatch(i+2, size).fits() })
	to := c.withMicroBatch(left, size)
	to.MicroBatch = left
	times := (size + left - 1) / left
	return to, Remedy{Change: fmt.Sprintf("micro-batches of %s instead of %d, %d times as many accumulated", plural.Of(left, "sample"), size, times), Cost: cost}, true
}

func (c situation) withMicroBatch(part, of int) situation {
	c.Activations = mulDiv(uint64(part), c.Activations, uint64(of))
	c.LastStageActivations = mulDiv(uint64(part), c.LastStageActivations, uint64(of))
	return c
}

// keptByCheckpointing are the hundredths of activations that are left: torch's and the
// field's experience is about 70 % less memory for about 30 % more computing.
const keptByCheckpointing = 30

func checkpointing(c situation) (situation, Remedy, bool) {
	applies := !c.Checkpointing && c.Activations > 0
	c.Activations = c.Activations / 100 * keptByCheckpointing
	c.Checkpointing = true
	return c, Remedy{Change: "activation checkpointing (about 70% less of activations)", Cost: "about 30% more computing"}, applies
}

// sharded is the situation with another strategy over all data-parallel ranks.
func (c situation) sharded(strategy string, stage int) (situation, bool) {
	applies := c.Data > 1 && c.stage() < stage
	c.Strategy, c.Shard = strategy, c.Data
	return c, applies
}

func shardedOptimizer(c situation) (situation, Remedy, bool) {
	to, applies := c.sharded(ZeRO1, 1)
	return to, Remedy{Change: fmt.Sprintf("ZeRO stage 1: the optimizer's state sharded over %d ranks", to.Shard), Cost: "no more communication than DDP"}, applies
}

func eightBit(c situation) (situation, Remedy, bool) {
	applies := c.Optimizer == "adam" || c.Optimizer == "adamw"
	c.Optimizer = AdamW8bit
	return c, Remedy{Change: "Adam with an 8-bit state", Cost: "rounding of the optimizer's state"}, applies
}

func shardedGradients(c situation) (situation, Remedy, bool) {
	to, applies := c.sharded(ZeRO2, 2)
	return to, Remedy{Change: fmt.Sprintf("ZeRO stage 2: gradients and the optimizer's state sharded over %d ranks", to.Shard), Cost: "no more communication than DDP"}, applies
}

func shardedModel(c situation) (situation, Remedy, bool) {
	to, applies := c.sharded(FSDP, 3)
	return to, Remedy{Change: fmt.Sprintf("FSDP or ZeRO stage 3: all of it sharded over %d ranks", to.Shard), Cost: "half as much communication again"}, applies
}

// mostTimes bounds how many times as many GPUs are thought of.
const mostTimes = 64

// moreGPUs helps only what is split: the smallest multiple that fits, of GPUs that have as
// little free as the fullest of those there are.
func moreGPUs(c situation) (situation, Remedy, bool) {
	grown, how := c.growth()
	if grown == nil {
		return c, Remedy{}, false
	}
	to := grown(2)
	for times := 3; times <= mostTimes && !to.fits(); times++ {
		to = grown(times)
	}
	return to, Remedy{Change: fmt.Sprintf("%d GPUs like these instead of %d%s", to.World(), c.World(), how), Cost: "the GPUs, and communication between more of them"}, true
}

// growth is how more ranks would share what there is, nil where each would have a copy.
func (c situation) growth() (grown func(times int) situation, how string) {
	switch {
	case !c.copies() || c.World() == 1:
		to := c
		if c.copies() {
			to.Strategy, how = FSDP, ", with FSDP over them"
		}
		return func(times int) situation {
			to.Data, to.Shard = c.Data*times, c.Data*times
			return to
		}, how
	case c.Data > 1:
		return nil, ""
	case c.Tensor > 1:
		to := c
		return func(times int) situation {
			to.Tensor = c.Tensor * times
			return to
		}, " in larger tensor groups"
	}
	return c.withStages, " in a longer pipeline"
}

// withStages is a pipeline with so many times the stages.
func (c situation) withStages(times int) situation {
	least := *c.seats[0].free
	for _, s := range c.seats {
		least = min(least, *s.free)
	}
	c.Pipeline *= times
	c.seats = nil
	for stage := range c.Pipeline {
		c.seats = append(c.seats, seat{stages: []int{stage}, free: &least})
	}
	return c
}

// adapterShare is one in how many parameters LoRA is taken to train: adapters are mostly
// fewer.
const adapterShare = 100

func adapters(c situation) (situation, Remedy, bool) {
	applies := c.Trainable == c.Model.Parameters
	c.Trainable = ceil(c.Model.Parameters, adapterShare)
	return c, Remedy{Change: fmt.Sprintf("LoRA: 1%% of the parameters (%s) trained", Count(c.Trainable)), Cost: "another training: the model itself stays as it is"}, applies
}

func fourBit(c situation) (situation, Remedy, bool) {
	applies := c.Trainable < c.Model.Parameters && dtype(c.DType).Milli > dtype(NF4).Milli
	c.DType = NF4
	return c, Remedy{Change: "QLoRA: what is not trained in 4 bits (nf4)", Cost: "precision of the frozen model, and slower steps"}, applies
}
