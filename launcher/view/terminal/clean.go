package terminal

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Clean makes a worker's line harmless for a terminal: colours stay, other control
// sequences and bytes that are not UTF-8 are shown and not obeyed.
func Clean(line []byte) []byte {
	if isPlain(line) {
		return line
	}
	var out bytes.Buffer
	for len(line) > 0 {
		if n := colour(line); n > 0 {
			out.Write(line[:n])
			line = line[n:]
			continue
		}
		r, n := utf8.DecodeRune(line)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, "\\x%02x", line[0])
		case r == '\t':
			out.WriteByte('\t')
		case r < 0x20 || r == 0x7f:
			out.WriteString("^" + string(rune(r^0x40)))
		case r >= 0x80 && r < 0xa0:
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.Write(line[:n])
		}
		line = line[n:]
	}
	return out.Bytes()
}

func isPlain(line []byte) bool {
	for _, b := range line {
		if b < 0x20 || b >= 0x7f {
			return false
		}
	}
	return true
}

// colour returns the length of the colour sequence (SGR of ECMA-48) that line begins
// with, 0 if it does not.
func colour(line []byte) int {
	if !bytes.HasPrefix(line, []byte("\x1b[")) {
		return 0
	}
	for i := 2; i < len(line); i++ {
		switch b := line[i]; {
		case b == 'm':
			return i + 1
		case b != ';' && b != ':' && (b < '0' || b > '9'):
			return 0
		}
	}
	return 0
}

// CleanLines makes each line of a text harmless.
func CleanLines(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		out = append(append(out, Clean(bytes.TrimSuffix(line, []byte("\n")))...), '\n')
	}
	return out
}
