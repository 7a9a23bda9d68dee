package memory

import (
	"fmt"
	"slices"
	"sort"

	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
)

// to is the change that has led to a situation, if it applies.
func (c situation) to(applies bool, what, cost string) changed {
	if !applies {
		return changed{}
	}
	return changed{c, what, cost}
}

// worthFreeing is how much others must hold for it to be reported, in bytes.
const worthFreeing = 1 << 30

func freeCards(c situation) changed {
	largest := uint64(0)
	c.seats = slices.Clone(c.seats)
	for i, s := range c.seats {
		if s.used >= worthFreeing {
			free := *s.free + s.used
			c.seats[i].free, c.seats[i].used = &free, 0
			largest = max(largest, s.used)
		}
	}
	return c.to(largest > 0, fmt.Sprintf("free the GPUs of what others hold there, up to %s", text.GiB(largest)), "none to the job")
}

func bucketView(c situation) changed {
	applies := c.copies() && c.Data > 1 && !c.BucketView
	c.BucketView = true
	return c.to(applies, "gradient_as_bucket_view=True in DDP", "none")
}

func fusedStep(c situation) changed {
	applies := c.stepMilli() > 0
	c.Fused = true
	return c.to(applies, fmt.Sprintf("fused=True in %s, whose step then takes next to nothing", c.Optimizer), "none")
}

func oneForwardOneBackward(c situation) changed {
	applies, before := c.Pipeline > 1 && c.Schedule == GPipe, c.inFlight(0)
	c.Schedule = OneForwardOneBackward
	what := fmt.Sprintf("the schedule 1f1b: at most %d micro-batches in flight instead of %d", c.inFlight(0), before)
	return c.to(applies, what, "no more idle time, a change of the program")
}

func sequenceParallel(c situation) changed {
	applies := c.Tensor > 1 && !c.SequenceParallel && c.Activations > 0
	c.SequenceParallel = true
	return c.to(applies, "sequence parallelism beside tensor parallelism", "no more communication, a change of the program")
}

// maxSplits bounds into how many a micro-batch of unknown size is parted.
const maxSplits = 8

// smallerMicroBatch finds the largest micro-batch that fits; of those that do not, the smallest is reported.
func smallerMicroBatch(c situation) changed {
	const cost = "the same mathematics in more, smaller steps"
	size := c.MicroBatch
	if c.Activations == 0 || size == 1 {
		return changed{}
	}
	if size == 0 {
		to, parts := c, 1
		for parts < maxSplits && (parts == 1 || !to.fits()) {
			parts *= 2
			to = c.withMicroBatch(1, parts)
		}
		return to.to(true, fmt.Sprintf("micro-batches of 1/%d of the size, %d times as many accumulated", parts, parts), cost)
	}
	left := largest(size-1, func(n int) bool { return c.withMicroBatch(n, size).fits() })
	to := c.withMicroBatch(left, size)
	to.MicroBatch = left
	return to.to(true, fmt.Sprintf("micro-batches of %s instead of %d, %d times as many accumulated",
		plural.Of(left, "sample"), size, (size+left-1)/left), cost)
}

// largest is the largest number up to a limit that fits, at least 1.
func largest(limit int, fits func(int) bool) int {
	return 1 + sort.Search(limit-1, func(i int) bool { return !fits(i + 2) })
}

func (c situation) withMicroBatch(part, of int) situation {
	c.Activations = mulDiv(uint64(part), c.Activations, uint64(of))
	c.LastStageActivations = mulDiv(uint64(part), c.LastStageActivations, uint64(of))
	return c
}

// fewerMicroBatches has a pipeline emptied more often. With 1f1b this lessens what is held only where most stages
// would idle, and is not advised.
func fewerMicroBatches(c situation) changed {
	before := c.inFlight(0)
	if c.Pipeline == 1 || c.Schedule != GPipe || before == 1 {
		return changed{}
	}
	with := func(n int) situation {
		to := c
		to.MicroBatches = n
		return to
	}
	left := largest(before-1, func(n int) bool { return with(n).fits() })
	return with(left).to(true, fmt.Sprintf("micro_batches = %d in flight instead of %d", left, before),
		fmt.Sprintf("stages idle %d%% of the time instead of %d%%", c.idle(left), c.idle(before)))
}

// idle are the hundredths of time in which a stage waits: for the first of so many micro-batches to come and the last
// to go (Narayanan et al., section 2.2.1).
func (c situation) idle(microBatches int) int {
	return 100 * (c.Pipeline - 1) / (microBatches + c.Pipeline - 1)
}

// keptByCheckpointing are the hundredths of activations that are left: torch's and the field's experience is about 70
// % less memory for about 30 % more computing.
const keptByCheckpointing = 30

func checkpointing(c situation) changed {
	applies := !c.Checkpointing && c.Activations > 0
	c.Activations = c.Activations / 100 * keptByCheckpointing
	c.Checkpointing = true
	return c.to(applies, "activation checkpointing (about 70% less of activations)", "about 30% more computing")
}

