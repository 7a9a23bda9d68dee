// Package terminal is where muster's output goes: two streams that may be one terminal, with a
// status line, tables whose columns line up, and lines that a terminal can be trusted with.
package terminal

import (
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
	turn sync.Mutex // held while standard output is written, which lasts for as long as its reader likes

	mu     sync.Mutex // taken after turn
	Out    Stream
	Err    Stream
	status string
	shown  bool
	left   func() // what is to be done when standard output takes nothing any more, or nil
}

// Stream is one of a screen's two streams.
type Stream struct {
	W          io.Writer
	IsTerminal bool
	HasColour  bool
	closed     error // why nothing is written any more: the reader has gone; nil: it reads
	missing    error // why something could not be written, as on a full disk: the first reason
}

// NewScreen takes the standard streams. NO_COLOR (no-color.org) turns colour off.
func NewScreen(out, err *os.File) *Screen {
	return &Screen{Out: streamOf(out), Err: streamOf(err)}
}

func streamOf(f *os.File) Stream {
	terminal := term.IsTerminal(int(f.Fd()))
	return Stream{W: f, IsTerminal: terminal, HasColour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Width is the width in columns of the terminal that muster's own lines go to, 80 where it
// is not known.
func (s *Screen) Width() int {
	width, _ := s.Err.Size()
	return width
}

// OutWidth is the width of the terminal that standard output is; 0: it is none, and lines
// may have any length.
func (s *Screen) OutWidth() int { return s.Out.Width() }

// Width is the width of the terminal; 0: it is none, and lines may have any length.
func (st *Stream) Width() int {
	if !st.IsTerminal {
		return 0
	}
	width, _ := st.Size()
	return width
}

// Size is a terminal's, in columns and lines, the usual one where it is not known.
func (st *Stream) Size() (width, height int) {
	if f, ok := st.W.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}

// Colour reports whether muster's own lines may be coloured.
func (s *Screen) Colour() bool { return s.Err.HasColour }

// Write writes a whole number of lines to a stream; the status line makes room. A
// Stream whose reader has gone is given up: the run goes on without it.
func (s *Screen) Write(to *Stream, text []byte) {
	if to == &s.Out && !(s.Out.IsTerminal && s.Err.IsTerminal) {
		s.writeOut(text)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide()
	s.emit(to, text)
	s.show()
}

// writeOut writes to a standard output that is not the terminal of the status line. Nobody
// else waits for its reader: what there is to say is said meanwhile, and muster can leave.
func (s *Screen) writeOut(text []byte) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.Left() != nil {
		return
	}
	_, err := s.Out.W.Write(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(&s.Out, err)
	s.hide() // behind a pipe the text may go to the same terminal
	s.show()
}

func (s *Screen) emit(to *Stream, text []byte) {
	if to.closed != nil {
		return
	}
	_, err := to.W.Write(text)
	s.failed(to, err)
}

// failed takes in how a write has ended. What fails for another reason than that the reader
// has gone may work again later.
func (s *Screen) failed(to *Stream, err error) {
	switch {
	case err == nil:
		return
	case errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed):
		to.closed = err
	case to.missing != nil:
		return
	default:
		to.missing = err
	}
	if to == &s.Out && s.left != nil {
		s.left()
	}
}

// Missing is the error by which something was first lost on its way to standard output,
// though that has a reader; nil: nothing was.
func (s *Screen) Missing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Out.missing
}

// WhenLeft has something done, which must not take time, when standard output has no reader
// any more, or cannot be written: what is only made for it need not go on.
func (s *Screen) WhenLeft(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = do
}

// Left is the error by which standard output was found to have no reader any more; nil: it
// has one.
func (s *Screen) Left() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Out.closed
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
		s.emit(&s.Err, []byte("\r\x1b[K"))
		s.shown = false
	}
}

func (s *Screen) show() {
	if s.status == "" || !s.Err.IsTerminal {
		return
	}
	s.emit(&s.Err, []byte(Cut(s.status, s.Width()-1)))
	s.shown = true
}

// Say writes a line of muster's own.
func (s *Screen) Say(format string, args ...any) {
	s.Write(&s.Err, fmt.Appendf(nil, format+"\n", args...))
}

// Paint wraps text in a colour where the Stream shows colours.
func (st *Stream) Paint(code, text string) string {
	if !st.HasColour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Emit writes to standard output as it is: it is the terminal of a live table.
func (s *Screen) Emit(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(&s.Out, []byte(text))
}

// Colours are readable on dark and light backgrounds.
var Colours = []string{"36", "32", "35", "34", "33", "96", "92", "95"}

// IsTerminal reports whether standard output can show a table again and again.
func (s *Screen) IsTerminal() bool { return s.Out.IsTerminal }
