package output

import (
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/lines"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// saysNothing are lines that come last in many programs, however they end: progress bars,
// logs of what went well, and the warnings of Python and torch on the way out.
var saysNothing = pattern.New(`^\W*$|[0-9]%\|| (?:it|s|B)/s\]|^.{0,60}\b(?:INFO|DEBUG)\b|\blevel=(?:info|debug)\b|^\[?[IW][0-9]{3}|:[0-9]+: \w*Warning: |^\s*warnings\.warn\(|^\s+File "|^Traceback \(most recent call last\)`)

// lastReach is how many lines that say nothing may come after the one that says something.
const lastReach = 8

// LastLine is the last line of the standard error that may say why the program ended, as
// that of sys.exit("...") does; "" where there is none.
func LastLine(stderr []byte) string {
	log := lines.Read(stderr)
	whole := log.Whole
	if whole == nil && len(log.Voices) > 0 {
		whole = &log.Voices[0]
	}
	if whole == nil {
		return ""
	}
	for i := len(whole.Lines) - 1; i >= max(0, len(whole.Lines)-1-lastReach); i-- {
		if line := whole.Lines[i]; !line.Source && !saysNothing.MatchString(line.Text) {
			return verdict.Excerpt(strings.TrimSpace(line.Text))
		}
	}
	return ""
}

// Line is the first line of the worker's words that fits.
func Line(w *evidence.Worker, form *pattern.Pattern) string {
	for _, text := range [][]byte{w.Stderr, w.Stdout} {
		for _, v := range lines.Read(text).Voices {
			for _, line := range v.Lines {
				if !line.Source && form.MatchString(line.Text) {
					return line.Text
				}
			}
		}
	}
	return ""
}
