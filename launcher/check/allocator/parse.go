package allocator

import (
	"fmt"
	"strings"
)

// Pair is one setting of a string as torch reads it, without white space.
type Pair struct {
	Key, Value string
	At         Span // of both in the text
	ValueAt    Span
}

// Span is a part of a text, in bytes.
type Span struct{ Start, End int }

// ParseError is where a text is no list of settings.
type ParseError struct {
	At      Span
	Problem string
}

func (e *ParseError) Error() string { return fmt.Sprintf("at %d: %s", e.At.Start, e.Problem) }

// Parse reads a string such as "max_split_size_mb:128,expandable_segments:True", as torch
// does: white space anywhere is left out, a comma may stand at the end, the last of several
// equal keys wins (see Get), no text is no setting. What torch refuses or, since 2.10,
// reads as something else is an error. Keys and values are not looked at: see Check.
func Parse(text string) (Pairs, error) {
	p := &parser{tokens: tokens(text), end: len(text)}
	var pairs Pairs
	for p.next < len(p.tokens) {
		pair, err := p.pair()
		if err != nil {
			return pairs, err
		}
		pairs = append(pairs, pair)
		if p.next == len(p.tokens) {
			break
		}
		if comma := p.take(); comma.text != "," {
			return pairs, &ParseError{comma.at, fmt.Sprintf("%q where a comma is to separate two settings", comma.text)}
		}
	}
	return pairs, nil
}

// Pairs are settings in the order of their text.
type Pairs []Pair

// Get is what is in force for a key.
func (p Pairs) Get(key string) (value string, set bool) {
	for _, pair := range p {
		if pair.Key == key {
			value, set = pair.Value, true
		}
	}
	return value, set
}

// Format is the text of the pairs.
func (p Pairs) Format() string {
	parts := make([]string, len(p))
	for i, pair := range p {
		parts[i] = pair.Key + ":" + pair.Value
	}
	return strings.Join(parts, ",")
}

// token is a word or a sign of its own.
type token struct {
	text string
	at   Span
}

func isSign(c byte) bool { return strings.IndexByte(",:[]", c) >= 0 }

// isSpace is as in C.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// tokens are what torch's tokenizer makes of a text: white space does not even end a word.
func tokens(text string) []token {
	var found []token
	inWord := false
	for i := range len(text) {
		c, at := text[i], Span{i, i + 1}
		switch {
		case isSign(c):
			found = append(found, token{text[i : i+1], at})
			inWord = false
		case isSpace(c):
		case inWord:
			last := &found[len(found)-1]
			last.text += text[i : i+1]
			last.at.End = at.End
		default:
			found = append(found, token{text[i : i+1], at})
			inWord = true
		}
	}
	return found
}

type parser struct {
	tokens []token
	next   int
	end    int // of the text
}

// take is the next token; at the end of the text one without text.
func (p *parser) take() token {
	if p.next == len(p.tokens) {
		return token{at: Span{p.end, p.end}}
	}
	p.next++
	return p.tokens[p.next-1]
}

// word takes a token that is none of the signs.
func (p *parser) word(what string) (token, error) {
	t := p.take()
	if t.text == "" {
		return t, &ParseError{t.at, "the text ends where " + what + " is to stand"}
	}
	if isSign(t.text[0]) {
		return t, &ParseError{t.at, fmt.Sprintf("%q where %s is to stand", t.text, what)}
	}
	return t, nil
}

func (p *parser) pair() (Pair, error) {
	key, err := p.word("a setting")
	if err != nil {
		return Pair{}, err
	}
	if colon := p.take(); colon.text != ":" {
		problem := fmt.Sprintf("%s has no value: write %s:VALUE", key.text, key.text)
		if name, value, is := strings.Cut(key.text, "="); is {
			problem = fmt.Sprintf("a setting is written with a colon: %s:%s", name, value)
		}
		return Pair{}, &ParseError{key.at, problem}
	}
	value, err := p.value(key.text)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Key: key.text, Value: value.text, At: Span{key.at.Start, value.at.End}, ValueAt: value.at}, nil
}

// value is a word, or a list in brackets as one.
func (p *parser) value(of string) (token, error) {
	if p.next == len(p.tokens) || p.tokens[p.next].text != "[" {
		return p.word("the value of " + of)
	}
	list := p.take()
	for {
		t := p.take()
		switch t.text {
		case "":
			return list, &ParseError{list.at, "the list of " + of + " has no closing bracket"}
		case "[":
			return list, &ParseError{t.at, "a list within the list of " + of}
		}
		list.text += t.text
		list.at.End = t.at.End
		if t.text == "]" {
			return list, nil
		}
	}
}
