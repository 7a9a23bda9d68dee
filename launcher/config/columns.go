package config

import (
	"bufio"
	"fmt"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/text/width"
)

// columns counts text, which is one line, as HCL counts columns: in characters as
// people see them.
func columns(text string) int {
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

// cells is the width of text in a terminal.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cutRight is the start of text, at most room cells with an ellipsis for the rest.
func cutRight(text string, room int) string {
	if cells(text) <= room {
		return text
	}
	used := 0
	for i, r := range text {
		if used += runeCells(r); used >= room {
			return text[:i] + "…"
		}
	}
	return text
}

// cutLeft is the end of text, as cutRight is its start.
func cutLeft(text string, room int) string {
	over := cells(text) - room
	if over <= 0 {
		return text
	}
	for i, r := range text {
		if over < 0 {
			return "…" + text[i:]
		}
		over -= runeCells(r)
	}
	return "…"
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
