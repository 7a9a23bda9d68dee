// Package diagnostic orders and prints what is wrong with a job file.
package diagnostic

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// MaxPrinted bounds what one job file can fill a terminal with.
const MaxPrinted = 100

// SecondPlace is the Extra of a diagnostic that another place explains.
type SecondPlace hcl.Range

// Subject is where a diagnostic points; zero where nowhere.
func Subject(diag *hcl.Diagnostic) hcl.Range {
	if diag.Subject == nil {
		return hcl.Range{}
	}
	return *diag.Subject
}

// Quoted is text as a job file has it, where it is not long.
func Quoted(text string) string {
	if len(text) > 60 {
		return `"..."`
	}
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(text))
}

// Sorted are diagnostics by place, without repetitions.
func Sorted(diags hcl.Diagnostics) hcl.Diagnostics {
	type key struct {
		severity        hcl.DiagnosticSeverity
		summary, detail string
		at              hcl.Range
	}
	seen := map[key]bool{}
	var kept hcl.Diagnostics
	for _, diag := range diags {
		k := key{diag.Severity, diag.Summary, diag.Detail, Subject(diag)}
		if !seen[k] {
			seen[k] = true
			kept = append(kept, diag)
		}
	}
	slices.SortStableFunc(kept, func(a, b *hcl.Diagnostic) int {
		x, y := Subject(a).Start, Subject(b).Start
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return kept
}

// Printer writes diagnostics for people: what is wrong, where with the line and the place in
// it, and what to do.
type Printer struct {
	Filename string
	Text     []byte
	Secret   map[int]bool // lines that are not shown
	Width    int          // of the terminal, 0 where there is none: then nothing is wrapped
	Color    bool

	out   strings.Builder
	lines []string
}

// Write writes all diagnostics, or as many as people read.
func (p *Printer) Write(w io.Writer, diags hcl.Diagnostics) error {
	p.lines = strings.Split(string(p.Text), "\n")
	for i, diag := range diags {
		if i == MaxPrinted {
			fmt.Fprintf(&p.out, "%d more are not shown.\n", len(diags)-i)
			break
		}
		p.diagnostic(diag)
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

func (p *Printer) diagnostic(diag *hcl.Diagnostic) {
	kind, paint := "Error", red
	if diag.Severity == hcl.DiagWarning {
		kind, paint = "Warning", yellow
	}
	fmt.Fprintf(&p.out, "%s: %s\n", p.paint(paint, kind), p.paint(bold, visible(diag.Summary)))
	if diag.Subject != nil {
		fmt.Fprintf(&p.out, "  at %s\n", visible(diag.Subject.String()))
		p.snippet(*diag.Subject, paint)
	}
	if second, ok := diag.Extra.(SecondPlace); ok {
		p.snippet(hcl.Range(second), blue)
	}
	if diag.Detail != "" {
		p.out.WriteString(p.wrapped(visible(diag.Detail)))
	}
	p.out.WriteByte('\n')
}

// snippet shows the line where the range begins, with the range marked below it.
func (p *Printer) snippet(at hcl.Range, paint string) {
	if at.Filename != p.Filename || at.Start.Line < 1 || at.Start.Line > len(p.lines) {
		return
	}
	if p.Secret[at.Start.Line] {
		fmt.Fprintf(&p.out, "  %5d | (not shown: of a sensitive variable)\n", at.Start.Line)
		return
	}
	start := 0
	for _, line := range p.lines[:at.Start.Line-1] {
		start += len(line) + 1
	}
	before, marked, after := cutLine(p.lines[at.Start.Line-1], start, at)
	before, marked, after = p.window(strings.TrimPrefix(before, "\ufeff"), marked, after)
	fmt.Fprintf(&p.out, "  %5d | %s%s%s\n", at.Start.Line, before, p.paint(paint, marked), after)
	fmt.Fprintf(&p.out, "        | %s%s\n", strings.Repeat(" ", text.Width(before)),
		p.paint(paint, strings.Repeat("^", max(1, text.Width(marked)))))
}

// window cuts a long line to what fits around the marked part.
func (p *Printer) window(before, marked, after string) (string, string, string) {
	before, marked, after = visible(before), visible(marked), visible(after)
	room := 200
	if p.Width > 0 {
		room = max(p.Width-10, 30)
	}
	marked = text.Truncate(marked, room)
	spare := room - text.Width(marked)
	if text.Width(before)+text.Width(after) > spare {
		before = cutLeft(before, max(spare-text.Width(after), spare*2/3))
		after = text.Truncate(after, max(spare-text.Width(before), 0))
	}
	return before, marked, after
}

func (p *Printer) wrapped(detail string) string {
	if p.Width > 0 {
		detail = text.Wrap(detail, max(p.Width-2, 30))
	}
	return "  " + strings.ReplaceAll(detail, "\n", "\n  ") + "\n"
}

const (
	bold   = "\x1b[1m"
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	blue   = "\x1b[34m"
)

func (p *Printer) paint(code, text string) string {
	if !p.Color || text == "" {
		return text
	}
	return code + text + "\x1b[0m"
}
