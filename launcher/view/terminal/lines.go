package terminal

import (
	"bytes"
	"time"
)

// maxLine is where a line without an end is cut, so that a worker cannot fill memory.
const maxLine = 256 << 10

// progressEvery is how often a line that redraws itself (carriage return) is shown.
const progressEvery = time.Second

// Lines puts the pieces of one Stream together to lines. A carriage return redraws the
// line: of the versions of a progress bar one a second is shown, and the last.
type Lines struct {
	pending  []byte
	redraw   bool // a carriage return came; what follows replaces pending
	shown    time.Time
	progress bool // pending was shown already
}

// Add takes a piece in and hands each line that is complete to show, without its end.
func (l *Lines) Add(data []byte, now time.Time, show func(line []byte)) {
	for len(data) > 0 {
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			l.grow(data)
			break
		}
		if i > 0 {
			l.grow(data[:i])
		}
		if data[i] == '\n' {
			l.finish(show)
		} else {
			l.redrawn(now, show)
		}
		data = data[i+1:]
	}
	if len(l.pending) > maxLine {
		l.finish(show)
	}
}

func (l *Lines) grow(data []byte) {
	if l.redraw {
		l.pending, l.redraw, l.progress = l.pending[:0], false, false
	}
	l.pending = append(l.pending, data...)
}

func (l *Lines) redrawn(now time.Time, show func([]byte)) {
	l.redraw = true
	if len(l.pending) > 0 && !l.progress && now.Sub(l.shown) >= progressEvery {
		// Seen once, the final newline need not show it again.
		l.shown, l.progress = now, true
		show(l.pending)
	}
}

// finish ends the line, and at the end of the Stream what has no end of its own.
func (l *Lines) finish(show func([]byte)) {
	if !l.progress {
		show(l.pending)
	}
	l.pending, l.redraw, l.progress = l.pending[:0], false, false
}

// End shows what is left at the end of the stream.
func (l *Lines) End(show func([]byte)) {
	if len(l.pending) > 0 {
		l.finish(show)
	}
}
