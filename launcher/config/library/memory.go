package library

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/quantity"
	"github.com/muster-dev/muster/launcher/memory"
)

var memorySchema = decode.Schema{
	Where: "a memory block",
	Args: []string{
		"parameters", "trainable", "dtype", "gradient_dtype", "master_weights", "optimizer", "optimizer_dtype", "fused",
		"strategy", "activations", "checkpointing", "micro_batch_size", "micro_batches", "schedule",
		"gradient_as_bucket_view", "sequence_parallel", "cpu_offload", "largest_unit", "first_stage_extra",
		"last_stage_extra", "last_stage_activations",
	},
	Required: []string{"parameters"},
	Elsewhere: map[string]string{
		"params":                      `parameters = "7B"`,
		"model_size":                  `parameters = "7B"`,
		"precision":                   `dtype = "bf16"`,
		"lora":                        "trainable = 0.01",
		"batch_size":                  "micro_batch_size = ...",
		"per_device_train_batch_size": "micro_batch_size = ...",
		"gradient_checkpointing":      "checkpointing = true",
		"activation_checkpointing":    "checkpointing = true",
		"zero_stage":                  `strategy = "zero2"`,
		"fsdp":                        `strategy = "fsdp"`,
		"offload":                     "cpu_offload = true",
		"offload_optimizer":           "cpu_offload = true",
		"offload_params":              "cpu_offload = true",
		"tensor":                      "ranks { groups = { tensor = ... } }",
		"pipeline":                    "ranks { groups = { pipeline = ... } }",
	},
}

// Bounds of what a memory block says.
const (
	minParameters   = 1000
	maxParameters   = 100_000_000_000_000
	minActivations  = 1 << 10
	maxActivations  = 16 << 40
	maxMicroBatch   = 1 << 16
	maxMicroBatches = 4096
)

// torchDTypes are torch's names of types.
var torchDTypes = map[string]string{
	"float32": "fp32", "bfloat16": "bf16", "float16": "fp16",
	"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16",
}

// DecodeMemory decodes a memory block, nil where there is none. groups are the kinds of groups
// of ranks that the job has.
func DecodeMemory(b *decode.Block, groups []string) *memory.Model {
	if b == nil {
		return nil
	}
	known := b.File.Count()
	b.Open(memorySchema)
	flag := func(name string) bool { return decode.Bool(b.Arg(name), false) }
	size := func(name string) uint64 { return decode.Size(b.Arg(name), 0, minActivations, maxActivations) }
	m := &memory.Model{
		Parameters:       decodeCount(b.Arg("parameters"), maxParameters),
		DType:            decode.OneOf(b.Arg("dtype"), "bf16", memory.DTypeNames(), torchDTypes),
		GradientDType:    decode.OneOf(b.Arg("gradient_dtype"), "", memory.GradientDTypes, torchDTypes),
		StateDType:       decode.OneOf(b.Arg("optimizer_dtype"), "", memory.GradientDTypes, torchDTypes),
		Optimizer:        decode.OneOf(b.Arg("optimizer"), "adamw", memory.OptimizerNames()),
		Fused:            flag("fused"),
		Strategy:         decodeStrategy(b.Arg("strategy")),
		Activations:      size("activations"),
		Checkpointing:    flag("checkpointing"),
		MicroBatch:       decode.Integer(b.Arg("micro_batch_size"), 1, maxMicroBatch),
		MicroBatches:     decode.Integer(b.Arg("micro_batches"), 1, maxMicroBatches),
		Schedule:         decode.OneOf(b.Arg("schedule"), memory.OneForwardOneBackward, memory.Schedules),
		BucketView:       flag("gradient_as_bucket_view"),
		SequenceParallel: flag("sequence_parallel"),
		CPUOffload:       flag("cpu_offload"),
		EndStages:        memory.EndStages{LastStageActivations: size("last_stage_activations")},
	}
	if a := b.Arg("master_weights"); a.IsSet() {
		m.MasterWeights = new(decode.Bool(a, false))
	}
	if a := b.Arg("parameters"); a != nil && m.Parameters == 0 && !a.Wrong() {
		a.Error("Missing required argument", "parameters cannot be null: without their number there is nothing to estimate. Leave the memory block out, or write \"7B\".")
	}
	decodeMemoryParts(b, m)
	if !b.File.Failed(known) {
		warnOfMemory(b, m, groups)
	}
	return m
}

// decodeMemoryParts decodes numbers of parameters that are part of all.
func decodeMemoryParts(b *decode.Block, m *memory.Model) {
	known := m.Parameters
	if known == 0 {
		known = maxParameters // it is wrong itself
	}
	m.Unit = decodeCount(b.Arg("largest_unit"), known)
	m.FirstStage = decodeCount(b.Arg("first_stage_extra"), known)
	m.LastStage = decodeCount(b.Arg("last_stage_extra"), known)
	if m.FirstStage+m.LastStage > known {
		b.Arg("last_stage_extra").Error("Invalid number of parameters", "first_stage_extra and last_stage_extra are parts of the %s parameters, and more than all of them together.", memory.Count(known))
	}
	a := b.Arg("trainable")
	m.Trainable = decodeTrainable(a, m.Parameters, known)
	if memory.IsFrozen(m.DType) && m.Trainable == m.Parameters && m.Parameters > 0 {
		if a == nil {
			a = b.Arg("dtype")
		}
		a.Error("Invalid value", "Parameters in %s cannot be trained: write with trainable how many of them are not in it, such as LoRA's 0.01, or take another dtype.", m.DType)
	}
}

