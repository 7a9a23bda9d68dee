package gpu

import (
	"reflect"
	"slices"
	"strings"
)

// Unknown lists the values of g that are nil, by JSON name. Each of them has a reason in
// Why, whichever prober found it.
func (g *GPU) Unknown() []string { return unknown(reflect.ValueOf(*g), "") }

// Explain gives this reason to each nil value that has none yet.
func (g *GPU) Explain(reason string) { g.Why = explain(g.Why, g.Unknown(), reason) }

// Unknown lists the values of the machine that are nil, by JSON name.
func (g *Inventory) Unknown() []string { return unknown(reflect.ValueOf(*g), "") }

// Explain gives this reason to each nil value of the machine that has none yet.
func (g *Inventory) Explain(reason string) { g.Why = explain(g.Why, g.Unknown(), reason) }

// Unknown lists the values of s that are nil, by JSON name. Only a GPU in MIG mode has
// instances.
func (s *Sample) Unknown() []string {
	return slices.DeleteFunc(unknown(reflect.ValueOf(*s), ""), func(name string) bool { return name == "instances" })
}

// Explain gives this reason to each nil value that has none yet.
func (s *Sample) Explain(reason string) { s.Why = explain(s.Why, s.Unknown(), reason) }

func explain(why map[string]string, names []string, reason string) map[string]string {
	for _, name := range names {
		if why[name] != "" {
			continue
		}
		if why == nil {
			why = map[string]string{}
		}
		why[name] = reason
	}
	return why
}

// unknown looks at pointers, lists and the structs among the fields; maps and the notes
// are about values, not values.
func unknown(v reflect.Value, prefix string) []string {
	var names []string
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		field := v.Field(i)
		switch field.Kind() {
		case reflect.Struct:
			names = append(names, unknown(field, prefix+name+".")...)
		case reflect.Pointer, reflect.Slice:
			if field.IsNil() && options == "" {
				names = append(names, prefix+name)
			}
		}
	}
	return names
}

// SlowText says why a GPU is slow, by its throttle reasons; "" where it is not: at its power
// limit every busy GPU is.
func SlowText(reasons []string) string {
	var words []string
	for _, reason := range reasons {
		switch reason {
		case "sw_power_cap":
		case "hw_thermal", "sw_thermal":
			words = append(words, "too hot ("+Spaced(reason)+")")
		case "hw_power_brake":
			words = append(words, "the power supply asks for it (hw power brake)")
		default:
			words = append(words, Spaced(reason))
		}
	}
	return strings.Join(words, ", ")
}

// Spaced is a word of the contract as people read it: without underscores.
func Spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }
