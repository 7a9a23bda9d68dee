package memory

import (
	"fmt"
	"slices"
)

// Model is what a job file says of a model and of how it is trained.
type Model struct {
	Parameters uint64 // all of them, those that are not trained and LoRA's too
	Trainable  uint64 // of these
	DType      string // of the parameters, one of DTypes
	// MasterWeights says whether the optimizer keeps an fp32 copy of what is trained; nil: where the dtype is
	// narrower.
	MasterWeights *bool  `json:",omitempty"`
	GradientDType string `json:",omitempty"` // one of GradientDTypes; "": that of what is trained
	StateDType    string `json:",omitempty"` // of the optimizer's state; "": fp32 beside master weights, else as trained
	Optimizer     string // one of Optimizers
	Fused         bool   `json:",omitempty"` // the optimizer goes through the parameters one by one: AdamW(fused=True)
	Strategy      string // one of Strategies
	// Activations are what the forward pass of one micro-batch through the whole model keeps for the backward pass,
	// in bytes, as it is run: with checkpointing where Checkpointing is set.
	Activations   uint64
	Checkpointing bool
	MicroBatch    int `json:",omitempty"` // samples in one; 0: not known
	// MicroBatches are the most that a pipeline has in flight; 0: as many as the schedule has. Without a pipeline
	// there is one at a time, however many are accumulated.
	MicroBatches     int    `json:",omitempty"`
	Schedule         string // of a pipeline, one of Schedules
	BucketView       bool   // DDP's gradient_as_bucket_view
	SequenceParallel bool   // tensor parallelism also splits what it would keep whole
	// CPUOffload leaves what ranks share out in their hosts' memory: the optimizer's state, and what else the
	// strategy shards.
	CPUOffload bool   `json:",omitempty"`
	Unit       uint64 `json:",omitempty"` // parameters of the largest unit that FSDP gathers; 0: not known
	EndStages
}

// EndStages is what the first and last stage of a pipeline have beyond their share of the layers: parameters, such as
// the embedding and the head, and what the last one keeps of a micro-batch, such as the logits, in bytes.
type EndStages struct {
	FirstStage, LastStage uint64 `json:",omitempty"`
	LastStageActivations  uint64 `json:",omitempty"`
}

// Strategies. What ranks.groups has comes on top: with tensor = 4, "ddp" copies what four ranks share.
const (
	DDP      = "ddp"
	ZeRO1    = "zero1"
	ZeRO2    = "zero2"
	ZeRO3    = "zero3"
	FSDP     = "fsdp"
	Tensor   = "tensor"   // all ranks are one group, where none is named
	Pipeline = "pipeline" // the same
)

// Strategies are all of them.
var Strategies = []string{DDP, FSDP, ZeRO1, ZeRO2, ZeRO3, Tensor, Pipeline}

// Schedules of a pipeline.
const (
	OneForwardOneBackward = "1f1b"  // a stage holds as many micro-batches as stages are left
	GPipe                 = "gpipe" // each stage holds all
)

// Schedules are all of them.
var Schedules = []string{OneForwardOneBackward, GPipe}

// Sizes are in thousandths of a byte, so that no fraction is computed.
const milli = 1000

// DType is a form of numbers.
type DType struct {
	Name   string
	Milli  uint64 // thousandths of a byte that a number takes
	Frozen bool   // parameters of the form cannot be trained
}

// NF4 is the form of QLoRA's base model.
const NF4 = "nf4"

// DTypes are those of parameters. Quantized ones include their scales: nf4 with double quantization has 4.127 bits
// for a parameter (QLoRA, section 3).
var DTypes = []DType{
	{Name: "fp32", Milli: 4000},
	{Name: "bf16", Milli: 2000},
	{Name: "fp16", Milli: 2000},
	{Name: "fp8", Milli: 1000},
	{Name: "int8", Milli: 1000, Frozen: true},
	{Name: NF4, Milli: 516, Frozen: true},
}

// GradientDTypes are those of gradients, and of an optimizer's state.
var GradientDTypes = []string{"fp32", "bf16", "fp16"}

// Optimizer is what an optimizer keeps for each parameter that it trains.
type Optimizer struct {
	Name   string
	States uint64 // numbers in the dtype of the state
	Milli  uint64 // thousandths of a byte beside them
	// Foreach is set where torch's default on CUDA works on all parameters at once, with the root of the second
	// moment, in the dtype of the state, beside it (_multi_tensor_adam in torch/optim/adam.py). What others have for
	// a moment hardly counts: SGD changes in place, bitsandbytes, Lion, Adafactor and Muon go through the parameters
	// one by one.
	Foreach bool
}

// AdamW8bit is the optimizer that is advised where Adam's state is too large.
const AdamW8bit = "adamw_8bit"

// Optimizers that are known. An 8-bit one (bitsandbytes) keeps a byte and, for each block of 256, a scale in fp32;
// Adafactor keeps sums of rows and columns, which hardly count.
var Optimizers = []Optimizer{
	{Name: "adamw", States: 2, Foreach: true},
	{Name: "adam", States: 2, Foreach: true},
	{Name: AdamW8bit, Milli: 2031},
	{Name: "sgd"},
	{Name: "sgd_momentum", States: 1},
	{Name: "lion", States: 1},
	{Name: "lion_8bit", Milli: 1016},
	{Name: "adafactor"},
	{Name: "muon", States: 1},
}

func (d DType) name() string     { return d.Name }
func (o Optimizer) name() string { return o.Name }

type named interface{ name() string }

func lookup[T named](all []T, name string) T {
	at := slices.IndexFunc(all, func(one T) bool { return one.name() == name })
	if at < 0 {
		panic("memory: there is no " + name)
	}
	return all[at]
}

func dtype(name string) DType         { return lookup(DTypes, name) }
func optimizer(name string) Optimizer { return lookup(Optimizers, name) }

func namesOf[T named](all []T) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.name()
	}
	return names
}

// DTypeNames are the names of DTypes.
func DTypeNames() []string { return namesOf(DTypes) }

// OptimizerNames are the names of Optimizers.
func OptimizerNames() []string { return namesOf(Optimizers) }

// IsFrozen reports whether parameters of a form cannot be trained.
func IsFrozen(name string) bool { return dtype(name).Frozen }

// HasForeach reports whether an optimizer's step works on all parameters at once, unless it is told otherwise.
func HasForeach(name string) bool { return optimizer(name).Foreach }

// trainedDType is that of what is trained: adapters beside quantized parameters are in bf16.
func (m Model) trainedDType() DType {
	if d := dtype(m.DType); !d.Frozen {
		return d
	}
	return dtype("bf16")
}

func (m Model) gradientMilli() uint64 {
	if m.GradientDType != "" {
		return dtype(m.GradientDType).Milli
	}
	return m.trainedDType().Milli
}

func (m Model) hasMaster() bool {
	narrow := m.trainedDType().Milli < dtype("fp32").Milli
	return narrow && (m.MasterWeights == nil || *m.MasterWeights)
}

// stateMilli is what a number of the optimizer's state takes.
func (m Model) stateMilli() uint64 {
	switch {
	case m.StateDType != "":
		return dtype(m.StateDType).Milli
	case m.hasMaster():
		return dtype("fp32").Milli
	}
	return m.trainedDType().Milli
}

// stepMilli is what the optimizer's step has of the GPU for a parameter, beside the state.
func (m Model) stepMilli() uint64 {
	if m.Fused || m.offloads() || !HasForeach(m.Optimizer) {
		return 0
	}
	return m.stateMilli()
}

// optimizerMilli is what the optimizer keeps for a parameter, its fp32 copy with it.
func (m Model) optimizerMilli() uint64 {
	o := optimizer(m.Optimizer)
	cost := o.States*m.stateMilli() + o.Milli
	if m.hasMaster() {
		cost += dtype("fp32").Milli
	}
	return cost
}

// shardedBy is how much strategies shard: as ZeRO's stages.
var shardedBy = map[string]int{ZeRO1: 1, ZeRO2: 2, ZeRO3: 3, FSDP: 3}

func (m Model) stage() int { return shardedBy[m.Strategy] }

// copies reports whether each data-parallel rank has all of what is trained.
func (m Model) copies() bool { return m.stage() == 0 }

// offloads reports whether hosts keep what ranks share out.
func (m Model) offloads() bool { return m.CPUOffload && !m.copies() }

// perParameter describes what a parameter costs.
func (m Model) perParameter() string {
	trained := ", and where it is trained "
	if m.Trainable == m.Parameters {
		trained = ", "
	} else if m.trainedDType().Name != m.DType {
		trained = ", and where it is trained (then in " + m.trainedDType().Name + ") "
	}
	keeps := m.Optimizer
	if m.hasMaster() {
		keeps += " with a copy in fp32"
	}
	return fmt.Sprintf("bytes for each parameter: %s for it in %s%s%s for its gradient, %s for %s",
		bytesOf(dtype(m.DType).Milli), m.DType, trained, bytesOf(m.gradientMilli()), bytesOf(m.optimizerMilli()), keeps)
}
