package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// Cut is a line within a width, 0 for any; what was cut off shows.
func Cut(line string, width int) string {
	if width == 0 {
		return line
	}
	return text.Truncate(line, width)
}

// Indent puts spaces before each line.
func Indent(text []byte, by string) []byte {
	text = bytes.TrimRight(text, "\n")
	return append(append([]byte(by), bytes.ReplaceAll(text, []byte("\n"), []byte("\n"+by))...), '\n')
}

// Paragraph is a text within a width, 0 for any, behind spaces.
func Paragraph(s, by string, width int) []byte {
	if width > 0 {
		s = text.Wrap(s, max(width-len(by)-1, 30))
	}
	return Indent([]byte(s), by)
}

// Wrapped is a line within a width, 0 for any; what follows its first part is set back by four
// more than the line itself.
func Wrapped(line string, width int) []byte {
	s := strings.TrimLeft(line, " ")
	by := line[:len(line)-len(s)]
	if width == 0 || text.Width(line) <= width {
		return []byte(line + "\n")
	}
	s = text.Wrap(s, max(width-len(by)-4, 30))
	return []byte(by + strings.ReplaceAll(s, "\n", "\n"+by+"    ") + "\n")
}

// OrDash is a cell, with a sign where it is empty.
func OrDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// Table aligns lines whose cells end with tabs, by the cells of a terminal that they take.
type Table struct {
	bytes.Buffer
	w io.Writer
}

// NewTable returns a table that Flush writes to w.
func NewTable(w io.Writer) *Table { return &Table{w: w} }

// Flush writes the table.
func (t *Table) Flush() error {
	var widths []int
	var rows [][]string
	for line := range strings.Lines(t.String()) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		rows = append(rows, row)
		for i, cell := range row[:len(row)-1] {
			widths = append(widths, make([]int, max(0, i+1-len(widths)))...)
			widths[i] = max(widths[i], text.Width(cell))
		}
	}
	var b bytes.Buffer
	for _, row := range rows {
		last := len(row) - 1
		for i, cell := range row[:last] {
			b.WriteString(cell + strings.Repeat(" ", widths[i]+betweenColumns-text.Width(cell)))
		}
		b.WriteString(row[last] + "\n")
	}
	_, err := t.w.Write(b.Bytes())
	return err
}

// WriteTable writes rows, the titles first, without columns that have nothing but "-".
func WriteTable(w io.Writer, rows [][]string) {
	if len(rows) < 2 {
		return
	}
	t := NewTable(w)
	for _, row := range rows {
		var cells []string
		for c, cell := range row {
			if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[c] != "-" }) {
				cells = append(cells, cell)
			}
		}
		fmt.Fprintln(t, "  "+strings.Join(cells, "\t"))
	}
	_ = t.Flush() // into a buffer
}

// WriteJSON writes a value as people can read it.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
