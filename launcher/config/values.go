package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/zclconf/go-cty/cty"
)

// attr evaluates an attribute. ok is false where it is absent, null or wrong.
func (d *decoder) attr(attr *hclsyntax.Attribute) (value cty.Value, ok bool) {
	if attr == nil {
		return cty.DynamicVal, false
	}
	value, ok = d.value(attr.Expr)
	return value, ok && !value.IsNull()
}

// isSet is whether the attribute is there and not null.
func (d *decoder) isSet(attr *hclsyntax.Attribute) bool {
	_, ok := d.attr(attr)
	return ok
}

// string is an attribute that is text without NUL, "" where there is none.
func (d *decoder) string(attr *hclsyntax.Attribute) string {
	value, ok := d.attr(attr)
	if !ok {
		return ""
	}
	if value.Type() != cty.String {
		d.error(attr.Expr.Range(), "Wrong type", "%s is text in quotes, not %s.", attr.Name, describe(value))
		return ""
	}
	text := value.AsString()
	if strings.ContainsRune(text, 0) {
		d.error(attr.Expr.Range(), "NUL in a string", "%s holds a NUL character, which no program can be given.", attr.Name)
		return ""
	}
	return text
}

// duration is an attribute that is a time with its unit, or def.
func (d *decoder) duration(attr *hclsyntax.Attribute, def, low, high time.Duration) time.Duration {
	value, ok := d.attr(attr)
	if !ok {
		return def
	}
	at := attr.Expr.Range()
	if value.Type() != cty.String {
		example := `"30s"`
		if value.Type() == cty.Number {
			example = fmt.Sprintf("%q for seconds", d.scope.number(attr.Expr, value)+"s")
		}
		d.error(at, "Wrong type", "%s is a time with its unit in quotes, not %s: write %s.", attr.Name, describe(value), example)
		return def
	}
	duration, err := time.ParseDuration(value.AsString())
	switch {
	case err != nil:
		d.error(at, "Invalid time", "%q is not a time: write numbers with the units h, m, s or ms, such as \"30s\", \"10m\" or \"1h30m\".", value.AsString())
	case duration < low || duration > high:
		d.error(at, "Time out of range", "%s lies between %s and %s.", attr.Name, short(low), short(high))
	default:
		return duration
	}
	return def
}

