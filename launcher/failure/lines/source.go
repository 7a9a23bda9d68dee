package lines

import (
	"strings"

	"github.com/muster-dev/muster/launcher/failure/pattern"
)

// quoting is where a voice is within a traceback: below a frame Python quotes the program's
// own text. What stands there was written by the programmer and did not happen.
type quoting struct {
	column int  // where the frame's File stands
	open   bool // the lines that follow may be quoted
	first  bool // no line has followed the frame yet
}

var (
	// frameTail is a frame from its File on.
	frameTail = pattern.New(`^File "[^"]{1,400}", line [0-9]{1,9}(?:, in .{1,200})?$`)
	// groupMargin stands in front of the frames of an exception group.
	groupMargin = pattern.New(`^[ +|-]*\| `)
)

// step takes the next line of the voice, and tells whether it is quoted text.
func (q *quoting) step(text string) bool {
	text = withoutMargin(text)
	if column := frameColumn(text); column >= 0 {
		*q = quoting{column: column, open: true, first: true}
		return false
	}
	bare := strings.TrimSpace(text)
	switch {
	case !q.open:
		return false
	case bare == "": // within a statement of several lines
		return true
	case strings.HasPrefix(bare, traceHead):
		q.open = false
		return false
	}
	quoted := q.below(text)
	other := q.first && exceptionForm.FindString(text) == ""
	// Collectors that trim lines leave the one line of text that a frame has nearly always.
	// Elsewhere it is a word of another thread, and the text follows it.
	q.open, q.first = quoted || other && q.column > 0, false
	return quoted || other && q.column == 0
}

// below is whether a line stands deeper than the frame, as only text and its markers do:
// the column counts, as some collectors put their own words in front.
func (q *quoting) below(text string) bool {
	const deeper = 2
	if indent := len(text) - len(strings.TrimLeft(text, " \t")); indent > q.column {
		return true
	}
	end := q.column + deeper
	return q.column >= deeper && len(text) > end && strings.TrimSpace(text[q.column-deeper:end]) == ""
}

// frameColumn is where a frame begins in its line, -1 where the line is none. Before it
// stand blanks, or a collector's words and blanks.
func frameColumn(text string) int {
	column := strings.Index(text, `File "`)
	if column < 0 || !frameTail.MatchString(text[column:]) {
		return -1
	}
	if before := text[:column]; strings.TrimSpace(before) != "" && !strings.HasSuffix(before, "  ") {
		return -1
	}
	return column
}

// withoutMargin has blanks in place of the bars of an exception group.
func withoutMargin(text string) string {
	if !strings.Contains(text, "|") {
		return text
	}
	margin := groupMargin.FindString(text)
	return strings.Repeat(" ", len(margin)) + text[len(margin):]
}
