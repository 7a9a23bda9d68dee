package check

import (
	"strings"

	"github.com/muster-dev/muster/launcher/report"
)

// notReady is the code of a host that cannot be made ready: setup has failed, for example.
const notReady = "not_ready"

// Reported are the findings in the report of a run that was only checked. What keeps a host
// from getting ready at all comes before any check of it.
func Reported(r *report.Report) []Finding {
	found := append([]Finding(nil), r.Findings...)
	if c := r.FirstCause; c != nil && Verdict(found) != Failed {
		found = append(found, Finding{Code: notReady, Severity: Fail, Host: c.Host, Message: c.Message, Fix: tailOf(c)})
	}
	return found
}

// RunFailure is why a run in which ranks measured has failed as such; nil: it has not.
func RunFailure(r *report.Report) *RunFailed {
	switch c := r.FirstCause; {
	case c != nil:
		return &RunFailed{Host: c.Host, Message: c.Message, Tail: tailOf(c)}
	case r.Outcome != report.OK:
		return &RunFailed{Message: "it was ended before all had been measured"}
	}
	return nil
}

func tailOf(c *report.Cause) string {
	if c.Tail == "" {
		return ""
	}
	return "its last words: " + strings.TrimSpace(c.Tail)
}
