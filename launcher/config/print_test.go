package config

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

const printedFile = `job "x" {
	command = ["x"]
  hosts "ssh" {
    names = ["漢字", "node1", "node1"]
  }
  setup = "${` + "\x1b[31m" + `"
}
`

// TestPrintedErrors: what a user sees, in a golden file.
func TestPrintedErrors(t *testing.T) {
	var b strings.Builder
	for _, text := range []string{
		printedFile,
		"job \"x\" {\n\tcommand = [\"python\", \"a b\",\t${HOME}, \"--x=${HOME}\"]\n  env = { A = [\"é\", \"漢字\", var.x], LONG = \"" +
			strings.Repeat("long ", 60) + "\", RANK = \"" + strings.Repeat("text ", 60) + "\" }\n}\n",
		"\ufeffjob \"x\" {\r\n  lease = 30\r\n  ports = <<EOT\r\nx\r\nEOT\r\n}\r\n",
	} {
		src := Source{Filename: "job.hcl", Text: []byte(text), Vars: map[string]string{"confg": "1"}}
		_, diags := src.Evaluate()
		for _, width := range []int{0, 60} {
			if err := WriteDiagnostics(&b, src, diags, width, false); err != nil {
				t.Fatal(err)
			}
			b.WriteString("--------\n")
		}
	}
	compareGolden(t, "testdata/printed.txt", []byte(b.String()))
}

func TestPrintedErrorsHaveNoControlCharacters(t *testing.T) {
	src := Source{Filename: "a\x1b[2Jb", Text: []byte("job \"\x1b]0;x\x07\" {\n}\n\x1b[31mx = 1 \u202e\n")}
	_, diags := src.Evaluate()
	text := printed(src, diags)
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }); i >= 0 {
		t.Errorf("%q has a control character", text[i:])
	}
}

func TestPrintedColor(t *testing.T) {
	var b strings.Builder
	src := Source{Filename: "job.hcl", Text: []byte("x = 1\n")}
	_, diags := src.Evaluate()
	if err := WriteDiagnostics(&b, src, diags, 80, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[1;31mError\x1b[0m: ") {
		t.Errorf("got %q", b.String())
	}
}

// TestPrintedPlaces: places outside the text print without a crash.
func TestPrintedPlaces(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte("x = 1\n")}
	for _, at := range []hcl.Range{
		{Filename: "other.hcl"},
		{Filename: "job.hcl"},
		{Filename: "job.hcl", Start: hcl.Pos{Line: 99, Column: 1, Byte: 500}},
		{Filename: "job.hcl", Start: hcl.Pos{Line: 1, Column: 99, Byte: 500}},
		{Filename: "job.hcl", Start: hcl.Pos{Line: 1, Column: 3, Byte: 2}, End: hcl.Pos{Line: 1, Column: 1, Byte: 0}},
	} {
		printed(src, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "x", Subject: &at}})
	}
}

func TestManyErrorsAreCut(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte(strings.Repeat("block {}\n", 5_000))}
	_, diags := src.Evaluate()
	if text := printed(src, diags); !strings.Contains(text, " more are not shown.") || len(text) > 100_000 {
		t.Errorf("%d bytes", len(text))
	}
}
