package hang

import (
	"regexp"
	"slices"
	"strings"
)

// maxFrames is how many frames of a stack are told in a line.
const maxFrames = 4

var (
	// py-spy dump: `    all_reduce (torch/distributed/distributed_c10d.py:2501)`.
	spyFrame = regexp.MustCompile(`^    (\S.*) \((.+:\d+)\)$`)
	// faulthandler: `  File "train.py", line 12 in main`.
	faultFrame = regexp.MustCompile(`^  File "(.+)", line (\d+) in (.+)$`)
	// /proc/PID/stack: `[<0>] futex_wait_queue+0x60/0x90`.
	kernelFrame = regexp.MustCompile(`^\[<[0-9a-fx]+>\] (\w+)\+`)
)

// Stack is where a rank's program was found, and by what: "py-spy", "faulthandler" or "kernel".
type Stack struct{ How, Text string }

// frame is one of a program's calls. Of the kernel's it is the function only.
type frame struct{ function, place string }

func (f frame) String() string {
	if f.place == "" {
		return f.function
	}
	return f.function + " (" + f.place + ")"
}

// Innermost are the innermost frames of a program's main thread, in a line; "" where the
// text has none that is known.
func (s Stack) Innermost() string {
	var words []string
	for _, f := range s.frames(maxFrames) {
		words = append(words, f.String())
	}
	return strings.Join(words, " < ")
}

// At is the innermost frame of a program's main thread; "" where that is not known: the kernel
// does not know what a program does.
func (s Stack) At() string {
	if frames := s.frames(1); len(frames) > 0 && s.How != "kernel" {
		return frames[0].String()
	}
	return ""
}

// frames are those of the main thread, the innermost first, this many at most.
func (s Stack) frames(limit int) (frames []frame) {
	for _, line := range mainThread(s.How, strings.Split(s.Text, "\n")) {
		line = strings.TrimRight(line, "\r")
		if m := spyFrame.FindStringSubmatch(line); m != nil && s.How == "py-spy" {
			frames = append(frames, frame{m[1], m[2]})
		} else if m := faultFrame.FindStringSubmatch(line); m != nil && s.How == "faulthandler" {
			frames = append(frames, frame{m[3], m[1] + ":" + m[2]})
		} else if m := kernelFrame.FindStringSubmatch(line); m != nil && s.How == "kernel" {
			frames = append(frames, frame{m[1], ""})
		}
		if len(frames) == limit {
			break
		}
	}
	return frames
}

// mainThread are the lines of the main thread: the one that py-spy calls so, or that faulthandler calls the current
// one, which is where signals arrive; else the first.
func mainThread(how string, lines []string) []string {
	start, main := "Thread ", `"MainThread"`
	switch how {
	case "faulthandler":
		start, main = "(most recent call first)", "Current thread"
	case "kernel":
		return lines
	}
	isStart := func(line string) bool {
		return strings.HasPrefix(line, start) || how == "faulthandler" && strings.Contains(line, start)
	}
	first := slices.IndexFunc(lines, isStart)
	if first < 0 {
		return nil
	}
	if at := slices.IndexFunc(lines, func(l string) bool { return isStart(l) && strings.Contains(l, main) }); at >= 0 {
		first = at
	}
	lines = lines[first+1:]
	if end := slices.IndexFunc(lines, isStart); end >= 0 {
		return lines[:end]
	}
	return lines
}
