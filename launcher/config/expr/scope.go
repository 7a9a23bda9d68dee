package expr

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Scope is what expressions of one job file can refer to. It is not changed once the variables
// are known.
type Scope struct {
	File    string
	Text    []byte
	Vars    map[string]cty.Value
	Numbers map[string]string // variables that are numbers, as they were written
	Secrets map[string]bool   // variables that are sensitive
}

// NewScope is the scope of a file without variables.
func NewScope(file string, text []byte) *Scope {
	return &Scope{file, text, map[string]cty.Value{}, map[string]string{}, map[string]bool{}}
}

// Declares reports whether the file has that variable.
func (s *Scope) Declares(name string) bool {
	_, declared := s.Vars[name]
	return declared
}

// IsSecret reports whether that variable is sensitive.
func (s *Scope) IsSecret(name string) bool { return s.Secrets[name] }

// Names are those of the variables.
func (s *Scope) Names() []string { return slices.Sorted(maps.Keys(s.Vars)) }

// RankScope is what env expressions can refer to: rank.global, rank.local, rank.world_size,
// host.name, host.index, gpu.uuid, gpu.index, gpu.pci and env_of_host("NAME"). Numbers below 0
// are not known yet.
type RankScope struct {
	Global, Local, WorldSize int
	HostName                 string
	HostIndex                int
	GPU                      *gpu.ID // nil: the rank has none, and gpu.* is null
	// HostEnv is the host's own environment, at least what Job.HostEnvNames lists as far
	// as it is set there. What is not set is "" to expressions.
	HostEnv map[string]string

	Trial bool // gpu.* and env_of_host are not known yet
}

// members are the names that an expression has beside var, each with its attributes.
var members = map[string][]string{
	"rank": {"global", "local", "world_size"},
	"host": {"name", "index"},
	"gpu":  {"uuid", "index", "pci"},
}

// Context is the scope as HCL wants it; rank is nil outside env.
func (s *Scope) Context(rank *RankScope) *hcl.EvalContext {
	ctx := &hcl.EvalContext{Functions: functions, Variables: map[string]cty.Value{"var": cty.ObjectVal(s.Vars)}}
	if rank == nil {
		return ctx
	}
	ctx = ctx.NewChild()
	ctx.Functions = map[string]function.Function{envOfHost: rank.envOfHost()}
	ctx.Variables = map[string]cty.Value{
		"rank": cty.ObjectVal(map[string]cty.Value{
			"global":     knownNumber(rank.Global),
			"local":      knownNumber(rank.Local),
			"world_size": knownNumber(rank.WorldSize),
		}),
		"host": cty.ObjectVal(map[string]cty.Value{
			"name":  cty.StringVal(rank.HostName),
			"index": knownNumber(rank.HostIndex),
		}),
		"gpu": rank.gpuValue(),
	}
	return ctx
}

func (r *RankScope) gpuValue() cty.Value {
	uuid, pci, index := cty.UnknownVal(cty.String), cty.UnknownVal(cty.String), cty.UnknownVal(cty.Number)
	switch {
	case r.Trial:
	case r.GPU == nil:
		uuid, pci, index = cty.NullVal(cty.String), cty.NullVal(cty.String), cty.NullVal(cty.Number)
	default:
		uuid, pci, index = cty.StringVal(r.GPU.UUID), cty.StringVal(r.GPU.PCI), cty.NumberIntVal(int64(r.GPU.Index))
	}
	return cty.ObjectVal(map[string]cty.Value{"uuid": uuid, "pci": pci, "index": index})
}

func knownNumber(n int) cty.Value {
	if n < 0 {
		return cty.UnknownVal(cty.Number).RefineNotNull()
	}
	return cty.NumberIntVal(int64(n))
}

// Scalar is a string, number or bool as a program is given it.
func (s *Scope) Scalar(expr hclsyntax.Expression, value cty.Value) (string, bool) {
	switch {
	case value.IsNull() || !value.IsKnown():
		return "", false
	case value.Type() == cty.String:
		return value.AsString(), true
	case value.Type() == cty.Number:
		return s.Number(expr, value), true
	case value.Type() == cty.Bool:
		return strconv.FormatBool(value.True()), true
	}
	return "", false
}

// Number is how a number reaches a worker: as the job file or -var has it where the expression
// is that number, else as few digits as say it, without exponent.
func (s *Scope) Number(expr hclsyntax.Expression, value cty.Value) string {
	if written := s.Written(expr); written != "" {
		return written
	}
	return digits(value.AsBigFloat())
}

// Written is the source text of a number, or of a variable that is one; else "".
func (s *Scope) Written(expr hclsyntax.Expression) string {
	switch e := Unwrap(expr).(type) {
	case *hclsyntax.LiteralValueExpr:
		if written := s.Source(e.SrcRange); e.Val.Type() == cty.Number && written != "" {
			if parsed, err := cty.ParseNumberVal(written); err == nil && parsed.RawEquals(e.Val) {
				return written
			}
		}
	case *hclsyntax.ParenthesesExpr:
		return s.Written(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return s.Written(e.Wrapped)
	case *hclsyntax.UnaryOpExpr:
		if written := s.Written(e.Val); written != "" && written[0] != '-' && e.Op == hclsyntax.OpNegate {
			return "-" + written
		}
	case *hclsyntax.ScopeTraversalExpr:
		if name, ok := variableName(e.Traversal); ok && len(e.Traversal) == 2 {
			return s.Numbers[name]
		}
	}
	return ""
}

// Source is the file's text at a place.
func (s *Scope) Source(at hcl.Range) string {
	if at.Filename != s.File || !at.CanSliceBytes(s.Text) {
		return ""
	}
	return string(at.SliceBytes(s.Text))
}

// digits writes a computed number.
func digits(f *big.Float) string {
	if f.IsInt() {
		return f.Text('f', 0)
	}
	rounded, _ := f.Float64()
	if rounded == 0 || math.IsInf(rounded, 0) {
		return f.Text('f', -1)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
