package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/quantity"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Arg is an argument of a block, or an element of one that is a list: an expression that is
// evaluated once, where its value is asked for. A nil Arg is one that is not written. Methods
// that read a value report what is wrong with it.
type Arg struct {
	Name   string
	NameAt hcl.Range
	At     hcl.Range // of the value
	Expr   hclsyntax.Expression

	file      *File
	value     cty.Value
	ok        bool // the value can be used
	evaluated bool
	wrong     bool // an error was reported of it
	parent    *Arg // of an element: it is wrong where this is
}

// Value is the argument's value, which may be null. ok is false where there is none, or an
// error of it was reported.
func (a *Arg) Value() (value cty.Value, ok bool) {
	if a == nil {
		return cty.DynamicVal, false
	}
	if !a.evaluated {
		a.evaluated = true
		a.value, a.ok = a.file.Value(a.Expr)
		if !a.ok {
			a.blame()
		}
	}
	return a.value, a.ok
}

// Get is Value without null: ok is false for null too.
func (a *Arg) Get() (value cty.Value, ok bool) {
	value, ok = a.Value()
	return value, ok && !value.IsNull()
}

// IsSet reports whether the argument is there, good and not null.
func (a *Arg) IsSet() bool {
	_, ok := a.Get()
	return ok
}

// Wrong reports whether an error was reported of the argument.
func (a *Arg) Wrong() bool { return a != nil && a.wrong }

// Written is where the argument stands, if it is set.
func (a *Arg) Written() (hcl.Range, bool) {
	if !a.IsSet() {
		return hcl.Range{}, false
	}
	return a.NameAt, true
}

// Source is FILE:LINE of the argument.
func (a *Arg) Source() string { return SourceAt(a.NameAt) }

// SourceAt is a place as plans have it.
func SourceAt(at hcl.Range) string { return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line) }

// Error reports what is wrong with the value.
func (a *Arg) Error(summary, format string, args ...any) {
	a.ErrorAt(a.At, summary, format, args...)
}

// ErrorAt is Error of a part of the value.
func (a *Arg) ErrorAt(at hcl.Range, summary, format string, args ...any) {
	a.blame()
	a.file.Error(at, summary, format, args...)
}

// ErrorAlso is Error with a second place that explains it.
func (a *Arg) ErrorAlso(also hcl.Range, summary, format string, args ...any) {
	a.blame()
	a.file.ErrorAlso(a.At, also, summary, format, args...)
}

func (a *Arg) blame() {
	for ; a != nil; a = a.parent {
		a.wrong = true
	}
}

// Warn reports what is probably not meant.
func (a *Arg) Warn(summary, format string, args ...any) {
	a.file.Warn(a.At, summary, format, args...)
}

// WarnAt is Warn of a part of the value.
func (a *Arg) WarnAt(at hcl.Range, summary, format string, args ...any) {
	a.file.Warn(at, summary, format, args...)
}

// NoEffect warns of an argument that does nothing.
func (a *Arg) NoEffect(summary, format string, args ...any) {
	if at, set := a.Written(); set {
		a.file.Warn(at, summary, format, args...)
	}
}

// Describe says in a few words what the value is.
func (a *Arg) Describe() string {
	value, _ := a.Value()
	return expr.Describe(value)
}

// Word is the value where it is text; what else it may be is no error.
func (a *Arg) Word() (string, bool) {
	if value, ok := a.Get(); ok && value.Type() == cty.String {
		return value.AsString(), true
	}
	return "", false
}

// Truth is the value where it is true or false; what else it may be is no error.
func (a *Arg) Truth() (value, is bool) {
	v, ok := a.Get()
	if !ok || v.Type() != cty.Bool {
		return false, false
	}
	return v.True(), true
}

// Scalar is the value as a program is given it: text, a number, true or false.
func (a *Arg) Scalar() (string, bool) {
	value, ok := a.Get()
	if !ok {
		return "", false
	}
	return a.file.Scope.Scalar(a.Expr, value)
}

// Text is an argument that is text without NUL, "" where there is none.
func Text(a *Arg) string {
	if !a.IsSet() {
		return ""
	}
	word, isText := a.Word()
	switch {
	case !isText:
		a.Error("Wrong type", "%s is text in quotes, not %s.", a.Name, a.Describe())
		return ""
	case strings.ContainsRune(word, 0):
		a.Error("NUL in a string", "%s holds a NUL character, which no program can be given.", a.Name)
		return ""
	}
	return word
}

// Path is a path on each host.
func Path(a *Arg) string {
	path := Text(a)
	switch {
	case strings.HasPrefix(path, "~") && path != "~" && !strings.HasPrefix(path, "~/"):
		a.Error("Invalid path", "Only ~/ (your own home on each host) is known; write another user's home in full.")
	case strings.HasPrefix(path, "$"):
		a.Warn("Variable in a path", "No shell reads %s, so %q is a name as it stands. Write ~/ for your home.", a.Name, path)
	}
	return path
}

