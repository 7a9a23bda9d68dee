package config

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/memory"
)

var memorySchema = schema{
	where: "a memory block",
	attrs: []attrSchema{
		{name: "parameters", required: true},
		{name: "trainable"},
		{name: "dtype"},
		{name: "gradient_dtype"},
		{name: "master_weights"},
		{name: "optimizer"},
		{name: "optimizer_dtype"},
		{name: "fused"},
		{name: "strategy"},
		{name: "activations"},
		{name: "checkpointing"},
		{name: "micro_batch_size"},
		{name: "micro_batches"},
		{name: "schedule"},
		{name: "gradient_as_bucket_view"},
		{name: "sequence_parallel"},
		{name: "cpu_offload"},
		{name: "largest_unit"},
		{name: "first_stage_extra"},
		{name: "last_stage_extra"},
		{name: "last_stage_activations"},
	},
	elsewhere: map[string]string{
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

// memory decodes a memory block, nil where there is none.
func (d *decoder) memory(block *hclsyntax.Block, groups []Group) *memory.Model {
	if block == nil {
		return nil
	}
	known := len(d.diags)
	c := d.content(block.Body, block.DefRange(), memorySchema)
	m := &memory.Model{
		Parameters:           d.count(c.attrs["parameters"], maxParameters),
		DType:                d.oneOf(c.attrs["dtype"], "bf16", memory.DTypeNames(), torchDTypes),
		GradientDType:        d.oneOf(c.attrs["gradient_dtype"], "", memory.GradientDTypes, torchDTypes),
		StateDType:           d.oneOf(c.attrs["optimizer_dtype"], "", memory.GradientDTypes, torchDTypes),
		Optimizer:            d.oneOf(c.attrs["optimizer"], "adamw", memory.OptimizerNames()),
		Fused:                d.bool(c.attrs["fused"]),
		Strategy:             d.strategy(c.attrs["strategy"]),
		Activations:          d.size(c.attrs["activations"], 0, minActivations, maxActivations),
		Checkpointing:        d.bool(c.attrs["checkpointing"]),
		MicroBatch:           d.integer(c.attrs["micro_batch_size"], 1, maxMicroBatch),
		MicroBatches:         d.integer(c.attrs["micro_batches"], 1, maxMicroBatches),
		Schedule:             d.oneOf(c.attrs["schedule"], memory.OneForwardOneBackward, memory.Schedules),
		BucketView:           d.bool(c.attrs["gradient_as_bucket_view"]),
		SequenceParallel:     d.bool(c.attrs["sequence_parallel"]),
		CPUOffload:           d.bool(c.attrs["cpu_offload"]),
		LastStageActivations: d.size(c.attrs["last_stage_activations"], 0, minActivations, maxActivations),
	}
	if attr := c.attrs["master_weights"]; d.isSet(attr) {
		m.MasterWeights = new(d.bool(attr))
	}
	if attr := c.attrs["parameters"]; attr != nil && m.Parameters == 0 && !d.diags[known:].HasErrors() {
		d.error(attr.Expr.Range(), "Missing required argument", "parameters cannot be null: without their number there is nothing to estimate. Leave the memory block out, or write \"7B\".")
	}
	d.memoryParts(c, m)
	if !d.diags[known:].HasErrors() {
		d.memoryEffects(c, m, groups)
	}
	return m
}

// memoryParts are numbers of parameters that are part of all.
func (d *decoder) memoryParts(c content, m *memory.Model) {
	known := m.Parameters
	if known == 0 {
		known = maxParameters // it is wrong itself
	}
	m.Unit = d.count(c.attrs["largest_unit"], known)
	m.FirstStage = d.count(c.attrs["first_stage_extra"], known)
	m.LastStage = d.count(c.attrs["last_stage_extra"], known)
	if attr := c.attrs["last_stage_extra"]; m.FirstStage+m.LastStage > known {
		d.error(attr.Expr.Range(), "Invalid number of parameters", "first_stage_extra and last_stage_extra are parts of the %s parameters, and more than all of them together.", memory.Count(known))
	}
	m.Trainable = d.trainable(c.attrs["trainable"], m.Parameters, known)
	attr := c.attrs["trainable"]
	if memory.IsFrozen(m.DType) && m.Trainable == m.Parameters && m.Parameters > 0 {
		at := c.attrs["dtype"].Expr.Range()
		if attr != nil {
			at = attr.Expr.Range()
		}
		d.error(at, "Invalid value", "Parameters in %s cannot be trained: write with trainable how many of them are not in it, such as LoRA's 0.01, or take another dtype.", m.DType)
	}
}

// memoryEffects warns of what does nothing as the rest stands.
func (d *decoder) memoryEffects(c content, m *memory.Model, groups []Group) {
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	idle := func(name string, is bool, why string) {
		if attr := c.attrs[name]; is && d.isSet(attr) {
			d.warn(attr.NameRange, "No effect", "%s. Take %s out.", why, name)
		}
	}
	stages := memory.HasPipeline(m.Strategy, names)
	const noPipeline = "There is no pipeline: neither the strategy is one nor is there one in the groups of the ranks block"
	for _, name := range []string{"schedule", "first_stage_extra", "last_stage_extra", "last_stage_activations"} {
		idle(name, !stages, noPipeline)
	}
	idle("micro_batches", !stages, noPipeline+". Where gradients are accumulated, one micro-batch is held at a time, and activations are those of one")
	idle("sequence_parallel", !memory.HasTensor(m.Strategy, names), "There is no tensor parallelism: neither the strategy is one nor is there tensor in the groups of the ranks block")
	shards := m.Strategy == memory.FSDP || m.Strategy == memory.ZeRO3
	idle("largest_unit", !shards, fmt.Sprintf("Units are gathered by FSDP and ZeRO stage 3 only, and the strategy is %q", m.Strategy))
	copies := m.Strategy == memory.DDP || m.Strategy == memory.Tensor || m.Strategy == memory.Pipeline
	idle("gradient_as_bucket_view", !copies, fmt.Sprintf("It is a setting of DDP, and the strategy is %q", m.Strategy))
	idle("cpu_offload", copies, fmt.Sprintf("What hosts are left to keep is what FSDP and ZeRO shard, and the strategy is %q", m.Strategy))
	idle("fused", !memory.HasForeach(m.Optimizer), fmt.Sprintf("It is a form of torch's Adam and AdamW, and the step of %q takes next to nothing as it is", m.Optimizer))
	idle("micro_batch_size", m.Activations == 0, "It tells how far activations can be lessened, and no activations are given")
}

// strategy is one of memory's; ZeRO without a stage leaves open what is sharded.
func (d *decoder) strategy(attr *hclsyntax.Attribute) string {
	if value, ok := d.attr(attr); ok && value.Type() == cty.String {
		switch strings.ToLower(value.AsString()) {
		case "zero", "deepspeed":
			d.error(attr.Expr.Range(), "Invalid value", "strategy: which stage of ZeRO? Write \"zero1\" (the optimizer's state is sharded), \"zero2\" (gradients too) or \"zero3\" (parameters too).")
			return memory.DDP
		}
	}
	return d.oneOf(attr, memory.DDP, memory.Strategies)
}

// trainable is how many parameters are trained: a share, a percentage or a number. Without
// it all are.
func (d *decoder) trainable(attr *hclsyntax.Attribute, all, most uint64) uint64 {
	value, ok := d.attr(attr)
	if !ok {
		return all
	}
	share, is := trainedShare(value)
	if !is {
		return d.count(attr, most)
	}
	if share.Sign() <= 0 || share.Cmp(big.NewRat(1, 1)) > 0 {
		d.error(attr.Expr.Range(), "Invalid share", "trainable is a share above 0 and up to 1, such as 0.01 or \"1%%\", or a number of parameters, such as \"160M\".")
		return all
	}
	share.Mul(share, new(big.Rat).SetUint64(all))
	share.Add(share, big.NewRat(1, 2)) // rounded: 0.01 is no exact number
	return max(new(big.Int).Quo(share.Num(), share.Denom()).Uint64(), 1)
}

var percentForm = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,20})?)\s*%$`)

// trainedShare reads a share: a number up to 1, or such as can be no number of parameters, or
// a percentage.
func trainedShare(value cty.Value) (*big.Rat, bool) {
	if value.Type() == cty.String {
		if parts := percentForm.FindStringSubmatch(strings.TrimSpace(value.AsString())); parts != nil {
			share, _ := new(big.Rat).SetString(parts[1]) // the form has nothing else
			return share.Quo(share, big.NewRat(100, 1)), true
		}
		number, err := cty.ParseNumberVal(value.AsString())
		if err != nil {
			return nil, false
		}
		value = number
	}
	if value.Type() != cty.Number || value.AsBigFloat().Cmp(big.NewFloat(1)) > 0 && value.AsBigFloat().IsInt() {
		return nil, false
	}
	share, _ := value.AsBigFloat().Rat(nil)
	return share, share != nil
}

// count is an attribute that is a number of parameters, such as "7B" or 7e9; 0 where there
// is none or it is wrong.
func (d *decoder) count(attr *hclsyntax.Attribute, high uint64) uint64 {
	value, ok := d.attr(attr)
	if !ok {
		return 0
	}
	at := attr.Expr.Range()
	n, why := parseCount(value)
	switch {
	case why != "":
		d.error(at, "Invalid number of parameters", "%s is a number of parameters, such as \"7B\", \"350M\" or 7000000000, not %s%s", attr.Name, describe(value), why)
	case n < minParameters:
		d.error(at, "Invalid number of parameters", "%s is %d parameters: write \"%dB\" for billions or \"%dM\" for millions.", attr.Name, n, n, n)
	case n > high:
		d.error(at, "Invalid number of parameters", "%s is at most %s.", attr.Name, memory.Count(high))
	default:
		return n
	}
	return 0
}

// countForm is a number and a unit; its length is bounded, as it is made exact.
var countForm = regexp.MustCompile(`^([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)$`)

// parseCount reads a number of parameters. why says what to do where it is none.
func parseCount(value cty.Value) (n uint64, why string) {
	number := new(big.Rat)
	switch value.Type() {
	case cty.Number:
		number, _ = value.AsBigFloat().Rat(nil)
	case cty.String:
		parts := countForm.FindStringSubmatch(strings.TrimSpace(value.AsString()))
		if parts == nil {
			return 0, "."
		}
		number.SetString(parts[1])
		size, known := countUnit(parts[2])
		if !known {
			return 0, ": the units are K, M, B (1e9) and T."
		}
		number.Mul(number, new(big.Rat).SetUint64(size))
	default:
		return 0, "."
	}
	switch {
	case number == nil || !number.IsInt() || number.Sign() < 0:
		return 0, ", which is no whole number of them."
	case !number.Num().IsUint64():
		return math.MaxUint64, ""
	}
	return number.Num().Uint64(), ""
}

func countUnit(name string) (uint64, bool) {
	if name == "" {
		return 1, true
	}
	for _, unit := range memory.Units {
		if strings.EqualFold(name, unit.Name) {
			return unit.Size, true
		}
	}
	return 0, false
}
