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

// Innermost are the innermost frames of a program's main thread, in a line; "" where the
// text has none that is known. how is by what the stack was taken.
func Innermost(how, text string) string {
	var frames []string
	for _, line := range mainThread(how, strings.Split(text, "\n")) {
		line = strings.TrimRight(line, "\r")
		if m := spyFrame.FindStringSubmatch(line); m != nil && how == "py-spy" {
			frames = append(frames, m[1]+" ("+m[2]+")")
		} else if m := faultFrame.FindStringSubmatch(line); m != nil && how == "faulthandler" {
			frames = append(frames, m[3]+" ("+m[1]+":"+m[2]+")")
		} else if m := kernelFrame.FindStringSubmatch(line); m != nil && how == "kernel" {
			frames = append(frames, m[1])
		}
		if len(frames) == mostFrames {
			break
		}
	}
	return strings.Join(frames, " < ")
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
