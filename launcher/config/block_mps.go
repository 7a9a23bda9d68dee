package config

import (
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/zclconf/go-cty/cty"
)

// MPS is what an mps block says: ranks share GPUs as clients of CUDA's Multi-Process
// Service.
type MPS struct {
	RanksPerGPU int
	// Threads are per cent of a GPU's multiprocessors that a rank may use at most: one for
	// every rank, or one for each of a GPU's ranks; none: no limit.
	Threads   []float64 `json:",omitempty"`
	ThreadsAt string    `json:",omitempty"` // FILE:LINE
	// Memory is how much of a GPU's memory a rank may take, in bytes, as Threads.
	Memory   []uint64 `json:",omitempty"`
	MemoryAt string   `json:",omitempty"`
	// Existing has ranks be clients of a daemon that is there already, in PipeDirectory; ""
	// is where the host's own environment, or CUDA itself, looks for it.
	Existing      bool
	PipeDirectory string `json:",omitempty"`

	Range hcl.Range // of the block's header
}

// ThreadsOf is the limit of a rank, by its place among those of its GPU; 0: none.
func (m *MPS) ThreadsOf(place int) float64 { return valueOf(m.Threads, place) }

// MemoryOf is the same for memory.
func (m *MPS) MemoryOf(place int) uint64 { return valueOf(m.Memory, place) }

func valueOf[T float64 | uint64](values []T, place int) T {
	switch {
	case len(values) == 0:
		return 0
	case len(values) == 1:
		return values[0]
	}
	return values[place%len(values)]
}

// Daemons of an mps block.
const (
	mpsOwn      = "own"
	mpsExisting = "existing"
)

var mpsSchema = schema{
	where: "an mps block",
	attrs: []attrSchema{
		{name: "ranks_per_gpu", required: true},
		{name: "active_thread_percentage"},
		{name: "pinned_memory_limit"},
		{name: "daemon"},
		{name: "pipe_directory"},
	},
	elsewhere: map[string]string{
		"clients":                           "ranks_per_gpu = N",
		"clients_per_gpu":                   "ranks_per_gpu = N",
		"replicas":                          "ranks_per_gpu = N",
		"memory_limit":                      `pinned_memory_limit = "18GiB"`,
		"thread_percentage":                 "active_thread_percentage = 25",
		"log_directory":                     "nothing: the daemon's logs are kept with the run's",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "active_thread_percentage = 25",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT":  `pinned_memory_limit = "18GiB"`,
		"CUDA_MPS_PIPE_DIRECTORY":           `pipe_directory = "/run/mps", beside daemon = "existing"`,
		"client_priority":                   "env = { CUDA_MPS_CLIENT_PRIORITY = 1 }",
	},
}

// Bounds of a memory limit. MPS reads whole MiB.
const (
	mib            = 1 << 20
	minMemoryLimit = 64 * mib
	maxMemoryLimit = 16 << 40
)

// mps decodes an mps block, nil where there is none.
func (d *decoder) mps(block *hclsyntax.Block, placement Placement) *MPS {
	if block == nil {
		return nil
	}
	c := d.content(block.Body, block.DefRange(), mpsSchema)
	m := &MPS{
		RanksPerGPU: d.integer(c.attrs["ranks_per_gpu"], 1, maxPerHost),
		Existing:    d.oneOf(c.attrs["daemon"], mpsOwn, []string{mpsOwn, mpsExisting}) == mpsExisting,
		Range:       block.DefRange(),
	}
	m.Threads, m.ThreadsAt = perPlace(d, c.attrs["active_thread_percentage"], m.RanksPerGPU, d.threadPercentage)
	m.Memory, m.MemoryAt = perPlace(d, c.attrs["pinned_memory_limit"], m.RanksPerGPU, d.memoryLimit)
	m.PipeDirectory = d.pipeDirectory(c.attrs["pipe_directory"], m.Existing)
	d.besideMPS(m, placement)
	return m
}

// besideMPS checks an mps block against itself and the ranks block.
func (d *decoder) besideMPS(m *MPS, p Placement) {
	if p.Visibility == "host" {
		d.error(m.Range, "Impossible pair", "visibility = \"host\" shows a rank the GPUs of all, and with mps it sees its own only. Leave visibility out.")
	}
	if p.Shared {
		d.error(m.Range, "Impossible pair", "shared = true lets processes take turns on a GPU without MPS; an mps block has the run's ranks share it by MPS. Take one of the two out.")
	}
}

