package hang

import (
	"regexp"
	"strings"
)

// mostFrames is how many frames of a stack are told in a line.
const mostFrames = 4

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
	for _, f := range s.frames(mostFrames) {
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
func (s Stack) frames(most int) (frames []frame) {
	for _, line := range mainThread(s.How, strings.Split(s.Text, "\n")) {
		line = strings.TrimRight(line, "\r")
		if m := spyFrame.FindStringSubmatch(line); m != nil && s.How == "py-spy" {
			frames = append(frames, frame{m[1], m[2]})
		} else if m := faultFrame.FindStringSubmatch(line); m != nil && s.How == "faulthandler" {
			frames = append(frames, frame{m[3], m[1] + ":" + m[2]})
		} else if m := kernelFrame.FindStringSubmatch(line); m != nil && s.How == "kernel" {
			frames = append(frames, frame{m[1], ""})
		}
		if len(frames) == most {
			break
		}
	}
	return frames
}

// mainThread are the lines of the main thread: the one that py-spy calls so, or that
// faulthandler calls the current one, which is where signals arrive.
func mainThread(how string, lines []string) []string {
	isStart, isMain := func(line string) bool { return strings.HasPrefix(line, "Thread ") }, func(line string) bool { return strings.Contains(line, `"MainThread"`) }
	switch how {
	case "faulthandler":
		isStart = func(line string) bool {
			return strings.Contains(line, "(most recent call first)")
		}
		isMain = func(line string) bool { return strings.HasPrefix(line, "Current thread") }
	case "kernel":
		return lines
	}
	first := -1
	for i, line := range lines {
		if !isStart(line) {
			continue
		}
		if first < 0 {
			first = i
		}
		if isMain(line) {
			return until(lines[i+1:], isStart)
		}
	}
	if first < 0 {
		return nil
	}
	return until(lines[first+1:], isStart)
}

func until(lines []string, isEnd func(string) bool) []string {
	for i, line := range lines {
		if isEnd(line) {
			return lines[:i]
		}
	}
	return lines
}
