// Package kernellog reads the kernel's log, /dev/kmsg (Documentation/ABI/testing/dev-kmsg):
// from its beginning, or what comes after it was opened. It waits for nothing and does not
// know what records are about.
package kernellog

import (
	"strconv"
	"strings"
)

// Path is where the log is.
const Path = "/dev/kmsg"

// Record is one entry of the log.
type Record struct {
	// At is when it was written, in seconds of the kernel's own clock, which begins with the
	// boot and stands still while the machine sleeps.
	At   float64
	Text string
}

// parse reads what the kernel gives: a record's prefix ends with a semicolon and has the time
// in microseconds as the third value; lines with properties follow, which begin with a
// space. Line ends within a text are escaped.
func parse(given string, see func(Record)) {
	for line := range strings.Lines(given) {
		if !strings.HasPrefix(line, " ") {
			see(parseLine(strings.TrimSuffix(line, "\n")))
		}
	}
}

func parseLine(line string) Record {
	prefix, text, is := strings.Cut(line, ";")
	if !is {
		prefix, text = "", line
	}
	r := Record{Text: text}
	if values := strings.Split(prefix, ","); len(values) > 2 {
		if micro, err := strconv.ParseUint(values[2], 10, 64); err == nil {
			r.At = float64(micro) / 1e6
		}
	}
	return r
}
