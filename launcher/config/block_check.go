package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Check says what becomes of the findings of checks.
type Check struct {
	Ignore     []string                  // codes that are not told
	Severity   map[string]codes.Severity // by code, where it is not the usual one
	WrongGPU   string                    // WrongGPUWarn unless set
	AfterStart bool                      // running ranks are watched on their GPUs; true unless set
}

// What happens when a rank is seen on another GPU than planned.
const (
	WrongGPUWarn = "warn" // it is said
	WrongGPUStop = "stop" // the attempt ends
)

var checkSchema = schema{
	where: "a check block",
	attrs: []attrSchema{{name: "ignore"}, {name: "severity"}, {name: "wrong_gpu"}, {name: "after_start"}},
}

// check decodes a check block.
func (d *decoder) check(block *hclsyntax.Block) Check {
	check := Check{WrongGPU: WrongGPUWarn, AfterStart: true}
	if block == nil {
		return check
	}
	c := d.content(block.Body, block.DefRange(), checkSchema)
	check.Ignore = d.ignoredCodes(c.attrs["ignore"])
	check.Severity = d.severities(c.attrs["severity"], check.Ignore)
	check.WrongGPU = d.oneOf(c.attrs["wrong_gpu"], WrongGPUWarn, []string{WrongGPUWarn, WrongGPUStop})
	if known := len(d.diags); d.isSet(c.attrs["after_start"]) {
		check.AfterStart = d.bool(c.attrs["after_start"]) || len(d.diags) > known
	}
	if at, set := d.written(c.attrs["wrong_gpu"]); set && !check.AfterStart {
		d.warn(at, "Without effect", "wrong_gpu is about what is seen of ranks that run, and after_start = false has nobody look.")
	}
	return check
}

// doubt tells a finding about a value of the job file as the check block wants it.
func (d *decoder) doubt(policy Check, code string, at hcl.Range, title, format string, args ...any) {
	switch {
	case slices.Contains(policy.Ignore, code):
	case policy.Severity[code] == codes.Fail:
		d.error(at, title, format+" The check block has %s refuse the job.", append(args, code)...)
	default:
		d.warn(at, title, format, args...)
	}
}

// ignoredCodes is a list of codes, each once.
func (d *decoder) ignoredCodes(attr *hclsyntax.Attribute) []string {
	if attr == nil {
		return nil
	}
	elements, ok := d.elements(attr.Expr)
	if !ok {
		if value, is := d.attr(attr); is {
			d.error(attr.Expr.Range(), "Wrong type", "ignore is a list of codes such as [\"pcie_narrow\"], not %s.", describe(value))
		}
		return nil
	}
	var found []string
	for _, e := range elements {
		name, isText := d.scope.scalar(e.expr, e.value)
		switch at := e.expr.Range(); {
		case !isText:
			d.error(at, "Wrong type", "The code of a finding is text in quotes, not %s.", describe(e.value))
		case !d.isCode(name, at):
		case slices.Contains(found, name):
			d.warn(at, "Repeated code", "%s is ignored already.", name)
		default:
			found = append(found, name)
		}
	}
	return found
}

// isCode reports codes that there are not.
func (d *decoder) isCode(name string, at hcl.Range) bool {
	if _, known := codes.Find(name); known {
		return true
	}
	detail := "There is no finding with that code."
	if near := text.Nearest(name, codes.Names(), 2); near != "" {
		detail += fmt.Sprintf(" Did you mean %q?", near)
	}
	d.error(at, "Unknown code", "%q: %s muster check --help lists them.", name, detail)
	return false
}

// severities are those of an object, with the places of its entries where it is written out.
func (d *decoder) severities(attr *hclsyntax.Attribute, ignored []string) map[string]codes.Severity {
	value, ok := d.attr(attr)
	if !ok {
		return nil
	}
	if !value.Type().IsObjectType() && !value.Type().IsMapType() {
		d.error(attr.Expr.Range(), "Wrong type", "severity is an object of codes and severities, not %s: write { pcie_narrow = \"fail\" }.", describe(value))
		return nil
	}
	places := d.entryPlaces(attr)
	found := map[string]codes.Severity{}
	for it := value.ElementIterator(); it.Next(); {
		key, severity := it.Element()
		name := key.AsString()
		at, written := places[name]
		if !written {
			at = attr.Expr.Range()
		}
		if !d.isCode(name, at) {
			continue
		}
		if s, ok := d.severity(name, severity, at); ok {
			found[name] = s
		}
		if slices.Contains(ignored, name) {
			d.warn(at, "Without effect", "%s is ignored, so it needs no severity.", name)
		}
	}
	return found
}

// entryPlaces are where the entries of an object stand that is written out.
func (d *decoder) entryPlaces(attr *hclsyntax.Attribute) map[string]hcl.Range {
	places := map[string]hcl.Range{}
	if object, ok := unwrap(attr.Expr).(*hclsyntax.ObjectConsExpr); ok {
		for _, item := range object.Items {
			if key, ok := d.value(item.KeyExpr); ok && key.Type() == cty.String && !key.IsNull() {
				name, at := key.AsString(), hcl.RangeBetween(item.KeyExpr.Range(), item.ValueExpr.Range())
				if first, twice := places[name]; twice {
					d.errorAlso(at, first, "Repeated code", "%s has a severity at %s already. Give each code one.", name, first)
				}
				places[name] = at
			}
		}
	}
	return places
}

func (d *decoder) severity(name string, value cty.Value, at hcl.Range) (codes.Severity, bool) {
	word := ""
	if !value.IsNull() && value.Type() == cty.String {
		word = value.AsString()
	}
	if slices.Contains(codes.Severities, codes.Severity(word)) {
		return codes.Severity(word), true
	}
	var words []string
	for _, s := range codes.Severities {
		words = append(words, string(s))
	}
	hint := ""
	switch strings.ToLower(word) {
	case "error", "stop", "refuse", "fatal":
		hint = ` Did you mean "fail"?`
	case "ignore", "none", "off":
		hint = fmt.Sprintf(" Write ignore = [%q].", name)
	default:
		if near := text.Nearest(word, words, 2); near != "" {
			hint = fmt.Sprintf(" Did you mean %q?", near)
		}
	}
	d.error(at, "Invalid severity", "The severity of %s cannot be %s.%s It is one of \"%s\".", name, describe(value), hint, strings.Join(words, `", "`))
	return "", false
}
