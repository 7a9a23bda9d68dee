package hostlist

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// expandRanges expands every [...] of the fragment, the last one fastest. kind
// names the fragment in messages; valid is what may stand outside brackets.
func (f fragment) expandRanges(kind string, valid func(byte) bool) ([]string, *Error) {
	if i := outsideLimit(f.text); i >= 0 {
		return nil, f.problem(i, len(f.text)-i, "a %s has at most %d characters", kind, maxHostName)
	}
	names := []string{""}
	for rest := f; rest.text != ""; {
		literal, after, err := rest.literal(kind, valid)
		if err != nil {
			return nil, err
		}
		choices := []string{literal.text}
		if literal.text == "" {
			if choices, after, err = rest.choices(); err != nil {
				return nil, err
			}
		}
		if len(names)*len(choices) > Max {
			return nil, f.problem(0, len(f.text), "there can be at most %d hosts, these ranges make more", Max)
		}
		names = product(names, choices)
		rest = after
	}
	return names, nil
}

// outsideLimit is where the text outside brackets becomes too long, or -1.
func outsideLimit(text string) int {
	depth, length := 0, 0
	for i := range len(text) {
		switch {
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		case depth <= 0:
			length++
		}
		if length > maxHostName {
			return i
		}
	}
	return -1
}

func product(names, choices []string) []string {
	all := make([]string, 0, len(names)*len(choices))
	for _, name := range names {
		for _, choice := range choices {
			all = append(all, name+choice)
		}
	}
	return all
}

// literal is the text up to the next "[".
func (f fragment) literal(kind string, valid func(byte) bool) (literal, rest fragment, err *Error) {
	for i := range len(f.text) {
		switch c := f.text[i]; {
		case c == '[':
			return f.slice(0, i), f.slice(i, len(f.text)), nil
		case c == ']':
			return f, f, f.problem(i, 1, "\"]\" without \"[\"")
		case !valid(c):
			r, size := utf8.DecodeRuneInString(f.text[i:])
			return f, f, f.problem(i, size, "a %s cannot have %q", kind, r)
		}
	}
	return f, f.slice(len(f.text), len(f.text)), nil
}

// choices are what the [...] at the start stands for.
func (f fragment) choices() (choices []string, rest fragment, err *Error) {
	end := strings.IndexByte(f.text, ']')
	if end < 0 {
		return nil, f, f.problem(0, len(f.text), "\"[\" without \"]\"")
	}
	inner := f.slice(1, end)
	if i := strings.IndexByte(inner.text, '['); i >= 0 {
		return nil, f, inner.problem(i, 1, "a range cannot be within a range")
	}
	if strings.TrimSpace(inner.text) == "" {
		return nil, f, f.problem(0, end+1, "the range is empty: write for example [1-4]")
	}
	for _, item := range splitHosts(inner.text) {
		item.offset += inner.offset
		numbers, err := item.numbers()
		if err != nil {
			return nil, f, err
		}
		if choices = append(choices, numbers...); len(choices) > Max {
			return nil, f, f.problem(0, end+1, "there can be at most %d hosts, this range makes more", Max)
		}
	}
	return choices, f.slice(end+1, len(f.text)), nil
}

// maxDigits keeps the numbers of a range within an int64.
const maxDigits = 18

// numbers expands N or N-M. Zeros that pad N are kept.
func (f fragment) numbers() ([]string, *Error) {
	if err := f.checkNumbers(); err != nil {
		return nil, err
	}
	low, high, isRange := strings.Cut(f.text, "-")
	if !isRange {
		return []string{low}, nil
	}
	first, _ := strconv.ParseInt(low, 10, 64)
	last, _ := strconv.ParseInt(high, 10, 64)
	switch {
	case last < first:
		return nil, f.problem(0, len(f.text), "the range runs backwards: write %s-%s", high, low)
	case last-first >= Max:
		return nil, f.problem(0, len(f.text), "there can be at most %d hosts, this range makes more", Max)
	case high[0] == '0' && len(high) > 1 && len(high) != len(low):
		return nil, f.problem(0, len(f.text), "the two ends are padded with zeros differently: write %0*d-%s", len(high), first, high)
	}
	numbers := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		numbers = append(numbers, fmt.Sprintf("%0*d", padding(low), n))
	}
	return numbers, nil
}

// padding is the width that leading zeros ask for.
func padding(low string) int {
	if low[0] == '0' {
		return len(low)
	}
	return 0
}

// checkNumbers refuses what is neither N nor N-M.
func (f fragment) checkNumbers() *Error {
	if f.text == "" {
		return f.problem(0, 1, "a number is missing in the range")
	}
	for i := range len(f.text) {
		if c := f.text[i]; !isDigit(c) && c != '-' {
			r, size := utf8.DecodeRuneInString(f.text[i:])
			return f.problem(i, size, "a range is made of numbers, as in [1-4] or [1,3]; it cannot have %q", r)
		}
	}
	ends := strings.Split(f.text, "-")
	for _, end := range ends {
		switch {
		case end == "" || len(ends) > 2:
			return f.problem(0, len(f.text), "%q is not a range: write for example [1-4]", f.text)
		case len(end) > maxDigits:
			return f.problem(0, len(f.text), "a number of a range has at most %d digits", maxDigits)
		}
	}
	return nil
}
