package config

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// envOfHost is the function that reads a variable of the host that a rank is on.
const envOfHost = "env_of_host"

// HostEnvNames are the variables of hosts that env refers to, sorted: RankScope.HostEnv is
// to have them, as far as they are set there.
func (j *Job) HostEnvNames() []string { return slices.Clone(j.hostEnv) }

// envOfHost is the function for a rank. What the host has not set is "".
func (r *RankScope) envOfHost() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "name", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if r.trial {
				return cty.UnknownVal(cty.String).RefineNotNull(), nil
			}
			return cty.StringVal(r.HostEnv[args[0].AsString()]), nil
		},
	})
}

// checkEnvOfHost checks a call, and notes the variable: it must be known before hosts are
// looked at.
func (d *decoder) checkEnvOfHost(call *hclsyntax.FunctionCallExpr) bool {
	switch {
	case d.place != inEnv:
		d.error(call.NameRange, "Not known here", "env_of_host can be used in env only: what a host has set is known once it is reached.")
		return false
	case len(call.Args) != 1 || call.ExpandFinal:
		d.error(call.NameRange, "Invalid function argument", "env_of_host takes the name of one variable: env_of_host(\"LD_LIBRARY_PATH\").")
		return false
	}
	name, ok := d.hostVariable(call.Args[0])
	if ok {
		d.hostEnv[name] = true
	}
	return ok
}

// hostVariable is the argument of env_of_host.
func (d *decoder) hostVariable(arg hclsyntax.Expression) (string, bool) {
	refs := &references{}
	_ = hclsyntax.Walk(arg, refs)
	for _, t := range refs.names {
		if t.RootName() != "var" {
			d.error(arg.Range(), "Not known here", "The name that env_of_host is given is the same for all ranks, as hosts are asked for it before: write it as text, or as var.NAME.")
			return "", false
		}
	}
	if slices.ContainsFunc(refs.calls, func(c *hclsyntax.FunctionCallExpr) bool { return c.Name == envOfHost }) {
		d.error(arg.Range(), "Not known here", "The name that env_of_host is given cannot come of a host itself: write it as text.")
		return "", false
	}
	value, ok := d.value(arg)
	if !ok {
		return "", false
	}
	text, ok := d.scope.scalar(arg, value)
	if !ok || !envName.MatchString(text) {
		d.error(arg.Range(), "Invalid variable name", "env_of_host takes the name of a variable, made of letters, digits and _, not %s.", describe(value))
		return "", false
	}
	return text, true
}

// addTo is a function that adds a value to a text of parts with a separator between them,
// ":" unless a third argument says otherwise. No separator stands beside nothing: an empty
// part of PATH or LD_LIBRARY_PATH is the working folder.
func addTo(name string, join func(list, value, sep string) string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{
			{Name: "list", Type: cty.String, AllowNull: true},
			{Name: "value", Type: cty.String},
		},
		VarParam: &function.Parameter{Name: "separator", Type: cty.String},
		Type: func(args []cty.Value) (cty.Type, error) {
			if len(args) > 3 {
				return cty.NilType, function.NewArgErrorf(3, "%s takes a list, a value and at most a separator", name)
			}
			return cty.String, nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			list, value, separator := "", args[1].AsString(), ":"
			if !args[0].IsNull() {
				list = args[0].AsString()
			}
			if len(args) == 3 {
				separator = args[2].AsString()
			}
			if strings.TrimSpace(list) == "" {
				return cty.StringVal(value), nil
			}
			if value == "" {
				return cty.StringVal(list), nil
			}
			return cty.StringVal(join(list, value, separator)), nil
		},
	})
}
