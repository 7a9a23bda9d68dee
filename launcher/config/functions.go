package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// functions are what expressions can call: pure ones only, so that every machine
// evaluates a job file to the same job. Those that can make much out of little
// are limited.
var functions = map[string]function.Function{
	"append":     addTo("append", func(list, value, sep string) string { return list + sep + value }),
	"ceil":       stdlib.CeilFunc,
	"coalesce":   stdlib.CoalesceFunc,
	"concat":     stdlib.ConcatFunc,
	"floor":      stdlib.FloorFunc,
	"format":     limited(stdlib.FormatFunc, checkFormat),
	"join":       limited(stdlib.JoinFunc, checkJoin),
	"jsondecode": limited(stdlib.JSONDecodeFunc, checkJSON),
	"jsonencode": stdlib.JSONEncodeFunc,
	"length":     stdlib.LengthFunc,
	"lower":      stdlib.LowerFunc,
	"max":        stdlib.MaxFunc,
	"merge":      stdlib.MergeFunc,
	"min":        stdlib.MinFunc,
	"range":      stdlib.RangeFunc,
	"replace":    limited(stdlib.ReplaceFunc, checkReplace),
	"split":      stdlib.SplitFunc,
	"tonumber":   stdlib.MakeToFunc(cty.Number),
	"tostring":   stdlib.MakeToFunc(cty.String),
	"trimspace":  stdlib.TrimSpaceFunc,
	"upper":      stdlib.UpperFunc,
}

// impure are functions that users of Terraform look for, with what to do instead.
var impure = map[string]string{
	"file":      "A job file reads no other file: use a heredoc (<<EOT) for longer text.",
	"prepend":   "Write append(value, list): it joins two texts, the first one in front.",
	"env":       "A job file does not see the environment: declare a variable and pass it with -var, name variables of this machine in forward, or in env read the host's with env_of_host.",
	"timestamp": "A job file does not see the clock: declare a variable and pass it with -var.",
}

func functionNames() []string {
	return slices.Sorted(maps.Keys(functions))
}

// maxResult bounds, in bytes, what one call may return.
const maxResult = 1 << 20

var errResult = errors.New("the result would be larger than 1 MiB")

// limited is f with a check of its arguments before each call. The check comes
// with the type, which is asked for first: jsondecode finds it by decoding.
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
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return f.Call(args)
		},
	})
}

// checkFormat refuses widths and precisions that fill the memory.
func checkFormat(args []cty.Value) error {
	digits := 0
	for _, c := range args[0].AsString() {
		if c < '0' || c > '9' {
			digits = 0
			continue
		}
		if digits++; digits > 3 {
			return fmt.Errorf("a number of more than three digits in the format; put it into an argument")
		}
	}
	return nil
}

func checkJoin(args []cty.Value) error {
	separator, size := len(args[0].AsString()), 0
	for _, part := range args[1:] {
		for it := part.ElementIterator(); it.Next(); {
			size += separator
			if _, element := it.Element(); element.IsKnown() && !element.IsNull() {
				size += len(element.AsString())
			}
			if size > maxResult {
				return errResult
			}
		}
	}
	return nil
}

func checkReplace(args []cty.Value) error {
	text, old, replacement := args[0].AsString(), args[1].AsString(), args[2].AsString()
	if len(text)+strings.Count(text, old)*len(replacement) > maxResult {
		return errResult
	}
	return nil
}

// checkJSON refuses text that is nested so deep that decoding it, which is
// recursive, would end the program.
func checkJSON(args []cty.Value) error {
	depth := 0
	for _, c := range args[0].AsString() {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxNesting {
			return fmt.Errorf("the JSON text is nested more than %d levels deep", maxNesting)
		}
	}
	return nil
}
