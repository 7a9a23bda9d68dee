package config

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// scope is what expressions of one job file can refer to. It is not changed once
// the variables are known.
type scope struct {
	vars     map[string]cty.Value
	numbers  map[string]string    // variables that are numbers, as they were written
	literals map[hcl.Range]string // number literals, as they were written
	secrets  map[string]bool      // variables that are sensitive
}

// rankNames, hostNames and gpuNames are the attributes of rank, host and gpu.
var (
	rankNames = []string{"global", "local", "world_size"}
	hostNames = []string{"name", "index"}
	gpuNames  = []string{"uuid", "index", "pci"}
)

// context is the scope as HCL wants it, with a fresh meter of the given budget.
// rank is nil outside env.
func (s *scope) context(budget int, rank *RankScope) *hcl.EvalContext {
	ctx := &hcl.EvalContext{Functions: functions, Variables: map[string]cty.Value{
		"var":     cty.ObjectVal(s.vars),
		meterName: meterValue(budget, s),
	}}
	if rank != nil {
		return rank.context(ctx)
	}
	return ctx
}

// context adds a rank to what expressions know.
func (r *RankScope) context(parent *hcl.EvalContext) *hcl.EvalContext {
	ctx := parent.NewChild()
	ctx.Variables = map[string]cty.Value{"rank": r.rankValue(), "host": r.hostValue(), "gpu": r.gpuValue()}
	ctx.Functions = map[string]function.Function{envOfHost: r.envOfHost()}
	return ctx
}

func (r *RankScope) rankValue() cty.Value {
	return cty.ObjectVal(map[string]cty.Value{
		"global":     knownNumber(r.Global),
		"local":      knownNumber(r.Local),
		"world_size": knownNumber(r.WorldSize),
	})
}

func (r *RankScope) hostValue() cty.Value {
	return cty.ObjectVal(map[string]cty.Value{
		"name":  cty.StringVal(r.HostName),
		"index": knownNumber(r.HostIndex),
	})
}

func (r *RankScope) gpuValue() cty.Value {
	uuid, pci, index := cty.UnknownVal(cty.String), cty.UnknownVal(cty.String), cty.UnknownVal(cty.Number)
	switch {
	case r.trial:
	case r.GPU == nil:
		uuid, pci, index = cty.NullVal(cty.String), cty.NullVal(cty.String), cty.NullVal(cty.Number)
	default:
		uuid, pci, index = cty.StringVal(r.GPU.UUID), cty.StringVal(r.GPU.PCI), cty.NumberIntVal(int64(r.GPU.Index))
	}
	return cty.ObjectVal(map[string]cty.Value{"uuid": uuid, "pci": pci, "index": index})
}

// knownNumber is n, or a number not known yet when n is negative: Evaluate tries
// expressions before the plan has counted the ranks.
func knownNumber(n int) cty.Value {
	if n < 0 {
		return cty.UnknownVal(cty.Number).RefineNotNull()
	}
	return cty.NumberIntVal(int64(n))
}

func (s *scope) varNames() []string {
	names := make([]string, 0, len(s.vars))
	for name := range s.vars {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
