package expr

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// TestLimits: a job file that asks for more than a machine has is an error, at
// once and with little memory.
func TestLimits(t *testing.T) {
	nested := "1"
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
	for name, expr := range map[string]string{
		"range":              "jsonencode(range(1e12))",
		"nested for":         "jsonencode(" + nested + ")",
		"for without values": loops,
		"failing for":        "jsonencode([for a in range(100) : [for b in range(100) : [for c in range(100) : a.x]]])",
		"empty for":          `"${length([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c if false]]])}"`,
		"repeated template":  tripled,
		"template for":       `"%{for a in range(1000)}%{for b in range(1000)}%{for c in range(1000)}x%{endfor}%{endfor}%{endfor}"`,
		"squared number":     `"${` + squared + `}"`,
		"huge literal":       "1e999999999",
		"huger literal":      "1e99999999999999999999",
		"huge key":           "jsonencode({ 1e999999999 = 1 })",
		"huge from text":     `"${tonumber("1e999999999")}"`,
		"huge from JSON":     `"${jsondecode("1e999999999")}"`,
		"infinite":           `"${1 / 0}"`,
		"shared lists":       "jsonencode(" + shared + ")",
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

// checkLimit evaluates an argument.
func checkLimit(t *testing.T, expr string) {
	t.Parallel()
	f := New(NewScope("x.hcl", []byte(expr)))
	f.MaxTime = 300 * time.Millisecond
	start := time.Now()
	if problem := CheckShape([]byte(expr), "x.hcl"); problem != nil {
		return
	}
	parsed, diags := hclsyntax.ParseExpression([]byte(expr), "x.hcl", hcl.InitialPos)
	f.Diags = diags
	f.Prepare(parsed)
	f.Value(parsed)
	if !f.Diagnostics().HasErrors() {
		t.Error("no error")
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}
