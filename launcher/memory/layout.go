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
	// NCCL is set where ranks talk by NCCL; then Buffer is its buffer size in bytes, 0 for the default, and Channels
	// the limit on channels, 0 where none is set.
	NCCL     bool
	Buffer   uint64
	Channels int
	Cards    []Card
	Hosts    []Host
	Island   int // how many GPUs of a host have fast links to each other, on each host; 0: not known
}

// Host is a host that ranks are on.
type Host struct {
	Ranks int
	Free  *uint64 // bytes of its own memory; nil: not known
}

// Group is a kind of group of ranks, and how many ranks share it.
type Group struct {
	Name string
	Size int
}

func (g Group) String() string { return fmt.Sprintf("%s = %d", g.Name, g.Size) }

// Contradiction is what does not come out even in a layout.
type Contradiction struct {
	Group string // the one to change first, as the job file names it
	text  string
}

func (c *Contradiction) Error() string { return c.text }

func contradiction(g Group, format string, args ...any) *Contradiction {
	return &Contradiction{Group: g.Name, text: g.String() + fmt.Sprintf(format, args...)}
}

// Card is a GPU, or several that one rank spreads over, with the ranks that use it.
type Card struct {
	Ranks   []int
	Free    *uint64 // bytes; nil: not known
	Used    uint64  // bytes of somebody else's
	Spreads bool    // it stands for several GPUs
}

// Degrees are how many ranks share each kind of work. Tensor times Pipeline times Data is the number of ranks;
// Context and Shard are parts of Data.
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

// byKind are groups by their kind, and those whose kind is not known.
func byKind(groups []Group) (of map[string]Group, unknown []Group) {
	of = map[string]Group{}
	for _, g := range groups {
		if kind := kindOf(g.Name); kind != "" {
			of[kind] = g
		} else {
			unknown = append(unknown, g)
		}
	}
	return of, unknown
}

// HasPipeline reports whether the model is split into stages.
func HasPipeline(strategy string, groups []string) bool { return splits(Pipeline, strategy, groups) }

// HasTensor reports whether layers are cut across ranks.
func HasTensor(strategy string, groups []string) bool { return splits(Tensor, strategy, groups) }

func splits(kind, strategy string, groups []string) bool {
	return strategy == kind || slices.ContainsFunc(groups, func(name string) bool { return kindOf(name) == kind })
}

// degrees reads sizes of groups for a model. The error, a *Contradiction, says what does not come out even.
func degrees(m Model, l Layout) (Degrees, error) {
	of, _ := byKind(l.Groups)
	tensor, pipeline, context := of["tensor"], of["pipeline"], of["context"]
	d := Degrees{Data: 1, Shard: 1, Context: max(context.Size, 1)}
	d.Tensor, d.Pipeline = max(tensor.Size, 1), max(pipeline.Size, 1)
	switch {
	case m.Strategy == Tensor && tensor.Size == 0:
		d.Tensor = max(l.World/d.Pipeline, 1)
	case m.Strategy == Pipeline && pipeline.Size == 0:
		d.Pipeline = max(l.World/d.Tensor, 1)
	}
	if split := d.Tensor * d.Pipeline; split > l.World || l.World%split != 0 {
		return d, unevenSplit(tensor, pipeline, l.World)
	}
	d.Data = l.World / (d.Tensor * d.Pipeline)
	if g := of["data"]; g.Size != 0 && g.Size != d.Data {
		return d, contradiction(g, ", but the job's %d ranks have a data-parallel size of %d%s", l.World, d.Data, besides(tensor, pipeline))
	}
	if !m.copies() {
		d.Shard = d.Data
		if g := of["shard"]; g.Size != 0 {
			d.Shard = g.Size
		}
	}
	for _, part := range []Group{{context.Name, d.Context}, {of["shard"].Name, d.Shard}} {
		if d.Data%part.Size != 0 {
			return d, contradiction(part, " does not divide the %d data-parallel ranks", d.Data)
		}
	}
	return d, nil
}

// besides names the groups that leave fewer ranks to data parallelism.
func besides(groups ...Group) string {
	var names []string
	for _, g := range groups {
		if g.Size > 0 {
			names = append(names, g.String())
		}
	}
	if names == nil {
		return ""
	}
	return " with " + strings.Join(names, " and ")
}

// unevenSplit names the groups that ranks cannot be split into: those that are written, at least one.
func unevenSplit(tensor, pipeline Group, world int) *Contradiction {
	const uneven = ": the job's %d ranks are no multiple of that"
	switch {
	case pipeline.Size == 0:
		return contradiction(tensor, uneven, world)
	case tensor.Size == 0:
		return contradiction(pipeline, uneven, world)
	}
	return contradiction(tensor, " times %s are %d ranks: the job's %d are no multiple of that",
		pipeline, tensor.Size*pipeline.Size, world)
}

// stageOf is the pipeline stage of a rank: the ranks of a tensor group are neighbours, and the stages of a pipeline
// follow each other in a row.
func (d Degrees) stageOf(rank int) int { return rank / d.Tensor % d.Pipeline }

// communicators are the kinds of groups that a rank talks in, each of which NCCL has buffers for, by the names that
// the job file has for them. A group of all ranks is the one that torch makes first. One whose kind is not known
// counts too: why its ranks should be close is that they talk to each other.
func (d Degrees) communicators(groups []Group) []string {
	if d.World() < 2 {
		return nil
	}
	all := []string{"all ranks"}
	of, unknown := byKind(groups)
	for _, g := range []Group{
		{"tensor", d.Tensor}, {"pipeline", d.Pipeline}, {"context", d.Context}, {"data", d.Data}, {"shard", d.Shard},
		{"replicas", d.replicas()},
	} {
		if g.Size == 1 || g.Size >= d.World() || g.Name == "shard" && g.Size == d.Data {
			continue
		}
		if written, is := of[g.Name]; is {
			g.Name = written.Name
		}
		all = append(all, g.Name)
	}
	for _, g := range unknown {
		if g.Size < d.World() {
			all = append(all, g.Name)
		}
	}
	return all
}

// Communicators are those of a job of which nothing is known but its groups; where these contradict each other, all
// that are named.
func (l Layout) Communicators() []string {
	d, err := degrees(Model{Strategy: DDP}, l)
	if err == nil {
		return d.communicators(l.Groups)
	}
	all := []string{"all ranks"}
	for _, g := range l.Groups {
		all = append(all, g.Name)
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

// describe says how the model is split.
func (d Degrees) describe(strategy string) string {
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
		add(d.Shard, strategy+" over %d")
		add(d.replicas(), "%d replicas")
	} else {
		add(d.Data, "%d copies")
	}
	if len(parts) == 0 {
		return "one rank has all"
	}
	return strings.Join(parts, ", ")
}
