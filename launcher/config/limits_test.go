package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
)

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
