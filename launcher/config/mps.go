package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/quantity"
	"github.com/muster-dev/muster/launcher/plural"
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
	if len(values) == 0 {
		return 0
	}
	return values[place%len(values)]
}

var mpsSchema = decode.Schema{
	Where:    "an mps block",
	Args:     []string{"ranks_per_gpu", "active_thread_percentage", "pinned_memory_limit", "daemon", "pipe_directory"},
	Required: []string{"ranks_per_gpu"},
	Elsewhere: map[string]string{
		"clients":                           "ranks_per_gpu = N",
		"clients_per_gpu":                   "ranks_per_gpu = N",
		"replicas":                          "ranks_per_gpu = N",
		"memory_limit":                      `pinned_memory_limit = "18GiB"`,
		"thread_percentage":                 "active_thread_percentage = 25",
		"log_directory":                     "nothing: the daemon's logs are kept with the run's",
		"cuda_mps_active_thread_percentage": "active_thread_percentage = 25",
		"cuda_mps_pinned_device_mem_limit":  `pinned_memory_limit = "18GiB"`,
		"cuda_mps_pipe_directory":           `pipe_directory = "/run/mps", beside daemon = "existing"`,
		"client_priority":                   "env = { CUDA_MPS_CLIENT_PRIORITY = 1 }",
	},
}

// Bounds of a memory limit. MPS reads whole MiB.
const (
	mib            = 1 << 20
	minMemoryLimit = 64 * mib
	maxMemoryLimit = 16 << 40
)

// decodeMPS decodes an mps block, nil where there is none.
func decodeMPS(b *decode.Block, p Placement) *MPS {
	if b == nil {
		return nil
	}
	b.Open(mpsSchema)
	m := &MPS{
		RanksPerGPU: decode.Integer(b.Arg("ranks_per_gpu"), 1, maxPerHost),
		Existing:    decode.OneOf(b.Arg("daemon"), "own", []string{"own", "existing"}) == "existing",
		Range:       b.At,
	}
	m.Threads, m.ThreadsAt = perPlace(b.Arg("active_thread_percentage"), m.RanksPerGPU, threadPercentage)
	m.Memory, m.MemoryAt = perPlace(b.Arg("pinned_memory_limit"), m.RanksPerGPU, memoryLimit)
	m.PipeDirectory = pipeDirectory(b.Arg("pipe_directory"), m.Existing)
	if p.Visibility == "host" {
		b.File.Error(m.Range, "Impossible pair", "visibility = \"host\" shows a rank the GPUs of all, and with mps it sees its own only. Leave visibility out.")
	}
	if p.Shared {
		b.File.Error(m.Range, "Impossible pair", "shared = true lets processes take turns on a GPU without MPS; an mps block has the run's ranks share it by MPS. Take one of the two out.")
	}
	return m
}

// perPlace is one value for all ranks of a GPU, or a list with one for each.
func perPlace[T float64 | uint64](a *decode.Arg, perGPU int, read func(*decode.Arg) T) ([]T, string) {
	elements, isList := a.Elements()
	switch {
	case isList:
	case !a.IsSet():
		return nil, ""
	default:
		return []T{read(a)}, a.Source()
	}
	var values []T
	for _, e := range elements {
		e.Name = "An element of " + a.Name
		if _, ok := e.Value(); ok {
			values = append(values, read(e))
		}
	}
	if perGPU > 0 && len(elements) != perGPU {
		a.Error("Wrong number of values", "%s has %s, and a GPU has %s: write one for all, or one for each.",
			a.Name, plural.Of(len(elements), "value"), plural.Of(perGPU, "rank"))
	}
	return values, a.Source()
}

// threadPercentage is more than 0 and at most 100.
func threadPercentage(a *decode.Arg) float64 {
	number, isNumber := a.Number()
	if word, isText := a.Word(); isText {
		var err error
		number, err = cty.ParseNumberVal(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(word), "%")))
		isNumber = err == nil
	}
	x := 0.0
	if isNumber {
		x, _ = number.AsBigFloat().Float64()
	}
	switch {
	case x <= 0 || x > 100:
		a.Error("Invalid percentage", "%s is a number of per cent, more than 0 and at most 100, such as 25, not %s.", a.Name, a.Describe())
		return 0
	case x < 1:
		a.Warn("Small percentage", "%s is less than one per cent: per cent are meant, so that half of a GPU is 50.", a.Name)
	}
	return x
}

// memoryLimit is a size in whole MiB: MPS reads an integer with G or M.
func memoryLimit(a *decode.Arg) uint64 {
	if !a.IsSet() {
		a.Error("Wrong type", "%s is a size with its unit in quotes, not %s: write \"8GiB\".", a.Name, a.Describe())
		return 0
	}
	size := decode.Size(a, 0, minMemoryLimit, maxMemoryLimit)
	if size%mib != 0 {
		a.Error("Invalid size", "MPS reads whole MiB: write %q.", quantity.FormatSize(size-size%mib))
	}
	return size
}

// pipeDirectory is where a daemon that is there already has its sockets.
func pipeDirectory(a *decode.Arg, existing bool) string {
	path := decode.Text(a)
	switch {
	case !a.IsSet():
	case !existing:
		a.ErrorAt(a.NameAt, "Impossible pair", "pipe_directory says where a daemon is that runs already: write daemon = \"existing\" beside it, or leave it out. A daemon of the run's own has a folder of its own.")
	case !strings.HasPrefix(path, "/") && !a.Wrong():
		a.Error("Invalid path", "pipe_directory is a folder of the hosts from / on, such as \"/run/mps\", not %s: CUDA reads it as it is.", diagnostic.Quoted(path))
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
