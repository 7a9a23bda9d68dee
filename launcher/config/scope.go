package config

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// scope is what expressions of one job file can refer to. It is not changed once
// the variables are known.
type scope struct {
	vars     map[string]cty.Value
	numbers  map[string]string    // variables that are numbers, as they were written
	literals map[hcl.Range]string // number literals, as they were written
}

// rankNames and hostNames are the attributes of rank and host.
var (
	rankNames = []string{"global", "local", "world_size"}
	hostNames = []string{"name", "index"}
)

// context is the scope as HCL wants it, with a fresh meter of the given budget.
// rank is nil outside env.
func (s *scope) context(budget int, rank *RankScope) *hcl.EvalContext {
	variables := map[string]cty.Value{
		"var":     cty.ObjectVal(s.vars),
		meterName: meterValue(budget, s),
	}
	if rank != nil {
		variables["rank"] = rank.rankValue()
		variables["host"] = rank.hostValue()
	}
	return &hcl.EvalContext{Variables: variables, Functions: functions}
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