// widerShards has more of the ranks that there are share one copy, as many as it takes.
func widerShards(c situation) changed {
	if c.copies() || c.Shard == c.Data {
		return changed{}
	}
	to := c
	for to.Shard < c.Data && (to.Shard == c.Shard || !to.fits()) {
		to.Shard += c.Shard
		for c.Data%to.Shard != 0 {
			to.Shard += c.Shard
		}
	}
	return to.to(true, fmt.Sprintf("%s over %d ranks instead of groups of %d", c.Strategy, to.Shard, c.Shard),
		"communication between more ranks, by slower links where those groups lie apart")
}

// sharded is another strategy over all data-parallel ranks.
func (c situation) sharded(strategy, what, cost string) changed {
	applies := c.Data > 1 && c.stage() < shardedBy[strategy]
	c.Strategy, c.Shard = strategy, c.Data
	return c.to(applies, fmt.Sprintf("%s sharded over %d ranks", what, c.Shard), cost)
}

func shardedOptimizer(c situation) changed {
	return c.sharded(ZeRO1, "ZeRO stage 1: the optimizer's state", "no more communication than DDP")
}

func shardedGradients(c situation) changed {
	return c.sharded(ZeRO2, "ZeRO stage 2: gradients and the optimizer's state", "no more communication than DDP")
}

func shardedModel(c situation) changed {
	return c.sharded(FSDP, "FSDP or ZeRO stage 3: all of it", "half as much communication again")
}

func eightBit(c situation) changed {
	applies := (c.Optimizer == "adam" || c.Optimizer == "adamw") && !c.CPUOffload
	c.Optimizer = AdamW8bit
	return c.to(applies, "Adam with an 8-bit state", "rounding of the optimizer's state")
}

// offloading leaves to hosts what ranks share out; ranks that share nothing begin to. States in 8 bits are made for
// GPUs, and stay there.
func offloading(c situation) changed {
	applies := !c.CPUOffload && c.Optimizer != "lion_8bit"
	what := c.Strategy
	if c.copies() {
		c.Strategy, c.Shard, what = FSDP, c.Data, "FSDP or ZeRO stage 3"
	}
	what += " with its share in the host's memory (FSDP's CPUOffload, DeepSpeed's offload)"
	if c.Optimizer == AdamW8bit {
		c.Optimizer, what = "adamw", what+", and AdamW with a full state"
	}
	c.CPUOffload = true
	return c.to(applies, what, "much slower: each step moves it over PCIe, and the CPU does the optimizer's part")
}

// adapterShare is one in how many parameters LoRA is taken to train: adapters are usually fewer.
const adapterShare = 100

func adapters(c situation) changed {
	applies := c.Trainable == c.Model.Parameters
	c.Trainable = ceil(c.Model.Parameters, adapterShare)
	return c.to(applies, fmt.Sprintf("LoRA: 1%% of the parameters (%s) trained", Count(c.Trainable)),
		"another training: the model itself stays as it is")
}

func fourBit(c situation) changed {
	applies := c.Trainable < c.Model.Parameters && dtype(c.DType).Milli > dtype(NF4).Milli
	c.DType = NF4
	return c.to(applies, "QLoRA: what is not trained in 4 bits (nf4)", "precision of the frozen model, and slower steps")
}

// maxTimes bounds how many times as many GPUs are considered: nobody who asks for so many can have more.
const maxTimes = 8

// moreGPUs helps only what is split: the smallest multiple that fits, of GPUs that have as little free as the fullest
// of those there are.
func moreGPUs(c situation) changed {
	shard := func(strategy string) func(int) situation {
		return func(times int) situation {
			to := c
			to.Strategy, to.Data, to.Shard = strategy, c.Data*times, c.Data*times
			return to
		}
	}
	grow := func(limit int, how string, with func(times int) situation) changed {
		for times := 2; times <= limit; times++ {
			if to := with(times); to.fits() {
				return to.to(true, fmt.Sprintf("%d GPUs like these instead of %d%s", to.World(), c.World(), how),
					"the GPUs, and communication between more of them")
			}
		}
		return changed{}
	}
	switch {
	case !c.copies():
		return grow(maxTimes, "", shard(c.Strategy))
	case c.Data > 1: // each would have a copy
		return changed{}
	case c.Pipeline > 1:
		return grow(maxTimes, " in a longer pipeline", c.withStages)
	case c.Tensor == 1:
		return grow(maxTimes, ", with FSDP over them", shard(FSDP))
	}
	// Each layer waits for the slowest link of a tensor group: it stays within an island.
	larger := grow(min(maxTimes, c.island/c.Tensor), " in larger tensor groups", func(times int) situation {
		to := c
		to.Tensor *= times
		return to
	})
	if larger.what != "" {
		return larger
	}
	return grow(maxTimes, ", with FSDP over more tensor groups", shard(FSDP))
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
