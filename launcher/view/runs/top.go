package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/samples"
)

// Top is a table of a run's ranks that a terminal shows again and again, on a screen of
// its own (xterm's alternate one), so that what was there before comes back.
type Top struct {
	screen *terminal.Screen
	run    history.Run
	shown  bool
	last   []byte
}

// NewTop shows nothing yet.
func NewTop(screen *terminal.Screen, run history.Run) *Top { return &Top{screen: screen, run: run} }

const (
	topBegin = "\x1b[?1049h\x1b[?25l" // the other screen, no cursor
	topEnd   = "\x1b[?25h\x1b[?1049l"
	topHome  = "\x1b[H"
	restOff  = "\x1b[K" // of the line
	belowOff = "\x1b[J"
)

// Show shows where the run stands now, in place of what was shown before.
func (t *Top) Show(s event.State, now time.Time) error {
	var b bytes.Buffer
	width, height := t.screen.Out.Size()
	if err := Status(&b, Standing{Run: t.run, State: s, Now: now, Width: width, Brief: true}); err != nil {
		return err
	}
	t.last = b.Bytes()
	if !t.shown {
		t.screen.Emit(topBegin)
		t.shown = true
	}
	t.screen.Emit(topHome + string(fitted(t.last, width, height)) + belowOff)
	return t.screen.Left()
}

// End gives the screen back and leaves the last table on it.
func (t *Top) End() {
	if t.shown {
		t.screen.Emit(topEnd)
		t.shown = false
		t.screen.Write(&t.screen.Out, t.last)
	}
}

// fitted is a text cut to a terminal; the last line says how to leave, and what is left out.
func fitted(text []byte, width, height int) []byte {
	var b bytes.Buffer
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	room := max(1, height-1)
	for _, line := range lines[:min(len(lines), room)] {
		b.WriteString(terminal.Cut(string(line), width) + restOff + "\r\n")
	}
	last := "q leaves; the run goes on"
	if left := len(lines) - room; left > 0 {
		last = fmt.Sprintf("no room for %s; %s", plural.Of(left, "more line"), last)
	}
	b.WriteString(terminal.Cut(last, max(1, width-1)) + restOff)
	return b.Bytes()
}

// StatusLine writes where a run stands as StatusJSON does, on one line.
func StatusLine(w io.Writer, s Standing) error {
	return json.NewEncoder(w).Encode(statusOf(s))
}

// SeriesLine writes a period of what was kept of a rank as a line of JSON.
func SeriesLine(w io.Writer, host string, line samples.Line) error {
	return json.NewEncoder(w).Encode(struct {
		Version int    `json:"version"`
		Host    string `json:"host"`
		samples.Line
	}{1, host, line})
}