// Duration is an argument that is a time with its unit, or def.
func Duration(a *Arg, def, low, high time.Duration) time.Duration {
	value, ok := a.Get()
	if !ok {
		return def
	}
	word, isText := a.Word()
	if !isText {
		example := `"30s"`
		if value.Type() == cty.Number {
			example = fmt.Sprintf("%q for seconds", a.file.Scope.Number(a.Expr, value)+"s")
		}
		a.Error("Wrong type", "%s is a time with its unit in quotes, not %s: write %s.", a.Name, a.Describe(), example)
		return def
	}
	duration, err := time.ParseDuration(word)
	switch {
	case err != nil:
		a.Error("Invalid time", "%q is not a time: write numbers with the units h, m, s or ms, such as \"30s\", \"10m\" or \"1h30m\".", word)
	case duration < low || duration > high:
		a.Error("Time out of range", "%s lies between %s and %s.", a.Name, quantity.Duration(low), quantity.Duration(high))
	default:
		return duration
	}
	return def
}

// Size is an argument that is a number of bytes with its unit, such as "8MiB", or def.
func Size(a *Arg, def, low, high uint64) uint64 {
	value, ok := a.Get()
	if !ok {
		return def
	}
	word, isText := a.Word()
	if !isText {
		example := `"8GiB"`
		if value.Type() == cty.Number {
			example = quantity.BareSizeAdvice(value.AsBigFloat())
		}
		a.Error("Wrong type", "%s is a size with its unit in quotes, not %s: write %s.", a.Name, a.Describe(), example)
		return def
	}
	size, err := quantity.ParseSize(word)
	switch {
	case err != nil:
		a.Error("Invalid size", "%s.", expr.Capital(err.Error()))
	case size < low || size > high:
		a.Error("Size out of range", "%s lies between %s and %s.", a.Name, quantity.FormatSize(low), quantity.FormatSize(high))
	default:
		return size
	}
	return def
}

// Integer is an argument that is a whole number, or 0 where there is none or it is wrong.
func Integer(a *Arg, low, high int) int {
	if !a.IsSet() {
		return 0
	}
	n, ok := a.WholeNumber()
	if !ok || n < low || n > high {
		a.Error("Invalid number", "%s is a whole number from %d to %d, not %s.", a.Name, low, high, a.Describe())
		return 0
	}
	return n
}

// WholeNumber is the value as an int, where it is one. Text that is a number is taken:
// variables without default are text.
func (a *Arg) WholeNumber() (int, bool) {
	number, ok := a.Number()
	if !ok {
		return 0, false
	}
	n, accuracy := number.AsBigFloat().Int64()
	return int(n), accuracy == 0 && int64(int(n)) == n
}

// Number is the value as a number, where it is one or text that is one.
func (a *Arg) Number() (cty.Value, bool) {
	value, ok := a.Get()
	if word, isText := a.Word(); isText {
		parsed, err := cty.ParseNumberVal(strings.TrimSpace(word))
		return parsed, err == nil && expr.Sensible(parsed)
	}
	return value, ok && value.Type() == cty.Number
}

// Bool is an argument that is true or false, def where there is none or it is wrong.
func Bool(a *Arg, def bool) bool {
	value, ok := a.Get()
	if !ok {
		return def
	}
	word, _ := a.Word()
	switch {
	case value.Type() == cty.Bool:
		return value.True()
	case word == "true" || word == "false":
		return word == "true"
	}
	a.Error("Wrong type", "%s is true or false, without quotes, not %s.", a.Name, a.Describe())
	return def
}

// OneOf is an argument that is one of a few words, or by another name of one, or def.
func OneOf(a *Arg, def string, words []string, aliases ...map[string]string) string {
	if !a.IsSet() {
		return def
	}
	word, _ := a.Word()
	for _, names := range aliases {
		word = cmp.Or(names[word], word)
	}
	if slices.Contains(words, word) {
		return word
	}
	near := text.DidYouMean(word, words)
	if near == "" && slices.Contains(words, "SIG"+strings.ToUpper(word)) {
		near = fmt.Sprintf(" Did you mean %q?", "SIG"+strings.ToUpper(word))
	}
	a.Error("Invalid value", "%s cannot be %s.%s It is one of %s.", a.Name, a.Describe(), near, `"`+strings.Join(words, `", "`)+`"`)
	return def
}

// Within is the place of n bytes at offset in the text that the argument is, where that is
// written without escapes; else the place of the whole value.
func (a *Arg) Within(offset, n int) hcl.Range {
	template, ok := expr.Unwrap(a.Expr).(*hclsyntax.TemplateExpr)
	if !ok || !template.IsStringLiteral() {
		return a.At
	}
	literal := template.Parts[0].(*hclsyntax.LiteralValueExpr)
	if literal.Val.Type() != cty.String {
		return a.At
	}
	word, at := literal.Val.AsString(), literal.SrcRange
	offset = min(offset, len(word))
	n = min(n, len(word)-offset)
	if a.file.Scope.Source(at) != word || strings.Contains(word[:offset+n], "\n") {
		return a.At
	}
	at.Start.Column += diagnostic.Columns(word[:offset])
	at.Start.Byte += offset
	at.End = at.Start
	at.End.Column += diagnostic.Columns(word[offset : offset+n])
	at.End.Byte += n
	return at
}

// EnvExpr is the expression of an env argument, nil where there is nothing to evaluate.
func EnvExpr(a *Arg) hclsyntax.Expression {
	if a == nil {
		return nil
	}
	return a.file.EnvExpr(a.Expr)
}
