package memory

import (
	"fmt"
	"slices"
	"sort"

	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
)

// worthFreeing is how much others must hold for it to be told, in bytes.
const worthFreeing = 1 << 30

func freeCards(c situation) (situation, words, bool) {
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
	return c, words{fmt.Sprintf("free the GPUs of what others hold there, up to %s", text.GiB(most)), "none to the job"}, most > 0
}

func bucketView(c situation) (situation, words, bool) {
	applies := c.copies() && c.Data > 1 && !c.BucketView
	c.BucketView = true
	return c, words{"gradient_as_bucket_view=True in DDP", "none"}, applies
}

func fusedStep(c situation) (situation, words, bool) {
	applies := c.stepMilli() > 0
	c.Fused = true
	return c, words{fmt.Sprintf("fused=True in %s, whose step then takes next to nothing", c.Optimizer), "none"}, applies
}

func oneForwardOneBackward(c situation) (situation, words, bool) {
	applies := c.Pipeline > 1 && c.Schedule == GPipe
	before := c.inFlight(0)
	c.Schedule = OneForwardOneBackward
	return c, words{fmt.Sprintf("the schedule 1f1b: at most %d micro-batches in flight instead of %d", c.inFlight(0), before), "no more idle time, a change of the program"}, applies
}

func sequenceParallel(c situation) (situation, words, bool) {
	applies := c.Tensor > 1 && !c.SequenceParallel && c.Activations > 0
	c.SequenceParallel = true
	return c, words{"sequence parallelism beside tensor parallelism", "no more communication, a change of the program"}, applies
}

// mostSplits bounds into how many a micro-batch of unknown size is parted.
const mostSplits = 8

// smallerMicroBatch finds the largest micro-batch that fits; of those that do not, the smallest is told.
func smallerMicroBatch(c situation) (situation, words, bool) {
	size := c.MicroBatch
	if c.Activations == 0 || size == 1 {
		return c, words{}, false
	}
	const cost = "the same mathematics in more, smaller steps"
	if size == 0 {
		to, parts := c, 1
		for parts < mostSplits && (parts == 1 || !to.fits()) {
			parts *= 2
			to = c.withMicroBatch(1, parts)
		}
		return to, words{fmt.Sprintf("micro-batches of 1/%d of the size, %d times as many accumulated", parts, parts), cost}, true
	}
	// The first of 2, 3, ... that does not fit comes after the largest that does.
	left := 1 + sort.Search(size-2, func(i int) bool { return !c.withMicroBatch(i+2, size).fits() })
	to := c.withMicroBatch(left, size)
	to.MicroBatch = left
	times := (size + left - 1) / left
	return to, words{fmt.Sprintf("micro-batches of %s instead of %d, %d times as many accumulated", plural.Of(left, "sample"), size, times), cost}, true
}

func (c situation) withMicroBatch(part, of int) situation {
	c.Activations = mulDiv(uint64(part), c.Activations, uint64(of))
	c.LastStageActivations = mulDiv(uint64(part), c.LastStageActivations, uint64(of))
	return c
}

// fewerMicroBatches has a pipeline emptied more often. With 1f1b this lessens what is held only where most stages
// would idle, and is not advised.
func fewerMicroBatches(c situation) (situation, words, bool) {
	before := c.inFlight(0)
	if c.Pipeline == 1 || c.Schedule != GPipe || before == 1 {
		return c, words{}, false
	}
	with := func(n int) situation {
		to := c
		to.MicroBatches = n
		return to
	}
	left := 1 + sort.Search(before-2, func(i int) bool { return !with(i + 2).fits() })
	return with(left), words{fmt.Sprintf("micro_batches = %d in flight instead of %d", left, before),
		fmt.Sprintf("stages idle %d%% of the time instead of %d%%", c.idle(left), c.idle(before))}, true
}

