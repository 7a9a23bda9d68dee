package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	Test       string
	ImportPath string // of what is being built
	Output     string
}

// name is a test, or a package where Test is empty.
type name struct{ Package, Test string }

// tally counts tests and keeps what those that have not passed yet have said.
type tally struct {
	to                      io.Writer
	said                    map[name]*strings.Builder
	built                   map[string]*strings.Builder // what the compiler said, by what it built
	passed, failed, skipped int
	skips                   []string
}

func newTally(to io.Writer) *tally {
	return &tally{to: to, said: map[name]*strings.Builder{}, built: map[string]*strings.Builder{}}
}

func (t *tally) take(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "output":
		if e.Test == "" && isClosing(e.Output) {
			fmt.Fprint(t.to, e.Output)
			return
		}
		add(t.said, n, e.Output)
	case "build-output":
		add(t.built, e.ImportPath, e.Output)
	case "build-fail":
		fmt.Fprint(t.to, t.built[e.ImportPath])
	case "pass", "skip", "fail":
		t.end(n, e.Action)
	}
}

func add[K comparable](to map[K]*strings.Builder, key K, text string) {
	if to[key] == nil {
		to[key] = &strings.Builder{}
	}
	to[key].WriteString(text)
}

// isClosing reports whether a package's own output is the line that says how it ended.
func isClosing(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t")
}

func (t *tally) end(n name, how string) {
	if n.Test == "" {
		t.endPackage(n.Package, how)
		return
	}
	switch how {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		t.skips = append(t.skips, fmt.Sprintf("%s %s\n%s", n.Package, n.Test, t.said[n]))
	case "fail":
		t.failed++
		t.show(n)
	}
	delete(t.said, n)
}

// endPackage shows, of one that failed, also what it said outside of tests, and the
// tests that a panic or the time limit has left without an end.
func (t *tally) endPackage(path, how string) {
	names := slices.SortedFunc(maps.Keys(t.said), func(a, b name) int { return strings.Compare(a.Test, b.Test) })
	for _, n := range names {
		if n.Package != path {
			continue
		}
		if how == "fail" {
			t.show(n)
		}
		delete(t.said, n)
	}
}

// most bounds what one test may print here; the end matters.
const most = 64 << 10

func (t *tally) show(n name) {
	if t.said[n] == nil {
		return
	}
	text := t.said[n].String()
	if cut := len(text) - most; cut > 0 {
		text = fmt.Sprintf("... %d bytes left out ...\n%s", cut, text[cut:])
	}
	fmt.Fprint(t.to, text)
}

// close prints the sum and returns the exit status.
func (t *tally) close(noSkip bool) int {
	for _, skip := range t.skips {
		fmt.Fprintln(t.to, "skipped:", strings.TrimRight(skip, "\n"))
	}
	fmt.Fprintf(t.to, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if noSkip && t.skipped > 0 {
		fmt.Fprintln(t.to, "gotest: root skips no test")
	}
	if t.failed > 0 || noSkip && t.skipped > 0 {
		return 1
	}
	return 0
}
