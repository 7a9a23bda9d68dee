package allocator

import (
	"fmt"
	"strings"
)

// Pair is one setting of a string as torch reads it.
type Pair struct{ Key, Value string }

// Pairs are settings in the order of their text.
type Pairs []Pair

// Get is what is in force for a key: the last of several equal ones wins.
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

// ParseError is where a text, without its white space, is no list of settings.
type ParseError struct {
	At      int
	Problem string
}

func (e *ParseError) Error() string { return fmt.Sprintf("at %d: %s", e.At, e.Problem) }

// space is white space as in C.
var space = strings.NewReplacer(" ", "", "\t", "", "\n", "", "\v", "", "\f", "", "\r", "")

// Parse reads a string such as "max_split_size_mb:128,expandable_segments:True", as torch does: white space anywhere is
// left out, even within a word; a comma may stand at the end; no text is no setting. What torch refuses or, since 2.10,
// reads as something else is an error. Keys and values are not looked at: see Check.
func Parse(text string) (Pairs, error) {
	p := &parser{text: space.Replace(text)}
	var pairs Pairs
	for p.at < len(p.text) {
		pair, problem := p.pair()
		if problem == "" && p.at < len(p.text) && p.text[p.at] != ',' {
			word := p.word()
			if word == "" {
				word = p.text[p.at : p.at+1]
			}
			pairs = append(pairs, pair)
			problem = fmt.Sprintf("%q where a comma is to separate two settings", word)
		}
		if problem != "" {
			return pairs, &ParseError{p.at, problem}
		}
		pairs = append(pairs, pair)
		p.at++
	}
	return pairs, nil
}

type parser struct {
	text string
	at   int
}

const signs = ",:[]"

// word is what stands before the next sign; it is not taken.
func (p *parser) word() string {
	rest := p.text[p.at:]
	if end := strings.IndexAny(rest, signs); end >= 0 {
		return rest[:end]
	}
	return rest
}

// expected says what stands where a word is to.
func (p *parser) expected(what string) string {
	if p.at == len(p.text) {
		return "the text ends where " + what + " is to stand"
	}
	return fmt.Sprintf("%q where %s is to stand", p.text[p.at:p.at+1], what)
}

func (p *parser) pair() (pair Pair, problem string) {
	pair.Key = p.word()
	if pair.Key == "" {
		return pair, p.expected("a setting")
	}
	if rest := p.text[p.at+len(pair.Key):]; !strings.HasPrefix(rest, ":") {
		if name, value, is := strings.Cut(pair.Key, "="); is {
			return pair, fmt.Sprintf("a setting is written with a colon: %s:%s", name, value)
		}
		return pair, fmt.Sprintf("%s has no value: write %s:VALUE", pair.Key, pair.Key)
	}
	p.at += len(pair.Key) + 1
	if strings.HasPrefix(p.text[p.at:], "[") {
		pair.Value, problem = p.list(pair.Key)
	} else if pair.Value = p.word(); pair.Value == "" {
		problem = p.expected("the value of " + pair.Key)
	}
	if problem == "" {
		p.at += len(pair.Value)
	}
	return pair, problem
}

// list is what stands in brackets, with these.
func (p *parser) list(of string) (list, problem string) {
	rest := p.text[p.at:]
	end := strings.IndexByte(rest, ']')
	switch inner := strings.IndexByte(rest[1:], '['); {
	case inner >= 0 && (end < 0 || inner+1 < end):
		p.at += inner + 1
		return "", "a list within the list of " + of
	case end < 0:
		return "", "the list of " + of + " has no closing bracket"
	}
	return rest[:end+1], ""
}