// perPlace is one value for all ranks of a GPU, or a list with one for each.
func perPlace[T float64 | uint64](d *decoder, attr *hclsyntax.Attribute, perGPU int, read func(name string, value cty.Value, at hcl.Range) T) ([]T, string) {
	if !d.isSet(attr) {
		return nil, ""
	}
	elements, isList := d.elements(attr.Expr)
	if !isList {
		value, _ := d.attr(attr)
		return []T{read(attr.Name, value, attr.Expr.Range())}, sourceAt(attr.NameRange)
	}
	var values []T
	for _, e := range elements {
		values = append(values, read("An element of "+attr.Name, e.value, e.expr.Range()))
	}
	if perGPU > 0 && len(values) != perGPU {
		d.error(attr.Expr.Range(), "Wrong number of values", "%s has %s, and a GPU has %s: write one for all, or one for each.",
			attr.Name, plural.Of(len(values), "value"), plural.Of(perGPU, "rank"))
	}
	return values, sourceAt(attr.NameRange)
}

// threadPercentage is more than 0 and at most 100.
func (d *decoder) threadPercentage(name string, value cty.Value, at hcl.Range) float64 {
	number := value
	if !value.IsNull() && value.Type() == cty.String {
		if parsed, err := cty.ParseNumberVal(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value.AsString()), "%"))); err == nil && sensible(parsed) {
			number = parsed
		}
	}
	x := 0.0
	if !number.IsNull() && number.Type() == cty.Number {
		x, _ = number.AsBigFloat().Float64()
	}
	switch {
	case x <= 0 || x > 100 || math.IsNaN(x):
		d.error(at, "Invalid percentage", "%s is a number of per cent, more than 0 and at most 100, such as 25, not %s.", name, describe(value))
		return 0
	case x < 1:
		d.warn(at, "Small percentage", "%s is less than one per cent: per cent are meant, so that half of a GPU is 50.", name)
	}
	return x
}

// memoryLimit is a size in whole MiB: MPS reads an integer with G or M.
func (d *decoder) memoryLimit(name string, value cty.Value, at hcl.Range) uint64 {
	if value.IsNull() || value.Type() != cty.String {
		example := `"8GiB"`
		if !value.IsNull() && value.Type() == cty.Number {
			example = bareSizeAdvice(value.AsBigFloat())
		}
		d.error(at, "Wrong type", "%s is a size with its unit in quotes, not %s: write %s.", name, describe(value), example)
		return 0
	}
	size, err := parseSize(value.AsString())
	switch {
	case err != nil:
		d.error(at, "Invalid size", "%s.", capital(err.Error()))
	case size < minMemoryLimit || size > maxMemoryLimit:
		d.error(at, "Size out of range", "%s lies between %s and %s.", name, formatSize(minMemoryLimit), formatSize(maxMemoryLimit))
	case size%mib != 0:
		d.error(at, "Invalid size", "MPS reads whole MiB: write %q.", formatSize(size-size%mib))
	default:
		return size
	}
	return 0
}

// pipeDirectory is where a daemon that is there already has its sockets.
func (d *decoder) pipeDirectory(attr *hclsyntax.Attribute, existing bool) string {
	at, set := d.written(attr)
	if !set {
		return ""
	}
	path := d.string(attr)
	switch {
	case !existing:
		d.error(at, "Impossible pair", "pipe_directory says where a daemon is that runs already: write daemon = \"existing\" beside it, or leave it out. A daemon of the run's own has a folder of its own.")
	case !strings.HasPrefix(path, "/") && d.isText(attr):
		d.error(attr.Expr.Range(), "Invalid path", "pipe_directory is a folder of the hosts from / on, such as \"/run/mps\", not %s: CUDA reads it as it is.", quoted(path))
	}
	return path
}

// ranksOfMPS compares a host's ranks with its devices where ranks share GPUs by MPS.
func ranksOfMPS(m *MPS, ranks, devices int) (problem string) {
	each := m.RanksPerGPU
	switch {
	case each == 0 || ranks == 0:
	case devices > 0 && ranks != devices*each:
		problem = fmt.Sprintf("%s asked, but %s with %s each (mps, ranks_per_gpu) make %d: leave per_host out, or write \"gpu\"",
			plural.Of(ranks, "rank"), plural.Of(devices, "device"), plural.Of(each, "rank"), devices*each)
	case ranks%each != 0:
		problem = fmt.Sprintf("%s asked, %s on each GPU (mps, ranks_per_gpu): write a multiple, such as %d",
			plural.Of(ranks, "rank"), plural.Of(each, "rank"), (ranks/each+1)*each)
	}
	return problem
}
