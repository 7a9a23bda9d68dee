package runs

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// notice is something that the user has to know of a run, beside its end.
type notice struct {
	kind string // "warning"
	when string
	text string // the first line says the whole
	code string // of a finding
	fix  string
}

// maxNotices is how many of a run's notices are shown: there may be one for each task.
const maxNotices = 12

// noticesOf are a run's notices, in the order in which they came.
func noticesOf(s event.State, now time.Time) []notice {
	var all []notice
	for _, e := range s.Notices {
		n := notice{kind: "warning", when: age(e.Time, now) + " ago", text: e.Message}
		switch {
		case e.Kind == event.Restarting:
			n.kind = fmt.Sprintf("attempt %d failed", e.Attempt)
		case e.Finding != nil && (!isNotable(*e.Finding) || strings.Contains(s.Message,
			e.Finding.Message)): // which is shown too
			continue
		case e.Finding != nil:
			n.take(*e.Finding)
		}
		all = append(all, n)
	}
	return all
}

// isNotable reports whether a finding is more than good to know.
func isNotable(f report.Finding) bool { return f.Severity != codes.Info }

func (n *notice) take(f report.Finding) {
	if f.Severity == codes.Fail {
		n.kind = "failure"
	}
	n.text, n.code, n.fix = f.Message, f.Code, f.Fix
}

// findingsIn are the findings of a report that its screen does not tell of.
func findingsIn(rep *report.Report) []notice {
	var all []notice
	for _, f := range rep.Findings {
		if !isNotable(f) || rep.FirstCause != nil && strings.Contains(rep.FirstCause.Message, f.Message) {
			continue
		}
		n := notice{kind: "warning", when: whenIn(rep, f)}
		n.take(f)
		all = append(all, n)
	}
	return all
}

// whenIn says when something was found, counted from the start of its attempt.
func whenIn(rep *report.Report, f report.Finding) string {
	if f.At == 0 {
		return "before the start"
	}
	for _, a := range rep.Attempts {
		if a.Attempt != f.Attempt {
			continue
		}
		words := span(time.Duration((f.At-a.Started)*float64(time.Second))) + " after the start"
		if len(rep.Attempts) > 1 {
			words += fmt.Sprintf(" of attempt %d", a.Attempt)
		}
		return words
	}
	return ""
}

// writeNotices writes notices, the newest last; of many the newest. Where they are brief,
// only their first lines.
func writeNotices(w io.Writer, all []notice, width int, brief bool) {
	if n := len(all) - maxNotices; n > 0 {
		fmt.Fprintf(w, "%s before these\n", plural.Of(n, "more notice"))
		all = all[n:]
	}
	for _, n := range all {
		n.write(w, width, brief)
	}
}

// write writes a notice. Lines are broken where the terminal would, and go on behind where
// they begin.
func (n notice) write(w io.Writer, width int, brief bool) {
	head, rest, _ := strings.Cut(n.text, "\n")
	first := n.kind
	if n.when != "" {
		first += ", " + n.when
	}
	first += ": " + head
	if n.code != "" {
		first += " [" + n.code + "]"
	}
	var b bytes.Buffer
	b.Write(terminal.Wrapped(first, width))
	if !brief {
		for line := range strings.Lines(rest) {
			b.Write(terminal.Wrapped(strings.TrimRight(line, "\n"), width))
		}
		if n.fix != "" {
			b.Write(terminal.Paragraph(n.fix, "      ", width))
		}
	}
	_, _ = w.Write(terminal.CleanLines(b.Bytes())) // what w does with it shows at its end
}
