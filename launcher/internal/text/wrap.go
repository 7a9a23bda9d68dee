package text

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Width is how many cells of a terminal a text takes: two for CJK and emoji, none for colours.
func Width(s string) int { return ansi.StringWidth(s) }

// Truncate cuts a line to a width in cells, with a sign that it was cut.
func Truncate(line string, width int) string { return ansi.Truncate(line, width, "…") }

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
