package external

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

const (
	tailLines = 60
	tailWidth = 500 // of a line; what is longer is cut
)

// tail keeps the last lines of what is written to it, and of a crash the first ones, which a
// stack would push out.
type tail struct {
	mu     sync.Mutex
	lines  []string
	pinned int    // lines at the head that stay
	open   []byte // a line without end
}

// Write never fails.
func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for piece := range bytes.Lines(data) {
		text, whole := bytes.CutSuffix(piece, []byte("\n"))
		t.open = append(t.open, text[:min(len(text), tailWidth-len(t.open))]...)
		if whole {
			t.add(strings.TrimSpace(strings.ToValidUTF8(string(t.open), "?")))
			t.open = t.open[:0]
		}
	}
	return len(data), nil
}

func (t *tail) add(text string) {
	switch {
	case text == "":
		return
	case crashStart.MatchString(text):
		t.lines, t.pinned = nil, quotedLines
	case len(t.lines) == tailLines:
		t.lines = slices.Delete(t.lines, t.pinned, t.pinned+1)
	}
	t.lines = append(t.lines, text)
}

// last returns the lines so far.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.Clone(t.lines)
	if len(t.open) > 0 {
		lines = append(lines, strings.ToValidUTF8(string(t.open), "?"))
	}
	return lines
}
