package sshconfig

import (
	"errors"
	"strings"
)

const blanks = " \t\r\f\v"

// splitKeyword cuts a line into its keyword and the text that follows: blanks,
// or one "=" between blanks, stand between them.
func splitKeyword(line string) (keyword, rest string) {
	i := strings.IndexAny(line, blanks+"=")
	if i < 0 {
		return strings.ToLower(line), ""
	}
	keyword, rest = line[:i], strings.TrimLeft(line[i:], blanks)
	if after, ok := strings.CutPrefix(rest, "="); ok {
		rest = strings.TrimLeft(after, blanks)
	}
	return strings.ToLower(keyword), rest
}

// words splits text as ssh does: at blanks, with single and double quotes,
// backslash before a quote, a backslash or (outside quotes) a space, and a
// comment from a "#" that begins a word.
func words(text string) ([]string, error) {
	var out []string
	for {
		text = strings.TrimLeft(text, blanks)
		if text == "" || text[0] == '#' {
			return out, nil
		}
		word, rest, err := nextWord(text)
		if err != nil {
			return nil, err
		}
		out, text = append(out, word), rest
	}
}

func nextWord(text string) (word, rest string, err error) {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && escapes(text[i+1], quote):
			i++
			b.WriteByte(text[i])
		case quote == 0 && strings.IndexByte(blanks, c) >= 0:
			return b.String(), text[i:], nil
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", "", errors.New("a quote is not closed")
	}
	return b.String(), "", nil
}

func escapes(c, quote byte) bool {
	return c == '\\' || c == '"' || c == '\'' || (quote == 0 && c == ' ')
}
