package external

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is a class of plugin failures, as far as callers treat them differently.
type Kind string

// The kinds. After any of them but KindClosed the next call tries again.
const (
	KindFailed      Kind = "failed"      // it does not start, hangs, dies or answers nonsense
	KindRefused     Kind = "refused"     // it returned an error of its own
	KindUnsupported Kind = "unsupported" // it does not implement the call
	KindClosed      Kind = "closed"      // Close was called
)

// Error says what is wrong with a plugin and what to do.
type Error struct {
	Name   string // of the plugin
	Path   string // of its program
	Kind   Kind
	Text   string
	Stderr []string // its last lines
	Err    error    // the cause, if any
}

func (e *Error) Error() string {
	text := fmt.Sprintf("plugin %s (%s): %s", e.Name, e.Path, e.Text)
	if words := telling(e.Stderr); words != "" {
		text += "; its last words: " + words
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// quotedLines is how many lines of a plugin an error shows.
const quotedLines = 3

// crashStart matches the first line of a Go program's crash. What follows may be long.
var crashStart = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `)

// chatter is go-plugin's own log, in a plugin that gives it no logger.
var chatter = regexp.MustCompile(`^\{"@level":"(trace|debug)"`)

// telling picks the lines of stderr that explain most.
func telling(lines []string) string {
	lines = slices.DeleteFunc(slices.Clone(lines), chatter.MatchString)
	from := max(0, len(lines)-quotedLines)
	if crash := slices.IndexFunc(lines, crashStart.MatchString); crash >= 0 {
		from = crash
	}
	var words []string
	for _, line := range lines[from:min(from+quotedLines, len(lines))] {
		words = append(words, quote(line))
	}
	return strings.Join(words, " ")
}

// maxQuote is how much of a text an error shows.
const maxQuote = 300

func quote(text string) string { return strconv.Quote(cut(text, maxQuote)) }

func cut(text string, longest int) string {
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
