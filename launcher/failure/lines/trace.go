package lines

import (
	"strings"

	"github.com/muster-dev/muster/launcher/failure/pattern"
)

// Trace is one of Python's tracebacks, or the message of an exception without one.
type Trace struct {
	First, Last int    // places of its first line and of its exception's, as Line.At has them
	Type        string // such as torch.OutOfMemoryError; "" where the text ends before it
	Message     string // the first line after the type
	Frames      []Frame
	// Linked is set where it came of the trace before it.
	Linked bool
	// Noise is set where Python said that nobody waits for it: it ends no program.
	Noise bool
	// Thread is the name of the thread that it ended, "" for the main one.
	Thread string
}

// Frame is a place in a program.
type Frame struct {
	File     string
	Line     string
	Function string // "" where there is none, as in a file that cannot be parsed
}

var (
	frameForm = pattern.New(`^(\s*)File "([^"]{1,400})", line ([0-9]{1,9})(?:, in (.{1,200}))?$`)
	// exceptionForm is a type by its dotted name; code lines are indented more.
	exceptionForm = pattern.New(`^(\s*)((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}(?:<[^>]{0,60}>)?)(?:: ?(.*))?$`)
	// bareForm is an exception without a trace: its type says what it is.
	bareForm = pattern.New(`^\s{0,12}((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception)): (.*)$`)
	thread   = pattern.New(`^Exception in thread ([^ (:]{1,60})`)
)

const (
	traceHead = "Traceback (most recent call last)"
	// maxFrames bounds what is kept of a trace, as recursion writes a thousand.
	maxFrames = 64
)

// reader goes through the lines of a voice.
type reader struct {
	traces []Trace
	open   *Trace
	indent int  // of the open trace
	linked bool // what follows came of what was before
	noise  int  // where Python last said that nobody waits for what follows
	thread string
}

// noiseReach is how many lines may lie between that and the trace.
const noiseReach = 3

func (r *reader) isNoise(at int) bool { return at-r.noise <= noiseReach }

// Traces are the tracebacks of a voice in their order.
func (v *Voice) Traces() []Trace {
	r := &reader{noise: -noiseReach - 1}
	for _, line := range v.Lines {
		r.line(line)
	}
	r.close()
	return r.traces
}

func (r *reader) line(line Line) {
	text := line.Text
	if line.Source {
		return
	}
	if at := strings.Index(text, traceHead); at >= 0 {
		r.begin(line.At, at)
		return
	}
	if strings.Contains(text, `File "`) {
		if m := frameForm.FindStringSubmatch(text); m != nil {
			r.frame(line.At, m)
			return
		}
	}
	if r.open != nil {
		r.inTrace(line)
		return
	}
	r.between(line)
}

func (r *reader) begin(at, indent int) {
	r.close()
	r.open = &Trace{First: at, Last: at, Linked: r.linked, Noise: r.isNoise(at), Thread: r.thread}
	r.indent = indent
	r.linked, r.thread = false, ""
}

func (r *reader) frame(at int, m []string) {
	if r.open == nil { // the head is cut off, or Python has written none
		r.begin(at, max(0, len(m[1])-2))
	}
	if len(r.open.Frames) == maxFrames {
		r.open.Frames = r.open.Frames[1:]
	}
	r.open.Frames = append(r.open.Frames, Frame{m[2], m[3], m[4]})
	r.open.Last = at
}

// inTrace takes a line that is code, or the exception at the trace's end.
func (r *reader) inTrace(line Line) {
	var m []string
	if indent := len(line.Text) - len(strings.TrimLeft(line.Text, " \t")); indent <= r.indent {
		m = exceptionForm.FindStringSubmatch(line.Text)
	}
	if m == nil || !isException(m[2], m[3], len(r.open.Frames) > 0) {
		if line.At-r.open.Last > 60 { // what follows is no trace any more
			r.close()
		}
		return
	}
	r.open.Type, r.open.Message, r.open.Last = m[2], m[3], line.At
	r.close()
}

// isException is whether a line at the trace's own indentation ends it. Most types say
// what they are; others are told by the message after them.
func isException(name, message string, framed bool) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, end := range []string{"Error", "Exception", "Interrupt", "Exit", "Warning", "Timeout", "Failure", "StopIteration"} {
		if strings.HasSuffix(last, end) {
			return true
		}
	}
	if name == "socket.timeout" { // up to Python 3.9
		return true
	}
	return framed && (message != "" || strings.Contains(name, ".")) && last[0] >= 'A' && last[0] <= 'Z'
}

func (r *reader) between(line Line) {
	text := strings.TrimSpace(line.Text)
	switch {
	case strings.HasPrefix(text, "The above exception was the direct cause of"), strings.HasPrefix(text, "During handling of the above exception"):
		r.linked = len(r.traces) > 0
	case strings.HasPrefix(text, "Exception ignored in"):
		r.noise = line.At
	case strings.HasPrefix(text, "Exception in thread "):
		if m := thread.FindStringSubmatch(text); m != nil {
			r.thread = m[1]
		}
	case strings.Contains(text, "Error: ") || strings.Contains(text, "Exception: "):
		if m := bareForm.FindStringSubmatch(line.Text); m != nil {
			r.traces = append(r.traces, Trace{
				First: line.At, Last: line.At, Type: m[1], Message: m[2], Linked: r.linked, Noise: r.isNoise(line.At),
			})
			r.linked = false
		}
	}
}

func (r *reader) close() {
	if r.open != nil && (r.open.Type != "" || len(r.open.Frames) > 0) {
		r.traces = append(r.traces, *r.open)
	}
	r.open = nil
}

// Innermost is the deepest frame that is the user's own: not of an installed package, nor
// of Python itself. The deepest of all where there is none.
func (t Trace) Innermost() (frame Frame, own bool) {
	for i := len(t.Frames) - 1; i >= 0; i-- {
		if !installed(t.Frames[i].File) {
			return t.Frames[i], true
		}
	}
	if n := len(t.Frames); n > 0 {
		return t.Frames[n-1], false
	}
	return Frame{}, false
}

var ofPython = pattern.New(`/lib(?:64)?/python[0-9.]+/|/(?:site|dist)-packages/|^<(?:frozen|__array_function__)`)

func installed(file string) bool { return ofPython.MatchString(file) }

// String is FILE:LINE, and the function.
func (f Frame) String() string {
	if f.File == "" {
		return ""
	}
	name := f.File[strings.LastIndexByte(f.File, '/')+1:]
	if f.Function == "" || f.Function == "<module>" {
		return name + ":" + f.Line
	}
	return name + ":" + f.Line + " in " + f.Function
}
