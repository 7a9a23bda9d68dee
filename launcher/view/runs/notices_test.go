package runs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/report"
)

var (
	silent = report.Finding{Code: "silent", Severity: codes.Warn, Host: "gpu02", Attempt: 1,
		Message: "no output, no progress and no work of all 3 ranks for 10m0s; rank 2 on gpu02 is the one to look at: it is at step 5, the others at step 6 or later" +
			"\n  rank 2 on gpu02: at step 5, silent for 601 s, pid 4242 is S (sleeping), by py-spy in get (queue.py:171) < load (data.py:40) < main (train.py:20)" +
			"\n  rank 0 on gpu01: at step 6, silent for 600 s"}
	leak    = report.Finding{Code: "memory_growth", Severity: codes.Warn, Host: "gpu01", Message: "gpu01: rank 0 grows", Fix: "look for what is kept"}
	related = report.Finding{Code: "wrong_gpu", Severity: codes.Fail, Host: "gpu01", Message: "gpu01: rank 0 is on GPU 3"}
	trifle  = report.Finding{Code: "trifle", Severity: codes.Info, Message: "good to know"}
)

// noticed is a run in its second attempt of which much has come up.
func noticed() Standing {
	run, s := training(false)
	s.Samples = nil
	ago := func(d time.Duration, e event.Event) {
		e.Time = inThePast.Add(-d)
		s.Take(e)
	}
	ago(3*time.Hour, event.Event{Kind: event.Found, Finding: &leak, Message: leak.Words()})
	ago(2*time.Hour, event.Event{Kind: event.Restarting, Message: "rank 1 on gpu01 was killed by SIGSEGV (crash.segv); starting again: restart 1 of 2 after crash.segv, with NCCL_P2P_DISABLE = 1"})
	ago(time.Hour, event.Event{Kind: event.Lost, Attempt: 1, Host: "gpu03", Message: "no answer from gpu03 for 30s"})
	ago(12*time.Minute, event.Event{Kind: event.Found, Attempt: 1, Finding: &silent, Message: silent.Words()})
	ago(time.Minute, event.Event{Kind: event.Found, Attempt: 1, Finding: &trifle, Message: trifle.Words()})
	return Standing{Run: run, State: s, Now: inThePast}
}

// Whoever closed the laptop finds in the status what the screen has said meanwhile.
func TestStatusTellsWhatHasComeUp(t *testing.T) {
	for name, change := range map[string]func(*Standing){
		"whole": func(*Standing) {}, "narrow": func(s *Standing) { s.Width = 80 }, "brief": func(s *Standing) { s.Width, s.Brief = 80, true },
	} {
		s := noticed()
		change(&s)
		var b bytes.Buffer
		if err := Status(&b, s); err != nil {
			t.Fatal(err)
		}
		viewtest.Compare(t, "notices/status-"+name+".txt", b.Bytes())
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); s.Width > 0 && n > s.Width {
				t.Errorf("%s: %d columns in %q", name, n, line)
			}
		}
	}
}

// Why a run has ended stands above its ranks already.
func TestStatusSaysTheCauseOnce(t *testing.T) {
	s := noticed()
	s.State.Take(event.Event{Kind: event.Found, Time: inThePast, Finding: &related, Message: related.Words()})
	s.State.Take(event.Event{Kind: event.Over, Time: inThePast, Message: related.Words(), Report: failed()})
	var b bytes.Buffer
	if err := Status(&b, s); err != nil || strings.Count(b.String(), related.Message) != 1 || !strings.Contains(b.String(), leak.Message) {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

func TestStatusInJSONHasFindingsAndWarnings(t *testing.T) {
	var b bytes.Buffer
	if err := StatusJSON(&b, noticed()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Findings []report.Finding
		Warnings []string
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got.Findings) != 3 || got.Findings[1].Code != "silent" || len(got.Warnings) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestOfManyNoticesTheNewestAreShown(t *testing.T) {
	s := noticed()
	for range 100 {
		s.State.Take(event.Event{Kind: event.Warning, Time: inThePast, Message: "something small"})
	}
	var b bytes.Buffer
	if err := Status(&b, s); err != nil || strings.Count(b.String(), "something small") != maxNotices || !strings.Contains(b.String(), "92 more notices before these") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// reported is the text of the report of a failed run.
func reported(change func(*report.Report)) string {
	rep := failed()
	rep.Attempts = []report.Attempt{{Started: 1000, Outcome: report.Failed, Class: class.Exit, Decision: "end", Reason: report.NoRestartBlock}}
	change(rep)
	var out bytes.Buffer
	Report(&terminal.Screen{Out: terminal.Stream{W: &out}, Err: terminal.Stream{W: &bytes.Buffer{}}}, rep)
	return out.String()
}

func at(f report.Finding, seconds float64) report.Finding {
	f.At = seconds
	return f
}

func TestTheReportTellsWhatWasFoundAndWhen(t *testing.T) {
	got := reported(func(rep *report.Report) {
		rep.Findings = []report.Finding{leak, at(silent, 9000), trifle}
		rep.Findings[1].Attempt = 0
		rep.Warnings = []string{"gpu01: its output was still open"}
		rep.Left = []string{"gpu02: pid 7"}
	})
	viewtest.Compare(t, "notices/report.txt", []byte(got))
}

// What the failure screen says is not said again below it.
func TestTheReportSaysTheCauseOnce(t *testing.T) {
	got := reported(func(rep *report.Report) {
		rep.FirstCause.Message = related.Words()
		rep.Findings = []report.Finding{related, leak}
	})
	if strings.Count(got, "rank 0 is on GPU 3") != 1 || !strings.Contains(got, "rank 0 grows") {
		t.Errorf("%s", got)
	}
}
