package memory

import (
	"fmt"
	"slices"
	"strings"
)

// Layout is how ranks lie, and what their GPUs have.
type Layout struct {
	World  int
	Groups []Group // as ranks.groups has them
	// NCCL is set where ranks talk by NCCL; then Buffer is its buffer size in bytes, 0 for the
	// default, and Channels the limit on channels, 0 where none is set.
	NCCL     bool
	Buffer   uint64
	Channels int
	Cards    []Card
}

// Group is a kind of group of ranks, and how many ranks share it.
type Group struct {
	Name string
	Size int
}

// Card is a GPU, or several that one rank is to spread over, with the ranks that use it.
type Card struct {
	Ranks []int
	Free  *uint64 // bytes; nil: not told
	Used  uint64  // bytes of somebody else's
	// Spreads is set where it stands for several GPUs, over which its rank is to spread.
	Spreads bool
}

// Degrees are how many ranks share each kind of work. Tensor times Pipeline times Data is
// the number of ranks; Context and Shard are parts of Data.
type Degrees struct {
	Data     int `json:"data"`  // copies of the model, or of what is sharded
	Shard    int `json:"shard"` // ranks that share one copy by ZeRO or FSDP; 1: none does
	Tensor   int `json:"tensor"`
	Pipeline int `json:"pipeline"`
	Context  int `json:"context"` // ranks that share a sequence
}

// World is the number of ranks.
func (d Degrees) World() int { return d.Data * d.Tensor * d.Pipeline }

// kinds are the names that groups of a kind go by.
var kinds = map[string][]string{
	"tensor":   {"tensor", "tp", "model", "tensor_parallel", "tensor_model_parallel"},
	"pipeline": {"pipeline", "pp", "pipeline_parallel", "pipeline_model_parallel"},
	"shard":    {"shard", "fsdp", "zero", "dp_shard", "hsdp"},
	"data":     {"data", "dp", "ddp", "data_parallel"},
	"context":  {"context", "cp", "context_parallel"},
}

// kindOf is the kind that a group's name stands for; "" where none is known.
func kindOf(name string) string {
	for kind, names := range kinds {
		if slices.Contains(names, strings.ReplaceAll(strings.ToLower(name), "-", "_")) {
			return kind
		}
	}
	return ""
}

// sizes are the sizes of groups by their kind, and the names of those that mean nothing
// here.
func (l Layout) sizes() (of map[string]int, unknown []string) {
	of = map[string]int{}
	for _, g := range l.Groups {
		if kind := kindOf(g.Name); kind != "" {
			of[kind] = g.Size
		} else {
			unknown = append(unknown, g.Name)
		}
	}
	return of, unknown
}

// HasPipeline reports whether the model is split into stages.
func HasPipeline(strategy string, groups []string) bool {
	return strategy == Pipeline || slices.ContainsFunc(groups, func(name string) bool { return kindOf(name) == "pipeline" })
}

// HasTensor reports whether layers are cut across ranks.
func HasTensor(strategy string, groups []string) bool {
	return strategy == Tensor || slices.ContainsFunc(groups, func(name string) bool { return kindOf(name) == "tensor" })
}

// degrees reads sizes of groups for a model. The error says what does not come out even.
func degrees(m Model, l Layout) (Degrees, error) {
	of, _ := l.sizes()
	d := Degrees{Data: 1, Shard: 1, Tensor: max(of["tensor"], 1), Pipeline: max(of["pipeline"], 1), Context: max(of["context"], 1)}
	switch {
	case m.Strategy == Tensor && of["tensor"] == 0:
		d.Tensor = max(l.World/d.Pipeline, 1)
	case m.Strategy == Pipeline && of["pipeline"] == 0:
		d.Pipeline = max(l.World/d.Tensor, 1)
	}
	split := d.Tensor * d.Pipeline
	if split > l.World || l.World%split != 0 {
		return d, fmt.Errorf("tensor groups of %d times pipelines of %d make %d ranks, and the job's %d are no multiple of that", d.Tensor, d.Pipeline, split, l.World)
	}
	d.Data = l.World / split
	if want := of["data"]; want != 0 && want != d.Data {
		return d, fmt.Errorf("groups have data = %d, but %d ranks in tensor groups of %d and pipelines of %d leave %d for it", want, l.World, d.Tensor, d.Pipeline, d.Data)
	}
	if d.Data%d.Context != 0 {
		return d, fmt.Errorf("context groups of %d do not divide the %d data-parallel ranks", d.Context, d.Data)
	}
	if m.copies() {
		return d, nil
	}
	d.Shard = d.Data
	if size := of["shard"]; size != 0 {
		d.Shard = size
	}
	if d.Data%d.Shard != 0 {
		return d, fmt.Errorf("groups of %d that share one copy do not divide the %d data-parallel ranks", d.Shard, d.Data)
	}
	return d, nil
}

// stageOf is the pipeline stage of a rank: the ranks of a tensor group are neighbours, and
// the stages of a pipeline follow each other in a row.
func (d Degrees) stageOf(rank int) int { return rank / d.Tensor % d.Pipeline }

// communicators are the kinds of groups that a rank talks in, each of which NCCL has
// buffers for. A group of all ranks is the one that torch makes first.
func (d Degrees) communicators() []string {
	if d.World() < 2 {
		return nil
	}
	all := []string{"all ranks"}
	for _, g := range []struct {
		name string
		size int
	}{{"tensor", d.Tensor}, {"pipeline", d.Pipeline}, {"context", d.Context}, {"data", d.Data}, {"shard", d.Shard}, {"replicas", d.replicas()}} {
		if g.size > 1 && g.size < d.World() && (g.name != "shard" || g.size < d.Data) {
			all = append(all, g.name)
		}
	}
	return all
}

// replicas are the copies where a copy is sharded, 1 where sharding leaves none.
func (d Degrees) replicas() int {
	if d.Shard == 1 {
		return 1
	}
	return d.Data / d.Shard
}

// words says how the model is split.
func (d Degrees) words(m Model) string {
	var parts []string
	add := func(size int, what string) {
		if size > 1 {
			parts = append(parts, fmt.Sprintf(what, size))
		}
	}
	add(d.Tensor, "tensor parallel over %d")
	add(d.Pipeline, "pipeline of %d stages")
	add(d.Context, "context parallel over %d")
	if d.Shard > 1 {
		add(d.Shard, m.Strategy+" over %d")
		add(d.replicas(), "%d replicas")
	} else {
		add(d.Data, "%d copies")
	}
	if len(parts) == 0 {
		return "one rank has all"
	}
	return strings.Join(parts, ", ")
}
