package text

import (
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// cells counts cells of a terminal, of which colours take none. Its tables are static: a library
// that builds them when a program starts costs more than all else that muster does before main.
var cells = displaywidth.Options{ControlSequences: true}

// Width is how many cells of a terminal a text takes: two for CJK and emoji, none for colours.
func Width(s string) int { return cells.String(s) }

// Truncate cuts a line to a width in cells, with a sign that it was cut.
func Truncate(line string, width int) string { return cells.TruncateString(line, width, "…") }

// TruncateLeft is the end of a line in at most width cells, with a sign that it was cut.
func TruncateLeft(line string, width int) string {
	if Width(line) <= width {
		return line
	}
	left := Width(line) + 1 - width // in cells
	for g := cells.StringGraphemes(line); left > 0 && g.Next(); {
		left -= g.Width()
		line = line[len(g.Value()):]
	}
	return "…" + line
}

// Wrap breaks lines at spaces so that each takes at most width cells, unless one word is wider.
func Wrap(s string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		column := 0
		for i, word := range strings.SplitAfter(line, " ") {
			bare := Width(strings.TrimRight(word, " \n"))
			if i > 0 && column+bare > width {
				trimmed := strings.TrimRight(b.String(), " ")
				b.Reset()
				b.WriteString(trimmed + "\n")
				column = 0
			}
			b.WriteString(word)
			column += Width(word)
		}
	}
	return b.String()
}
