package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// TestLimits: a job file that asks for more than a machine has is an error, at
// once and with little memory.
func TestLimits(t *testing.T) {
	nested := "rank.local"
	for i := range 8 {
		nested = fmt.Sprintf("[for v%d in range(1000) : %s]", i, nested)
	}
	loops := "1"
	for i := range 8 {
		loops = fmt.Sprintf("length([for v%d in range(1000) : %s])", i, loops)
	}
	tripled := `"0123456789"`
	for i := range 20 {
		tripled = fmt.Sprintf("[for v%d in [%s] : \"${v%d}${v%d}${v%d}\"][0]", i, tripled, i, i, i)
	}
	squared := "1e300"
	for i := range 20 {
		squared = fmt.Sprintf("[for v%d in [%s] : v%d * v%d * v%d][0]", i, squared, i, i, i)
	}
	shared := `["abcdefgh"]`
	for i := range 20 {
		shared = fmt.Sprintf("[for v%d in [%s] : [v%d, v%d, v%d, v%d]][0]", i, shared, i, i, i, i)
	}
	replaced := `"aaaaaaaaaa"`
	for range 20 {
		replaced = fmt.Sprintf(`replace(%s, "a", "aaaaaaaaaa")`, replaced)
	}
	for name, expr := range map[string]string{
		"range":              "jsonencode(range(1e12))",
		"nested for":         "jsonencode(" + nested + ")",
		"for without values": loops,
		"failing for":        "jsonencode([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a.x]]])",
		"empty for":          `"${length([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c if false]]])}"`,
		"repeated template":  tripled,
		"template for":       `"%{for a in range(1000)}%{for b in range(1000)}%{for c in range(1000)}x%{endfor}%{endfor}%{endfor}"`,
		"long string parts":  `[for s in ["` + strings.Repeat("x", 25_000) + `"] : "` + strings.Repeat("${s}", 25_000) + `"][0]`,
		"squared number":     `"${` + squared + `}"`,
		"huge literal":       "1e999999999",
		"huger literal":      "1e99999999999999999999",
		"huge key":           "jsonencode({ 1e999999999 = 1 })",
		"huge computed key":  "jsonencode({ (1e300 * 1e300 * 1e300 * 1e300 * 1e300 * 1e300) = 1 })",
		"huge from text":     `"${tonumber("1e999999999")}"`,
		"huge from JSON":     `"${jsondecode("1e999999999")}"`,
		"infinite":           `"${1 / 0}"`,
		"shared lists":       "jsonencode(" + shared + ")",
		"replace":            replaced,
		"replace once":       `replace("` + strings.Repeat("a", 25_000) + `", "a", "` + strings.Repeat("b", 25_000) + `")`,
		"join":               `join("` + strings.Repeat("x", 25_000) + `", [for i in range(1000) : "a"])`,
		"format width":       `format("%999999999d", 1)`,
		"format precision":   `format("%.999999999f", 0.1)`,
		"deep JSON":          `jsondecode("` + strings.Repeat("[", 100_000) + `")`,
		"brackets":           strings.Repeat("[", 25_000) + strings.Repeat("]", 25_000),
		"stray brackets":     "1 " + strings.Repeat(")", 400_000) + "}\n A = " + strings.Repeat("(", 400_000),
		"parentheses":        strings.Repeat("(", 25_000) + "1",
		"interpolations":     strings.Repeat(`"${`, 25_000),
		"negations":          strings.Repeat("!", 25_000) + "true",
		"minuses":            strings.Repeat("-", 25_000) + "1",
		"sums":               "1" + strings.Repeat("+1", 25_000),
		"conditions":         strings.Repeat("true?1:", 25_000) + "1",
		"indexes":            "[1]" + strings.Repeat("[0]", 25_000),
		"directives":         `"` + strings.Repeat("%{if true}", 25_000) + `"`,
		"attributes":         "var" + strings.Repeat(".a", 25_000),
		"legacy indexes":     "var" + strings.Repeat(".0", 25_000),
		"splats":             "[1]" + strings.Repeat("[*]", 25_000),
		"calls":              strings.Repeat("lower(", 25_000),
		"objects":            strings.Repeat("{a=", 25_000),
		"heredocs":           strings.Repeat("<<A\n${", 25_000),
	} {
		t.Run(name, func(t *testing.T) { checkLimit(t, expr) })
	}
}

// checkLimit evaluates a job file with the expression in env.
func checkLimit(t *testing.T, expr string) {
	t.Parallel()
	text := fmt.Sprintf("job \"x\" {\n hosts \"local\" {}\n command = [\"x\"]\n env = { A = %s }\n}\n", expr)
	src := Source{Filename: "x.hcl", Text: []byte(text)}
	start := time.Now()
	_, diags := src.Evaluate()
	if !diags.HasErrors() {
		t.Error("no error")
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	checkPrint(t, src, diags)
}

func checkPrint(t *testing.T, src Source, diags hcl.Diagnostics) {
	t.Helper()
	if text := printed(src, diags); len(text) > 1<<20 {
		t.Errorf("%d bytes of diagnostics", len(text))
	}
}

// TestManyNames: looking for slips among many names takes no long time.
func TestManyNames(t *testing.T) {
	var blocks, variables, uses strings.Builder
	for i := range 3_000 {
		fmt.Fprintf(&blocks, "host \"gqu%05d\" {\n}\n", i)
		fmt.Fprintf(&variables, "variable \"name%d\" {\n}\n", i)
		fmt.Fprintf(&uses, "var.naem%d,", i)
	}
	for name, text := range map[string]string{
		"hosts":     "job \"x\" {\n command = [\"x\"]\n hosts \"ssh\" {\n names = [\"gpu[0001-4096]\"]\n" + blocks.String() + "}\n}\n",
		"variables": variables.String() + "job \"x\" {\n command = [" + uses.String() + "]\n hosts \"local\" {}\n}\n",
	} {
		src := Source{Filename: "x.hcl", Text: []byte(text)}
		start := time.Now()
		_, diags := src.Evaluate()
		if took := time.Since(start); len(diags) < 3_000 || took > 20*time.Second {
			t.Errorf("%s: %d diagnostics in %s", name, len(diags), took)
		} else {
			t.Logf("%s: %s", name, took)
		}
		checkPrint(t, src, diags)
	}
}
