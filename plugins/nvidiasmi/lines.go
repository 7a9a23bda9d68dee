package nvidiasmi

import (
	"bytes"
	"iter"
	"strings"
	"unicode/utf8"
)

// printable puts blanks in place of what is no text: bytes that are no UTF-8, which gRPC
// refuses, and control characters, which XML and terminals do not bear.
func printable(output []byte) []byte {
	return bytes.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return r
		case r < ' ' || r == 0x7F || r == utf8.RuneError || r == 0xFFFE || r == 0xFFFF:
			return ' '
		default:
			return r
		}
	}, output)
}

// lines are the lines of an output without the blanks around them.
func lines(output []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(printable(output))) {
			if !yield(strings.TrimSpace(line)) {
				return
			}
		}
	}
}