// idle are the hundredths of time in which a stage waits: for the first of so many micro-batches to come and the last
// to go (Narayanan et al., section 2.2.1).
func (c situation) idle(microBatches int) int {
	return 100 * (c.Pipeline - 1) / (microBatches + c.Pipeline - 1)
}

// keptByCheckpointing are the hundredths of activations that are left: torch's and the field's experience is about 70
// % less memory for about 30 % more computing.
const keptByCheckpointing = 30

func checkpointing(c situation) (situation, words, bool) {
	applies := !c.Checkpointing && c.Activations > 0
	c.Activations = c.Activations / 100 * keptByCheckpointing
	c.Checkpointing = true
	return c, words{"activation checkpointing (about 70% less of activations)", "about 30% more computing"}, applies
}

// widerShards has more of the ranks that there are share one copy, as many as it takes.
func widerShards(c situation) (situation, words, bool) {
	if c.copies() || c.Shard == c.Data {
		return c, words{}, false
	}
	to := c
	for to.Shard < c.Data && (to.Shard == c.Shard || !to.fits()) {
		to.Shard += c.Shard
		for c.Data%to.Shard != 0 {
			to.Shard += c.Shard
		}
	}
	return to, words{fmt.Sprintf("%s over %d ranks instead of groups of %d", c.Strategy, to.Shard, c.Shard), "communication between more ranks, by slower links where those groups lie apart"}, true
}

// sharded is the situation with another strategy over all data-parallel ranks.
func (c situation) sharded(strategy string, stage int) (situation, bool) {
	applies := c.Data > 1 && c.stage() < stage
	c.Strategy, c.Shard = strategy, c.Data
	return c, applies
}

func shardedOptimizer(c situation) (situation, words, bool) {
	to, applies := c.sharded(ZeRO1, 1)
	return to, words{fmt.Sprintf("ZeRO stage 1: the optimizer's state sharded over %d ranks", to.Shard), "no more communication than DDP"}, applies
}

func eightBit(c situation) (situation, words, bool) {
	applies := (c.Optimizer == "adam" || c.Optimizer == "adamw") && !c.CPUOffload
	c.Optimizer = AdamW8bit
	return c, words{"Adam with an 8-bit state", "rounding of the optimizer's state"}, applies
}

func shardedGradients(c situation) (situation, words, bool) {
	to, applies := c.sharded(ZeRO2, 2)
	return to, words{fmt.Sprintf("ZeRO stage 2: gradients and the optimizer's state sharded over %d ranks", to.Shard), "no more communication than DDP"}, applies
}

func shardedModel(c situation) (situation, words, bool) {
	to, applies := c.sharded(FSDP, 3)
	return to, words{fmt.Sprintf("FSDP or ZeRO stage 3: all of it sharded over %d ranks", to.Shard), "half as much communication again"}, applies
}

// offloading leaves to hosts what ranks share out; ranks that share nothing begin to. States in 8 bits are made for
// GPUs, and stay there.
func offloading(c situation) (situation, words, bool) {
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
	return c, words{what, "much slower: each step moves it over PCIe, and the CPU does the optimizer's part"}, applies
}

// adapterShare is one in how many parameters LoRA is taken to train: adapters are mostly fewer.
const adapterShare = 100

func adapters(c situation) (situation, words, bool) {
	applies := c.Trainable == c.Model.Parameters
	c.Trainable = ceil(c.Model.Parameters, adapterShare)
	return c, words{fmt.Sprintf("LoRA: 1%% of the parameters (%s) trained", Count(c.Trainable)), "another training: the model itself stays as it is"}, applies
}

func fourBit(c situation) (situation, words, bool) {
	applies := c.Trainable < c.Model.Parameters && dtype(c.DType).Milli > dtype(NF4).Milli
	c.DType = NF4
	return c, words{"QLoRA: what is not trained in 4 bits (nf4)", "precision of the frozen model, and slower steps"}, applies
}
