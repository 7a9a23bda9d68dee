package view

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// Screen is where output goes: two streams that may be one terminal, with a status
// line at the bottom of the terminal while something is being done.
type Screen struct {
	mu     sync.Mutex
	out    stream
	err    stream
	status string
	shown  bool
}

type stream struct {
	w        io.Writer
	terminal bool
	colour   bool
	closed   bool
}

// NewScreen takes the standard streams. NO_COLOR (no-color.org) turns colour off.
func NewScreen(out, err *os.File) *Screen {
	return &Screen{out: streamOf(out), err: streamOf(err)}
}

func streamOf(f *os.File) stream {
	terminal := term.IsTerminal(int(f.Fd()))
	return stream{w: f, terminal: terminal, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Width is the terminal's width in columns, 80 where it is not known.
func (s *Screen) Width() int {
	if f, ok := s.err.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Colour reports whether muster's own lines may be coloured.
func (s *Screen) Colour() bool { return s.err.colour }

// write writes a whole number of lines to a stream; the status line makes room. A
// stream whose reader has gone is given up: the run goes on without it.
func (s *Screen) write(to *stream, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide()
	s.emit(to, text)
	s.show()
}

func (s *Screen) emit(to *stream, text []byte) {
	if to.closed {
		return
	}
	if _, err := to.w.Write(text); errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		to.closed = true
	}
}

// Status sets the status line; "" removes it. It is only shown in a terminal.
func (s *Screen) Status(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide()
	s.status = text
	s.show()
}

func (s *Screen) hide() {
	if s.shown {
		s.emit(&s.err, []byte("\r\x1b[K"))
		s.shown = false
	}
}

func (s *Screen) show() {
	if s.status == "" || !s.err.terminal {
		return
	}
	text := s.status
	if width := s.Width(); len(text) >= width {
		text = text[:width-1]
	}
	s.emit(&s.err, []byte(text))
	s.shown = true
}

// Say writes a line of muster's own.
func (s *Screen) Say(format string, args ...any) {
	s.write(&s.err, fmt.Appendf(nil, format+"\n", args...))
}

// paint wraps text in a colour where the stream shows colours.
func (st *stream) paint(code, text string) string {
	if !st.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// indent puts spaces before each line.
func indent(text []byte, by string) []byte {
	text = bytes.TrimRight(text, "\n")
	return append(append([]byte(by), bytes.ReplaceAll(text, []byte("\n"), []byte("\n"+by))...), '\n')
}
