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

// tail keeps the last lines of what is written to it, and how the last crash began, which
// a stack pushes out.
type tail struct {
	mu    sync.Mutex
	lines []string
	crash []string
	open  []byte // a line without end
}

// Write never fails.
func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for piece := range bytes.Lines(data) {
		text, whole := bytes.CutSuffix(piece, []byte("\n"))
		t.open = append(t.open, text[:min(len(text), tailWidth-len(t.open))]...)
		if whole {
			t.add(t.open)
			t.open = t.open[:0]
		}
	}
	return len(data), nil
}

func (t *tail) add(line []byte) {
	text := strings.TrimSpace(strings.ToValidUTF8(string(line), "?"))
	if text == "" {
		return
	}
	if len(t.lines) == tailLines {
		t.lines = slices.Delete(t.lines, 0, 1)
	}
	t.lines = append(t.lines, text)
	if crashSays.MatchString(text) {
		t.crash = nil
	} else if t.crash == nil || len(t.crash) == quoted {
		return
	}
	t.crash = append(t.crash, text)
}

// last returns the lines so far.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.Clone(t.lines)
	if len(t.crash) > 0 && !slices.Contains(lines, t.crash[0]) {
		lines = slices.Concat(t.crash, lines)
	}
	if len(t.open) > 0 {
		lines = append(lines, strings.ToValidUTF8(string(t.open), "?"))
	}
	return lines
}
