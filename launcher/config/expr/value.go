package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Describe says in a few words what a value is.
func Describe(value cty.Value) string {
	t := value.Type()
	switch {
	case value.IsMarked():
		return "a sensitive value"
	case value.IsNull():
		return "null"
	case !value.IsKnown():
		return "a value not known yet"
	case t == cty.String && len(value.AsString()) <= 40:
		return fmt.Sprintf("the text %q", value.AsString())
	case t == cty.String:
		return "a longer text"
	case t == cty.Number:
		return "the number " + digits(value.AsBigFloat())
	case t == cty.Bool:
		return strconv.FormatBool(value.True())
	case IsObject(value):
		return "an object"
	}
	return "a list"
}

// IsList is whether a value is known and a list of some kind.
func IsList(v cty.Value) bool { return v.CanIterateElements() && !IsObject(v) }

// IsObject is whether a value is an object or a map.
func IsObject(v cty.Value) bool { return v.Type().IsObjectType() || v.Type().IsMapType() }

// Capital is a sentence's beginning.
func Capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// List is names in order, with commas.
func List(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), ", ") }