// warnOfMemory warns of what does nothing as the rest stands.
func warnOfMemory(b *decode.Block, m *memory.Model, groups []string) {
	idle := func(name string, is bool, why string) {
		if is {
			b.Arg(name).NoEffect("No effect", "%s. Take %s out.", why, name)
		}
	}
	stages := memory.HasPipeline(m.Strategy, groups)
	const noPipeline = "There is no pipeline: neither the strategy is one nor is there one in the groups of the ranks block"
	for _, name := range []string{"schedule", "first_stage_extra", "last_stage_extra", "last_stage_activations"} {
		idle(name, !stages, noPipeline)
	}
	idle("micro_batches", !stages, noPipeline+". Where gradients are accumulated, one micro-batch is held at a time, and activations are those of one")
	idle("sequence_parallel", !memory.HasTensor(m.Strategy, groups), "There is no tensor parallelism: neither the strategy is one nor is there tensor in the groups of the ranks block")
	shards := m.Strategy == memory.FSDP || m.Strategy == memory.ZeRO3
	idle("largest_unit", !shards, fmt.Sprintf("Units are gathered by FSDP and ZeRO stage 3 only, and the strategy is %q", m.Strategy))
	copies := m.Strategy == memory.DDP || m.Strategy == memory.Tensor || m.Strategy == memory.Pipeline
	idle("gradient_as_bucket_view", !copies, fmt.Sprintf("It is a setting of DDP, and the strategy is %q", m.Strategy))
	idle("cpu_offload", copies, fmt.Sprintf("What hosts are left to keep is what FSDP and ZeRO shard, and the strategy is %q", m.Strategy))
	idle("fused", !memory.HasForeach(m.Optimizer), fmt.Sprintf("It is a form of torch's Adam and AdamW, and the step of %q takes next to nothing as it is", m.Optimizer))
	idle("micro_batch_size", m.Activations == 0, "It tells how far activations can be lessened, and no activations are given")
}

// decodeStrategy is one of memory's; ZeRO without a stage leaves open what is sharded.
func decodeStrategy(a *decode.Arg) string {
	word, _ := a.Word()
	if word = strings.ToLower(word); word == "zero" || word == "deepspeed" {
		a.Error("Invalid value", "strategy: which stage of ZeRO? Write \"zero1\" (the optimizer's state is sharded), \"zero2\" (gradients too) or \"zero3\" (parameters too).")
		return memory.DDP
	}
	return decode.OneOf(a, memory.DDP, memory.Strategies)
}

// decodeTrainable is how many parameters are trained: a share, a percentage or a number.
// Without it all are.
func decodeTrainable(a *decode.Arg, all, limit uint64) uint64 {
	if !a.IsSet() {
		return all
	}
	share, is := trainedShare(a)
	if !is {
		return decodeCount(a, limit)
	}
	if share.Sign() <= 0 || share.Cmp(big.NewRat(1, 1)) > 0 {
		a.Error("Invalid share", "trainable is a share above 0 and up to 1, such as 0.01 or \"1%%\", or a number of parameters, such as \"160M\".")
		return all
	}
	share.Mul(share, new(big.Rat).SetUint64(all))
	share.Add(share, big.NewRat(1, 2)) // rounded: 0.01 is no exact number
	return max(new(big.Int).Quo(share.Num(), share.Denom()).Uint64(), 1)
}

var percentForm = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,20})?)\s*%$`)

// trainedShare reads a share: a number up to 1, or such as can be no number of parameters, or
// a percentage.
func trainedShare(a *decode.Arg) (*big.Rat, bool) {
	word, _ := a.Word()
	if parts := percentForm.FindStringSubmatch(strings.TrimSpace(word)); parts != nil {
		share, _ := new(big.Rat).SetString(parts[1]) // the form has nothing else
		return share.Quo(share, big.NewRat(100, 1)), true
	}
	number, ok := a.Number()
	if !ok || number.AsBigFloat().Cmp(big.NewFloat(1)) > 0 && number.AsBigFloat().IsInt() {
		return nil, false
	}
	share, _ := number.AsBigFloat().Rat(nil)
	return share, share != nil
}

// decodeCount is an argument that is a number of parameters, such as "7B" or 7e9; 0 where
// there is none or it is wrong.
func decodeCount(a *decode.Arg, high uint64) uint64 {
	value, ok := a.Get()
	if !ok {
		return 0
	}
	number := new(big.Rat)
	why := "."
	if word, isText := a.Word(); isText {
		number, why = quantity.ParseCount(word)
	} else if value.Type() == cty.Number {
		number, _ = value.AsBigFloat().Rat(nil)
		why = ""
	}
	if why == "" && (number == nil || !number.IsInt() || number.Sign() < 0) {
		why = ", which is no whole number of them."
	}
	switch {
	case why != "":
		a.Error("Invalid number of parameters", "%s is a number of parameters, such as \"7B\", \"350M\" or 7000000000, not %s%s", a.Name, a.Describe(), why)
	case number.Cmp(new(big.Rat).SetUint64(high)) > 0:
		a.Error("Invalid number of parameters", "%s is at most %s.", a.Name, memory.Count(high))
	case number.Num().Uint64() < minParameters:
		n := number.Num().Uint64()
		a.Error("Invalid number of parameters", "%s is %d parameters: write \"%dB\" for billions or \"%dM\" for millions.", a.Name, n, n, n)
	default:
		return number.Num().Uint64()
	}
	return 0
}
