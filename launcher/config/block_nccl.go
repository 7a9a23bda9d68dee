package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/internal/text"
)

var ncclSchema = schemaOfNCCL()

func schemaOfNCCL() schema {
	s := schema{where: "an nccl block", elsewhere: map[string]string{"bufsize": "buffer_size", "buff_size": "buffer_size", "buffer": "buffer_size"}}
	for _, a := range nccl.Attributes {
		s.attrs = append(s.attrs, attrSchema{name: a.Name})
		// What people know is the variable's name, with or without what all begin with.
		full := strings.ToLower(a.Variable)
		_, short, _ := strings.Cut(full, "nccl_")
		for _, name := range []string{full, short} {
			if name != a.Name {
				s.elsewhere[name] = a.Name
			}
		}
	}
	for name, here := range s.elsewhere {
		s.elsewhere[name] = here + " = ..."
	}
	s.hint = s.allowed() + " Other variables of NCCL and torch can be set in env."
	return s
}

// nccl decodes an nccl block, nil where there is none. backend is the job's, "" where the
// plan chooses it.
func (d *decoder) nccl(block *hclsyntax.Block, backend string) *nccl.Settings {
	if block == nil {
		return nil
	}
	c := d.content(block.Body, block.DefRange(), ncclSchema)
	s := &nccl.Settings{}
	for _, a := range nccl.Attributes {
		attr := c.attrs[a.Name]
		if value, ok := d.ncclValue(attr, a); ok {
			s.Values = append(s.Values, nccl.Setting{Attr: a.Name, Value: value, Source: sourceAt(attr.NameRange)})
			d.adviseNCCL(attr, a, value)
		}
	}
	if backend != "" && backend != "nccl" {
		d.warn(block.TypeRange, "No effect", "The job's backend is %q, which does not use NCCL. Take the nccl block out.", backend)
	}
	d.ncclConflicts(c, s)
	return s
}

// sourceAt is a place as plans have it.
func sourceAt(at hcl.Range) string { return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line) }

// ncclValue is an attribute as its variable has it. ok is false where it is not set, or
// wrong.
func (d *decoder) ncclValue(attr *hclsyntax.Attribute, a nccl.Attribute) (value string, ok bool) {
	if !d.isSet(attr) {
		return "", false
	}
	known := len(d.diags)
	switch a.Form {
	case nccl.AsSwitch:
		value = ncclSwitch(d.bool(attr))
	case nccl.AsSize:
		value = strconv.FormatUint(d.size(attr, 0, uint64(a.Low), uint64(a.High)), 10)
	case nccl.AsNumber:
		value = strconv.Itoa(d.integer(attr, int(a.Low), int(a.High)))
	case nccl.AsMode:
		value = d.ncclMode(attr, a)
	case nccl.AsWord:
		value = d.oneOf(attr, "", a.Words())
	case nccl.AsWords:
		value = d.ncclWords(attr, a)
	case nccl.AsAlgorithms:
		value = d.ncclAlgorithms(attr, a)
	case nccl.AsNames:
		value = d.ncclNames(attr, a)
	case nccl.AsPath:
		value = d.ncclPath(attr)
	case nccl.AsSeconds:
		value = d.ncclTime(attr, a, time.Second)
	case nccl.AsMilliseconds:
		value = d.ncclTime(attr, a, time.Millisecond)
	}
	return value, !d.diags[known:].HasErrors()
}

