package diagnostic

import (
	"bufio"
	"fmt"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Columns counts text, which is one line, as HCL counts columns: in characters as
// people see them.
func Columns(text string) int {
	scanner := hcl.NewRangeScanner([]byte(text), "", bufio.ScanLines)
	if !scanner.Scan() {
		return 0
	}
	return scanner.Range().End.Column - 1
}

// cutLine cuts a line, which begins at byte lineStart of the file, before and
// after the part of the range that lies on it.
func cutLine(line string, lineStart int, at hcl.Range) (before, marked, after string) {
	start := min(max(at.Start.Byte-lineStart, 0), len(line))
	end := min(max(at.End.Byte-lineStart, start), len(line))
	return line[:start], line[start:end], line[end:]
}

// cutLeft is the end of a line, at most room cells with an ellipsis for the rest.
func cutLeft(line string, room int) string {
	return text.TruncateLeft(line, room)
}

// visible makes text safe for a terminal: tabs are four spaces, other control
// characters are written out.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\t':
			b.WriteString("    ")
		case r == '\n' || unicode.IsPrint(r) || unicode.Is(unicode.Mn, r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "<%U>", r)
		}
	}
	return b.String()
}
