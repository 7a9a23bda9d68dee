package hostlist

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// expandRanges expands every [...] of the fragment, the last one fastest. kind
// names the fragment in messages; valid is what may stand outside brackets.
func (f fragment) expandRanges(kind string, valid func(byte) bool) ([]string, *Error) {
	names := []string{""}
	length := 0 // outside brackets
	for i := 0; i < len(f.text); {
		c := f.text[i]
		r, size := utf8.DecodeRuneInString(f.text[i:])
		choices := []string{f.text[i : i+size]}
		length++
		switch {
		case c == '[':
			var err *Error
			if choices, size, err = f.slice(i, len(f.text)).choices(); err != nil {
				return nil, err
			}
			length--
		case c == ']':
			return nil, f.problem(i, 1, "\"]\" without \"[\"")
		case length > maxHostName:
			return nil, f.problem(i, len(f.text)-i, "a %s has at most %d characters", kind, maxHostName)
		case !valid(c):
			return nil, f.problem(i, size, "a %s cannot have %q", kind, r)
		}
		if len(names)*len(choices) > Max {
			return nil, f.wrong("there can be at most %d hosts, these ranges make more", Max)
		}
		names = product(names, choices)
		i += size
	}
	return names, nil
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

// choices are what the [...] at the start stands for, which is so many bytes long.
func (f fragment) choices() (choices []string, length int, err *Error) {
	end := strings.IndexByte(f.text, ']')
	if end < 0 {
		return nil, 0, f.wrong("\"[\" without \"]\"")
	}
	all, inner := f.slice(0, end+1), f.slice(1, end)
	if i := strings.IndexByte(inner.text, '['); i >= 0 {
		return nil, 0, inner.problem(i, 1, "a range cannot be within a range")
	}
	if strings.TrimSpace(inner.text) == "" {
		return nil, 0, all.wrong("the range is empty: write for example [1-4]")
	}
	for _, item := range splitAtCommas(inner) {
		numbers, err := item.numbers()
		if err != nil {
			return nil, 0, err
		}
		if choices = append(choices, numbers...); len(choices) > Max {
			return nil, 0, all.wrong("there can be at most %d hosts, this range makes more", Max)
		}
	}
	return choices, end + 1, nil
}

// maxDigits keeps the numbers of a range within an int64.
const maxDigits = 18

var (
	notInRange = regexp.MustCompile(`[^0-9-]`)
	rangeForm  = regexp.MustCompile(`^([0-9]+)(?:-([0-9]+))?$`)
)

// numbers expands N or N-M. Zeros that pad N are kept.
func (f fragment) numbers() ([]string, *Error) {
	parts := rangeForm.FindStringSubmatch(f.text)
	switch at := notInRange.FindStringIndex(f.text); {
	case f.text == "":
		return nil, f.problem(0, 1, "a number is missing in the range")
	case at != nil:
		r, size := utf8.DecodeRuneInString(f.text[at[0]:])
		return nil, f.problem(at[0], size, "a range is made of numbers, as in [1-4] or [1,3]; it cannot have %q", r)
	case parts == nil:
		return nil, f.wrong("%q is not a range: write for example [1-4]", f.text)
	case len(parts[1]) > maxDigits || len(parts[2]) > maxDigits:
		return nil, f.wrong("a number of a range has at most %d digits", maxDigits)
	case parts[2] == "":
		return []string{parts[1]}, nil
	}
	low, high := parts[1], parts[2]
	first, _ := strconv.ParseInt(low, 10, 64)
	last, _ := strconv.ParseInt(high, 10, 64)
	padding := 0 // that leading zeros ask for
	if low[0] == '0' {
		padding = len(low)
	}
	switch {
	case last < first:
		return nil, f.wrong("the range runs backwards: write %s-%s", high, low)
	case last-first >= Max:
		return nil, f.wrong("there can be at most %d hosts, this range makes more", Max)
	case high[0] == '0' && len(high) > 1 && len(high) != len(low):
		return nil, f.wrong("the two ends are padded with zeros differently: write %0*d-%s", len(high), first, high)
	}
	numbers := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		numbers = append(numbers, fmt.Sprintf("%0*d", padding, n))
	}
	return numbers, nil
}
