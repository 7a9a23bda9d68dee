package external

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is a class of what can go wrong with a plugin.
type Kind string

// The kinds. After any of them but KindClosed the next call tries again.
const (
	KindNotThere    Kind = "not_there"   // no such file
	KindNotProgram  Kind = "not_program" // a folder, not executable, built for another machine
	KindChecksum    Kind = "checksum"    // not the program that the job file means
	KindLoader      Kind = "loader"      // this system's libraries are too old for it, or missing
	KindNotPlugin   Kind = "not_plugin"  // it is a program, but no plugin of muster
	KindVersion     Kind = "version"     // it speaks another version of the protocol
	KindExited      Kind = "exited"      // it ended instead of starting
	KindSlow        Kind = "slow"        // it has not started within the limit, and was killed
	KindCrashed     Kind = "crashed"     // it died when it was asked
	KindHung        Kind = "hung"        // it has not answered within the limit, and was killed
	KindStuck       Kind = "stuck"       // an earlier one was killed and is still there
	KindAnswer      Kind = "answer"      // what it answers makes no sense
	KindRefused     Kind = "refused"     // it says itself that it knows nothing
	KindUnsupported Kind = "unsupported" // it cannot do what it was asked for
	KindClosed      Kind = "closed"      // Close was called
	KindFailed      Kind = "failed"      // anything else
)

// Error says what is wrong with a plugin and what to do.
type Error struct {
	Name   string // of the plugin
	Path   string // of its program
	Kind   Kind
	Text   string
	Stderr []string // its last lines, where they may tell more
	Err    error    // what lies under it, if anything
}

func (e *Error) Error() string {
	text := fmt.Sprintf("plugin %s (%s): %s", e.Name, e.Path, e.Text)
	if words := telling(e.Stderr); words != "" {
		text += "; its last words: " + words
	}
	return text
}

// Unwrap returns what lies under the error.
func (e *Error) Unwrap() error { return e.Err }

// quoted is how many lines of a plugin an error shows.
const quoted = 3

// crashSays is how a Go program begins to say that it crashes. What follows may be long.
var crashSays = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `)

// chatter is go-plugin's own, in a plugin that gives it no logger.
var chatter = regexp.MustCompile(`^\{"@level":"(trace|debug)"`)

// telling picks the lines that tell most.
func telling(lines []string) string {
	lines = slices.DeleteFunc(slices.Clone(lines), chatter.MatchString)
	from := max(0, len(lines)-quoted)
	if crash := slices.IndexFunc(lines, crashSays.MatchString); crash >= 0 {
		from = crash
	}
	var words []string
	for _, line := range lines[from:min(from+quoted, len(lines))] {
		words = append(words, quote(line))
	}
	return strings.Join(words, " ")
}

// longestQuote is how much of a text an error shows.
const longestQuote = 300

func quote(text string) string { return strconv.Quote(cut(text, longestQuote)) }

func cut(text string, longest int) string {
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// loaderSays is how the dynamic loaders of glibc and musl, and NixOS's stand-in for one,
// say that a program cannot run here.
var loaderSays = regexp.MustCompile("version `[^']*' not found|error while loading shared libraries|symbol lookup error|" +
	`Error loading shared library|Error relocating .*: symbol not found|Could not start dynamically linked executable`)

// loaderLine finds the loader's complaint.
func loaderLine(lines []string) string {
	for _, line := range lines {
		if loaderSays.MatchString(line) {
			return line
		}
	}
	return ""
}
