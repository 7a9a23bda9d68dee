package bootstrap

import (
	"bufio"
	"io"
	"strings"
	"sync"
)

// Lines finds the launcher's lines in what a host prints.
type Lines struct {
	in   *bufio.Reader
	word string
	junk head // what stood before and between them
}

// lineSize bounds a line; longer ones are not the launcher's.
const lineSize = 64 << 10

// NewLines reads a host's words; word begins the launcher's lines.
func NewLines(r io.Reader, word string) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, lineSize), word: word + " "}
}

// Next returns the verb of the next line and what follows it. The line may
// follow other text that had no line end.
func (l *Lines) Next() (verb, rest string, err error) {
	for {
		line, err := l.in.ReadSlice('\n')
		before, after, found := strings.Cut(string(line), l.word)
		l.junk.add(before)
		if found && err == nil {
			verb, rest, _ = strings.Cut(strings.TrimRight(after, "\r\n"), " ")
			return verb, rest, nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return "", "", err
		}
	}
}

// Junk is the beginning of what was printed beside the lines. It may be asked for
// while Next runs.
func (l *Lines) Junk() string { return l.junk.text() }

// Rest is what follows the last line.
func (l *Lines) Rest() io.Reader { return l.in }

// junkSize is how much of it is kept, for an error message.
const junkSize = 4 << 10

// head keeps the beginning of a text.
type head struct {
	mu   sync.Mutex
	kept string
}

func (h *head) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept += text[:min(len(text), junkSize-len(h.kept))]
}

func (h *head) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept
}