func ncclSwitch(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// ncclMode is a number whose 0 and 1 can be written as false and true.
func (d *decoder) ncclMode(attr *hclsyntax.Attribute, a nccl.Attribute) string {
	if value, ok := d.attr(attr); ok && value.Type() == cty.Bool {
		return ncclSwitch(value.True())
	}
	return strconv.Itoa(d.integer(attr, int(a.Low), int(a.High)))
}

// ncclTime is a time in the variable's unit.
func (d *decoder) ncclTime(attr *hclsyntax.Attribute, a nccl.Attribute, unit time.Duration) string {
	known := len(d.diags)
	t := d.duration(attr, 0, time.Duration(a.Low)*unit, time.Duration(a.High)*unit)
	if len(d.diags) == known && t%unit != 0 {
		d.error(attr.Expr.Range(), "Invalid time", "%s is read in units of %s: write a multiple, such as %q.", attr.Name, unit, short(t.Truncate(unit)+unit))
	}
	return strconv.FormatInt(int64(t/unit), 10)
}

// ncclPath is a file on the hosts. Nobody expands "~" there.
func (d *decoder) ncclPath(attr *hclsyntax.Attribute) string {
	path := d.string(attr)
	switch {
	case strings.HasPrefix(path, "~"):
		d.error(attr.Expr.Range(), "Invalid path", "%s is read by a library, which does not know ~: write the path in full.", attr.Name)
	case path == "" && d.isText(attr):
		d.error(attr.Expr.Range(), "Invalid path", "%s is empty: write a path, or leave it out.", attr.Name)
	}
	return path
}

func (d *decoder) isText(attr *hclsyntax.Attribute) bool {
	value, ok := d.attr(attr)
	return ok && value.Type() == cty.String
}

// ncclList is an attribute that is text as NCCL has it, or a list of texts; isList tells
// which.
func (d *decoder) ncclList(attr *hclsyntax.Attribute, a nccl.Attribute) (words []string, isList bool) {
	example := a.Example
	if d.isText(attr) {
		return []string{d.string(attr)}, false
	}
	elements, ok := d.elements(attr.Expr)
	if !ok {
		value, _ := d.attr(attr)
		d.error(attr.Expr.Range(), "Wrong type", "%s is a list of texts such as %s, or one text as NCCL has it, not %s.", attr.Name, example, describe(value))
		return nil, true
	}
	for _, e := range elements {
		if e.value.IsNull() || e.value.Type() != cty.String {
			d.error(e.expr.Range(), "Wrong type", "%s is a list of texts such as %s; this is %s.", attr.Name, example, describe(e.value))
			continue
		}
		word := e.value.AsString()
		if word == "" || strings.ContainsAny(word, ", \t\x00") {
			d.error(e.expr.Range(), "Invalid value", "An element of %s is one name, without spaces and commas, not %s.", attr.Name, quoted(word))
		}
		words = append(words, word)
	}
	if len(elements) == 0 {
		d.error(attr.Expr.Range(), "Invalid value", "%s is empty: name something, such as %s, or leave it out.", attr.Name, example)
	}
	return words, true
}

// ncclWords are words of a list that NCCL knows, with "^" for those to leave out.
func (d *decoder) ncclWords(attr *hclsyntax.Attribute, a nccl.Attribute) string {
	words, isList := d.ncclList(attr, a)
	if !isList {
		words = strings.Split(words[0], ",")
	}
	for _, word := range words {
		known := strings.TrimPrefix(word, "^")
		if !slices.Contains(a.Words(), known) {
			near := text.Nearest(known, a.Words(), 2)
			if near != "" {
				near = fmt.Sprintf(" Did you mean %q?", near)
			}
			d.error(attr.Expr.Range(), "Invalid value", "%s cannot have %s.%s There are %s.", attr.Name, quoted(word), near, strings.Join(a.Words(), ", "))
		}
	}
	return strings.Join(words, ",")
}

// ncclAlgorithms are algorithms or protocols; what is wrong with them the table of
// variables knows.
func (d *decoder) ncclAlgorithms(attr *hclsyntax.Attribute, a nccl.Attribute) string {
	words, _ := d.ncclList(attr, a)
	return strings.Join(words, ",")
}

// ncclNames are interfaces or InfiniBand devices. A list is those and no others, where
// NCCL by itself would take names that begin so.
func (d *decoder) ncclNames(attr *hclsyntax.Attribute, a nccl.Attribute) string {
	words, isList := d.ncclList(attr, a)
	if !isList {
		if words[0] == "" {
			d.error(attr.Expr.Range(), "Invalid value", "%s is empty: name something, or leave it out.", attr.Name)
		}
		return words[0]
	}
	for _, word := range words {
		if strings.HasPrefix(word, "^") || strings.HasPrefix(word, "=") {
			d.error(attr.Expr.Range(), "Invalid value", "A list is exactly these names; to leave some out, or to take all that begin alike, write text as NCCL has it: \"^docker\" or \"eth\".")
			break
		}
	}
	return nccl.Names{Exact: true, Names: words}.String()
}

// adviseNCCL says what is to be known of a value that is otherwise right, and what is wrong
// with words that only NCCL's own table knows.
func (d *decoder) adviseNCCL(attr *hclsyntax.Attribute, a nccl.Attribute, value string) {
	at := attr.Expr.Range()
	if a.Instead != "" {
		d.warn(attr.NameRange, "Deprecated argument", "%s is the name before NCCL 2.17: write %s. muster sets what the version found reads.", a.Name, a.Instead)
	}
	if n, err := strconv.ParseUint(value, 10, 64); a.Form == nccl.AsSize && err == nil && n&(n-1) != 0 {
		d.warn(at, "Odd buffer size", "NCCL's documentation advises powers of two for %s, such as %q.", a.Name, formatSize(powerBelow(n)))
	}
	for _, f := range nccl.Check(a.Variable, value, nccl.Version{}) {
		if f.Code == nccl.CodeWord || f.Code == nccl.CodeList {
			d.error(at, "Invalid value", "%s", sentences(f))
		} else {
			d.doubt(d.policy, f.Code, at, "Dangerous value", "%s", sentences(f))
		}
	}
}

func powerBelow(n uint64) uint64 {
	power := uint64(1)
	for power<<1 <= n {
		power <<= 1
	}
	return power
}
