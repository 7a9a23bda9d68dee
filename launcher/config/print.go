package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// maxPrinted bounds what one job file can fill a terminal with.
const maxPrinted = 100

// Diagnostics are what is wrong with a job file, or to be known of it, with places.
type Diagnostics = hcl.Diagnostics

// WriteDiagnostics writes diagnostics for people: what is wrong, where with the
// line and the place in it, and what to do. width is the terminal's, 0 where
// there is none: then nothing is wrapped.
func WriteDiagnostics(w io.Writer, src Source, diags hcl.Diagnostics, width int, color bool) error {
	p := printer{lines: strings.Split(string(src.plainText()), "\n"), src: src, width: width, color: color}
	if len(diags) > 0 {
		p.secret = secretLines(src)
	}
	for i, diag := range diags {
		if i == maxPrinted {
			fmt.Fprintf(&p.out, "%d more are not shown.\n", len(diags)-i)
			break
		}
		p.diagnostic(diag)
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

type printer struct {
	out   strings.Builder
	lines []string
	src   Source
	width int
	color bool
	// secret are lines that are not shown.
	secret map[int]bool
}

func (p *printer) diagnostic(diag *hcl.Diagnostic) {
	kind, paint := "Error", red
	if diag.Severity == hcl.DiagWarning {
		kind, paint = "Warning", yellow
	}
	fmt.Fprintf(&p.out, "%s: %s\n", p.paint(paint, kind), p.paint(bold, visible(diag.Summary)))
	if diag.Subject != nil {
		fmt.Fprintf(&p.out, "  at %s\n", visible(diag.Subject.String()))
		p.snippet(*diag.Subject, paint)
	}
	if second, ok := diag.Extra.(secondPlace); ok {
		p.snippet(second.at, blue)
	}
	if diag.Detail != "" {
		p.out.WriteString(p.wrapped(visible(diag.Detail)))
	}
	p.out.WriteByte('\n')
}

// snippet shows the line where the range begins, with the range marked below it.
func (p *printer) snippet(at hcl.Range, paint string) {
	if at.Filename != p.src.Filename || at.Start.Line < 1 || at.Start.Line > len(p.lines) {
		return
	}
	if p.secret[at.Start.Line] {
		fmt.Fprintf(&p.out, "  %5d | (not shown: of a sensitive variable)\n", at.Start.Line)
		return
	}
	start := 0
	for _, line := range p.lines[:at.Start.Line-1] {
		start += len(line) + 1
	}
	before, marked, after := cutLine(p.lines[at.Start.Line-1], start, at)
	before, marked, after = p.window(strings.TrimPrefix(before, string(utf8BOM)), marked, after)
	fmt.Fprintf(&p.out, "  %5d | %s%s%s\n", at.Start.Line, before, p.paint(paint, marked), after)
	fmt.Fprintf(&p.out, "        | %s%s\n", strings.Repeat(" ", cells(before)),
		p.paint(paint, strings.Repeat("^", max(1, cells(marked)))))
}

// window cuts a long line to what fits around the marked part.
func (p *printer) window(before, marked, after string) (string, string, string) {
	before, marked, after = visible(before), visible(marked), visible(after)
	room := 200
	if p.width > 0 {
		room = max(p.width-10, 30)
	}
	marked = cutRight(marked, room)
	spare := room - cells(marked)
	if cells(before)+cells(after) > spare {
		before = cutLeft(before, max(spare-cells(after), spare*2/3))
		after = cutRight(after, max(spare-cells(before), 0))
	}
	return before, marked, after
}

func (p *printer) wrapped(detail string) string {
	if p.width > 0 {
		detail = text.Wrap(detail, max(p.width-2, 30))
	}
	return "  " + strings.ReplaceAll(detail, "\n", "\n  ") + "\n"
}

const (
	bold   = "\x1b[1m"
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	blue   = "\x1b[34m"
)

func (p *printer) paint(code, text string) string {
	if !p.color || text == "" {
		return text
	}
	return code + text + "\x1b[0m"
}