// short writes a duration without the zero parts at its end.
func short(d time.Duration) string {
	s := d.String()
	if d >= time.Minute {
		s = strings.TrimSuffix(s, "0s")
	}
	if d >= time.Hour {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// integer is an attribute that is a whole number, or 0 where there is none or it
// is wrong. Text that is a number is taken: variables without default are text.
func (d *decoder) integer(attr *hclsyntax.Attribute, low, high int) int {
	value, ok := d.attr(attr)
	if !ok {
		return 0
	}
	n, ok := d.wholeNumber(value)
	if !ok || n < low || n > high {
		d.error(attr.Expr.Range(), "Invalid number", "%s is a whole number from %d to %d, not %s.", attr.Name, low, high, describe(value))
		return 0
	}
	return n
}

// wholeNumber is the value as an int, where it is one.
func (d *decoder) wholeNumber(value cty.Value) (int, bool) {
	if value.Type() == cty.String {
		parsed, err := cty.ParseNumberVal(value.AsString())
		if err != nil {
			return 0, false
		}
		value = parsed
	}
	if value.Type() != cty.Number {
		return 0, false
	}
	n, accuracy := value.AsBigFloat().Int64()
	return int(n), accuracy == 0 && int64(int(n)) == n
}

// bool is an attribute that is true or false, false where there is none. Text is taken
// as integer takes it.
func (d *decoder) bool(attr *hclsyntax.Attribute) bool {
	value, ok := d.attr(attr)
	switch {
	case !ok:
		return false
	case value.Type() == cty.Bool:
		return value.True()
	case value.Type() == cty.String && (value.AsString() == "true" || value.AsString() == "false"):
		return value.AsString() == "true"
	}
	d.error(attr.Expr.Range(), "Wrong type", "%s is true or false, without quotes, not %s.", attr.Name, describe(value))
	return false
}

// oneOf is an attribute that is one of a few words, or by another name of one, or def.
func (d *decoder) oneOf(attr *hclsyntax.Attribute, def string, words []string, aliases ...map[string]string) string {
	value, ok := d.attr(attr)
	if !ok {
		return def
	}
	word := ""
	if value.Type() == cty.String {
		word = value.AsString()
	}
	for _, names := range aliases {
		word = cmp.Or(names[word], word)
	}
	if slices.Contains(words, word) {
		return word
	}
	near := text.Nearest(word, words, 2)
	if near == "" && slices.Contains(words, "SIG"+strings.ToUpper(word)) {
		near = "SIG" + strings.ToUpper(word)
	}
	if near != "" {
		near = fmt.Sprintf(" Did you mean %q?", near)
	}
	d.error(attr.Expr.Range(), "Invalid value", "%s cannot be %s.%s It is one of %s.",
		attr.Name, describe(value), near, `"`+strings.Join(words, `", "`)+`"`)
	return def
}

// element is one element of a list, with its place where the list is written out.
type element struct {
	value cty.Value
	expr  hclsyntax.Expression
}

// elements evaluates a list. Elements that are wrong are reported and left out;
// ok is false where there is no list at all.
func (d *decoder) elements(expr hclsyntax.Expression) (found []element, ok bool) {
	if tuple, isTuple := unwrap(expr).(*hclsyntax.TupleConsExpr); isTuple {
		for _, e := range tuple.Exprs {
			if value, ok := d.value(e); ok {
				found = append(found, element{value, e})
			}
		}
		return found, true
	}
	value, ok := d.value(expr)
	if !ok || value.IsNull() || !value.CanIterateElements() || value.Type().IsObjectType() || value.Type().IsMapType() {
		return nil, false
	}
	for it := value.ElementIterator(); it.Next(); {
		_, v := it.Element()
		found = append(found, element{v, expr})
	}
	return found, true
}

// scalar is a string, number or bool as a program is given it.
func (s *scope) scalar(expr hclsyntax.Expression, value cty.Value) (string, bool) {
	switch {
	case value.IsNull() || !value.IsKnown():
		return "", false
	case value.Type() == cty.String:
		return value.AsString(), true
	case value.Type() == cty.Number:
		return s.number(expr, value), true
	case value.Type() == cty.Bool:
		return map[bool]string{true: "true", false: "false"}[value.True()], true
	}
	return "", false
}

// describe says in a few words what a value is.
func describe(value cty.Value) string {
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
	case t == cty.Bool && value.True():
		return "true"
	case t == cty.Bool:
		return "false"
	case t.IsObjectType() || t.IsMapType():
		return "an object"
	}
	return "a list"
}

// within is the range of n bytes at offset in the string that expr is, where expr
// is a literal written without escapes; else expr's own range.
func (d *decoder) within(expr hclsyntax.Expression, offset, n int) hcl.Range {
	template, ok := unwrap(expr).(*hclsyntax.TemplateExpr)
	if !ok || !template.IsStringLiteral() {
		return expr.Range()
	}
	literal := template.Parts[0].(*hclsyntax.LiteralValueExpr)
	at := literal.SrcRange
	if literal.Val.Type() != cty.String || !at.CanSliceBytes(d.text) || string(at.SliceBytes(d.text)) != literal.Val.AsString() {
		return expr.Range()
	}
	text := literal.Val.AsString()
	offset = min(offset, len(text))
	n = min(n, len(text)-offset)
	if strings.Contains(text[:offset+n], "\n") {
		return expr.Range()
	}
	at.Start.Column += columns(text[:offset])
	at.Start.Byte += offset
	at.End = at.Start
	at.End.Column += columns(text[offset : offset+n])
	at.End.Byte += n
	return at
}
