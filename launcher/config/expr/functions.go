package expr

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/muster-dev/muster/launcher/config/envvar"
)

// functions are what expressions can call: pure ones only, so that every machine evaluates a
// job file to the same job. Those that write values out are limited.
var functions = map[string]function.Function{
	"append":     appendFunc,
	"ceil":       stdlib.CeilFunc,
	"coalesce":   stdlib.CoalesceFunc,
	"concat":     stdlib.ConcatFunc,
	"floor":      stdlib.FloorFunc,
	"format":     stdlib.FormatFunc,
	"join":       stdlib.JoinFunc,
	"jsondecode": stdlib.JSONDecodeFunc,
	"jsonencode": limited(stdlib.JSONEncodeFunc, checkWeight),
	"length":     stdlib.LengthFunc,
	"lower":      stdlib.LowerFunc,
	"max":        stdlib.MaxFunc,
	"merge":      stdlib.MergeFunc,
	"min":        stdlib.MinFunc,
	"range":      stdlib.RangeFunc,
	"replace":    stdlib.ReplaceFunc,
	"split":      stdlib.SplitFunc,
	"tonumber":   stdlib.MakeToFunc(cty.Number),
	"tostring":   limited(stdlib.MakeToFunc(cty.String), checkWeight),
	"trimspace":  stdlib.TrimSpaceFunc,
	"upper":      stdlib.UpperFunc,
}

// notHere are functions that people look for, with what to do instead.
var notHere = map[string]string{
	"file":      "A job file reads no other file: use a heredoc (<<EOT) for longer text.",
	"prepend":   "Write append(value, list): it joins two texts, the first one in front.",
	"env":       "A job file does not see the environment: declare a variable and pass it with -var, name variables of this machine in forward, or in env read the host's with env_of_host.",
	"timestamp": "A job file does not see the clock: declare a variable and pass it with -var.",
}

func functionNames() []string { return slices.Sorted(maps.Keys(functions)) }

// maxResult bounds, in bytes, what one call may return.
const maxResult = 1 << 20

var errResult = errors.New("the result would be larger than 1 MiB")

// limited is f with a check of its arguments before each call. The check comes with the type,
// which is asked for first: jsondecode finds it by decoding.
func limited(f function.Function, check func([]cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      f.Params(),
		VarParam:    f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			plain := make([]cty.Value, len(args))
			for i, arg := range args {
				if !arg.IsWhollyKnown() {
					return cty.DynamicPseudoType, nil
				}
				plain[i], _ = arg.UnmarkDeep()
			}
			if err := check(plain); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

// checkWeight refuses values that are much larger when they are written out.
func checkWeight(args []cty.Value) error {
	weight, fine := weigh(args[0], maxWeight)
	switch {
	case !fine:
		return errors.New("a number is too large or too small to be written out")
	case weight > maxWeight:
		return errResult
	}
	return nil
}

// appendFunc adds a value to a text of parts with a separator between them, ":" unless a third
// argument says otherwise. No separator stands beside nothing: an empty part of PATH or
// LD_LIBRARY_PATH is the working folder.
var appendFunc = function.New(&function.Spec{
	Params: []function.Parameter{
		{Name: "list", Type: cty.String, AllowNull: true},
		{Name: "value", Type: cty.String},
	},
	VarParam: &function.Parameter{Name: "separator", Type: cty.String},
	Type: func(args []cty.Value) (cty.Type, error) {
		if len(args) > 3 {
			return cty.NilType, function.NewArgErrorf(3, "append takes a list, a value and at most a separator")
		}
		return cty.String, nil
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		value, separator := args[1].AsString(), ":"
		if len(args) == 3 {
			separator = args[2].AsString()
		}
		switch {
		case args[0].IsNull() || strings.TrimSpace(args[0].AsString()) == "":
			return cty.StringVal(value), nil
		case strings.TrimSpace(value) == "":
			return args[0], nil
		}
		return cty.StringVal(args[0].AsString() + separator + value), nil
	},
})

// envOfHost is the function that reads a variable of the host that a rank is on.
const envOfHost = "env_of_host"

// envOfHost is the function for a rank. What the host has not set is "".
func (r *RankScope) envOfHost() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "name", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if r.Trial {
				return cty.UnknownVal(cty.String).RefineNotNull(), nil
			}
			return cty.StringVal(r.HostEnv[args[0].AsString()]), nil
		},
	})
}

// checkEnvOfHost checks a call, and notes the variable: it must be known before hosts are
// looked at.
func checkEnvOfHost(f *Evaluator, call *hclsyntax.FunctionCallExpr) bool {
	switch {
	case f.Place != InEnv:
		f.Error(call.NameRange, "Not known here", "env_of_host can be used in env only: what a host has set is known once it is reached.")
		return false
	case len(call.Args) != 1 || call.ExpandFinal:
		f.Error(call.NameRange, "Invalid function argument", "env_of_host takes the name of one variable: env_of_host(\"LD_LIBRARY_PATH\").")
		return false
	}
	arg := call.Args[0]
	refs := referencesIn(arg)
	for _, t := range refs.names {
		if t.RootName() != "var" {
			f.Error(arg.Range(), "Not known here", "The name that env_of_host is given is the same for all ranks, as hosts are asked for it before: write it as text, or as var.NAME.")
			return false
		}
	}
	if slices.ContainsFunc(refs.calls, func(c *hclsyntax.FunctionCallExpr) bool { return c.Name == envOfHost }) {
		f.Error(arg.Range(), "Not known here", "The name that env_of_host is given cannot come of a host itself: write it as text.")
		return false
	}
	value, ok := f.Value(arg)
	if !ok {
		return false
	}
	name, ok := f.Scope.Scalar(arg, value)
	if !ok || !envvar.IsName(name) {
		f.Error(arg.Range(), "Invalid variable name", "env_of_host takes the name of a variable, made of letters, digits and _, not %s.", Describe(value))
		return false
	}
	f.hostEnv[name] = true
	return true
}
