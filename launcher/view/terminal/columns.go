package terminal

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// Columns are a table that leaves some of them out where a terminal is too narrow for all.
type Columns []column

type column struct {
	title string
	// keep says how much the column matters, and differs: the least is left out first.
	keep  int
	cells []string
}

// Add adds a column, whose cells are one a line.
func (t *Columns) Add(title string, keep int, cells []string) {
	*t = append(*t, column{title, keep, cells})
}

const (
	betweenColumns = 2
	// maxElastic is how much of its last column a table asks room for: what does not fit of
	// that is cut.
	maxElastic = 16
)

// width is how wide a column is.
func (c column) width() int {
	width := text.Width(c.title)
	for _, cell := range c.cells {
		width = max(width, text.Width(cell))
	}
	return width
}

// needs is how much room they ask for.
func (t Columns) needs() int {
	sum := -betweenColumns
	for i, c := range t {
		width := c.width()
		if i == len(t)-1 {
			width = min(width, max(maxElastic, text.Width(c.title)))
		}
		sum += width + betweenColumns
	}
	return sum
}

// fit parts the columns in those that fit into a width, 0 for any, and the titles of the
// others. The most important one always fits.
func (t Columns) fit(width int) (kept Columns, without []string) {
	kept = slices.Clone(t)
	for width > 0 && len(kept) > 1 && kept.needs() > width {
		least := slices.MinFunc(kept, func(a, b column) int { return cmp.Compare(a.keep, b.keep) })
		without = append(without, least.title)
		kept = slices.DeleteFunc(kept, func(c column) bool { return c.keep == least.keep })
	}
	return kept, without
}

// Text is the table within a width, with a line about what was left out.
func (t Columns) Text(width int) []byte {
	var b bytes.Buffer
	kept, without := t.fit(width)
	widths := make([]int, len(kept))
	for i, c := range kept {
		widths[i] = c.width()
	}
	for row := -1; row < len(t[0].cells); row++ {
		var line strings.Builder
		for i, c := range kept {
			cell := c.title
			if row >= 0 {
				cell = c.cells[row]
			}
			line.WriteString(cell + strings.Repeat(" ", widths[i]+betweenColumns-text.Width(cell)))
		}
		fmt.Fprintln(&b, Cut(strings.TrimRight(line.String(), " "), width))
	}
	if len(without) > 0 {
		b.Write(Paragraph(fmt.Sprintf("no room at %d columns for %s", width, strings.Join(without, ", ")), "", width))
	}
	return b.Bytes()
}
