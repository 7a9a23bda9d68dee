package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/library"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Check says what becomes of the findings of checks.
type Check struct {
	Ignore     []string                  // codes that are not reported
	Severity   map[string]codes.Severity // by code, where it is not the usual one
	WrongGPU   string                    // WrongGPUWarn unless set
	AfterStart bool                      // running ranks are watched on their GPUs; true unless set
}

// What happens when a rank is seen on another GPU than planned.
const (
	WrongGPUWarn = "warn" // it is said
	WrongGPUStop = "stop" // the attempt ends
)

var checkSchema = decode.Schema{Where: "a check block", Args: []string{"ignore", "severity", "wrong_gpu", "after_start"}}

func decodeCheck(b *decode.Block) Check {
	b.Open(checkSchema)
	check := Check{
		Ignore:     decodeIgnored(b.Arg("ignore")),
		WrongGPU:   decode.OneOf(b.Arg("wrong_gpu"), WrongGPUWarn, []string{WrongGPUWarn, WrongGPUStop}),
		AfterStart: decode.Bool(b.Arg("after_start"), true),
	}
	check.Severity = decodeSeverities(b.Arg("severity"), check.Ignore)
	if !check.AfterStart {
		b.Arg("wrong_gpu").NoEffect("Without effect", "wrong_gpu is about what is seen of ranks that run, and after_start = false has nobody look.")
	}
	return check
}

// doubt reports findings about values of the job file as the check block wants it.
func (c Check) doubt(f *expr.Evaluator) library.Doubt {
	return func(code string, at hcl.Range, title, format string, args ...any) {
		switch {
		case slices.Contains(c.Ignore, code):
		case c.Severity[code] == codes.Fail:
			f.Error(at, title, format+" The check block has %s refuse the job.", append(args, code)...)
		default:
			f.Warn(at, title, format, args...)
		}
	}
}

// decodeIgnored is a list of codes, each once.
func decodeIgnored(a *decode.Arg) (found []string) {
	for _, e := range decode.Texts(a, "ignore is a list of codes such as [\"pcie_narrow\"]", "The code of a finding") {
		name, _ := e.Word()
		switch {
		case !isCode(e, name, e.At):
		case slices.Contains(found, name):
			e.Warn("Repeated code", "%s is ignored already.", name)
		default:
			found = append(found, name)
		}
	}
	return found
}

// isCode reports codes that there are not.
func isCode(a *decode.Arg, name string, at hcl.Range) bool {
	if _, known := codes.Find(name); known {
		return true
	}
	a.ErrorAt(at, "Unknown code", "%q: There is no finding with that code.%s muster check --help lists them.", name, text.DidYouMean(name, codes.Names()))
	return false
}

func decodeSeverities(a *decode.Arg, ignored []string) map[string]codes.Severity {
	entries, ok := a.Entries("Repeated code", "%s has a severity at %s already. Give each code one.")
	if !ok {
		if a.IsSet() {
			a.Error("Wrong type", "severity is an object of codes and severities, not %s: write { pcie_narrow = \"fail\" }.", a.Describe())
		}
		return nil
	}
	found := map[string]codes.Severity{}
	for _, e := range entries {
		if !isCode(e.Value, e.Name, e.At) {
			continue
		}
		if s, ok := decodeSeverity(e); ok {
			found[e.Name] = s
		}
		if slices.Contains(ignored, e.Name) {
			a.WarnAt(e.At, "Without effect", "%s is ignored, so it needs no severity.", e.Name)
		}
	}
	return found
}

func decodeSeverity(e decode.Entry) (codes.Severity, bool) {
	word, _ := e.Value.Word()
	if slices.Contains(codes.Severities, codes.Severity(word)) || e.Value.Wrong() {
		return codes.Severity(word), !e.Value.Wrong()
	}
	var words []string
	for _, s := range codes.Severities {
		words = append(words, string(s))
	}
	hint := text.DidYouMean(word, words)
	switch strings.ToLower(word) {
	case "error", "stop", "refuse", "fatal":
		hint = ` Did you mean "fail"?`
	case "ignore", "none", "off":
		hint = fmt.Sprintf(" Write ignore = [%q].", e.Name)
	}
	e.Value.ErrorAt(e.At, "Invalid severity", "The severity of %s cannot be %s.%s It is one of \"%s\".", e.Name, e.Value.Describe(), hint, strings.Join(words, `", "`))
	return "", false
}
