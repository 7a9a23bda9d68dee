package launcher

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
)

// Checking is what Run.Check is for a run, without checks where that is wanted.
func Checking(none bool) submission.Check {
	if none {
		return submission.CheckNone
	}
	return submission.CheckFirst
}

// Checked is what came of checking the hosts of a job.
type Checked struct {
	Plan     *plan.Plan // nil where there is none
	Findings []report.Finding
}

// DoChecks makes the hosts of a run ready and checks them, and starts nothing. A *Failure
// says why there was nothing to check.
func (r *Run) DoChecks(ctx context.Context) (Checked, int, error) {
	kept := &checkView{View: r.View}
	r.View, r.Check = kept, submission.CheckOnly
	r.Notebook = history.Store{} // nothing is going to run that somebody could come back to
	status, err := r.once(ctx)
	var refusal *planRefusal
	if errors.As(err, &refusal) {
		return Checked{Findings: check.Refused(refusal.problems)}, refusal.Exit, nil
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	return kept.Checked, status, err
}

// checkView keeps what a run would show.
type checkView struct {
	View
	mu sync.Mutex
	Checked
}

// Plan keeps the plan: it is no run that is about to start.
func (v *checkView) Plan(p *plan.Plan) {
	v.mu.Lock()
	v.Checked.Plan = p
	v.mu.Unlock()
	v.View.Phase("checking")
}

// Report keeps the findings.
func (v *checkView) Report(r *report.Report) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Findings = append(v.Findings, r.Findings...)
	// What keeps a host from getting ready at all comes before any check of it.
	if c := r.FirstCause; c != nil && check.Verdict(v.Findings) != check.Failed {
		v.Findings = append(v.Findings, report.Finding{Code: notReady, Severity: codes.Fail, Host: c.Host, Message: c.Message, Fix: lastWords(c)})
	}
}

// notReady is the code of a host that cannot be made ready: setup has failed, say.
const notReady = "not_ready"

func lastWords(c *report.Cause) string {
	if c.Tail == "" {
		return ""
	}
	return "its last words: " + strings.TrimSpace(c.Tail)
}
