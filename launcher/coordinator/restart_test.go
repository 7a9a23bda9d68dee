package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
)

// begun is a drill of a job whose workers run.
func begun(t *testing.T, more string) *drill {
	t.Helper()
	d := newDrillOf(t, more)
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	return d
}

// failAll has rank 1 fail and the others stopped.
func (d *drill) failAll(attempt int, e message.Ended) {
	e.Attempt = attempt
	d.ended(1, e)
	for _, rank := range []int{0, 2, 3, 4, 5} {
		d.ended(rank, message.Ended{Attempt: attempt, Signal: "SIGTERM", Sent: "SIGTERM"})
	}
}

// said are the events of a kind so far.
func (d *drill) said(kind event.Kind) (all []event.Event) {
	for _, a := range d.all {
		if a.Event != nil && a.Event.Kind == kind {
			all = append(all, *a.Event)
		}
	}
	return all
}

func (d *drill) starts() (attempts []int, last *message.Start) {
	for _, a := range d.all {
		if a.Send != nil && a.Send.Command.Start != nil {
			attempts, last = append(attempts, a.Send.Command.Start.Attempt), a.Send.Command.Start
		}
	}
	return attempts, last
}

const crash = "SIGSEGV"

func TestAFailedAttemptIsFollowedByAnotherOnTheSameHosts(t *testing.T) {
	d := begun(t, "restart {\n attempts = 2\n backoff = \"0s\"\n on \"crash\" {\n env = { SMALL = rank.global }\n args = [\"--slow\"]\n }\n}")
	d.failAll(0, message.Ended{Signal: crash})
	if d.b.Phase != run.Restarting || d.b.Attempt != 1 {
		t.Fatalf("phase %v, attempt %d", d.b.Phase, d.b.Attempt)
	}
	if said := d.said(event.Restarting); len(said) != 1 || said[0].Attempt != 0 {
		t.Errorf("of attempt 0 is said %+v", said)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: 1, Port: 20001}})
	d.tick(time.Second, 0, 1, 2)
	attempts, last := d.starts()
	if len(attempts) != 6 || attempts[5] != 1 {
		t.Fatalf("starts of attempts %v", attempts)
	}
	for _, r := range last.Ranks {
		if r.Env["TORCHELASTIC_RESTART_COUNT"] != "1" || r.Env["TORCHELASTIC_MAX_RESTARTS"] != "2" || r.Env["MASTER_PORT"] != "20001" || r.Env["SMALL"] == "" {
			t.Errorf("rank %d: %v", r.Rank, r.Env)
		}
	}
	if got := strings.Join(last.Command, " "); got != "true --slow" {
		t.Errorf("command %q", got)
	}
	// What an earlier attempt still says does not count.
	d.ended(2, message.Ended{Attempt: 0, Code: 1})
	if d.b.Ranks[2].Ended != nil {
		t.Error("an end of attempt 0 was taken for one of attempt 1")
	}
	for rank := range 6 {
		d.ended(rank, message.Ended{Attempt: 1})
	}
	r := d.end(0, 1, 2)
	if r.Outcome != report.OK || len(r.Attempts) != 2 || r.Attempts[0].Decision != "restart" || r.Attempts[0].Changes["args"] != "--slow" {
		t.Errorf("report %+v", r)
	}
}

func TestTheBudgetEndsAndTheReasonIsSaid(t *testing.T) {
	d := begun(t, "restart {\n attempts = 1\n backoff = \"0s\"\n on \"crash\" {\n env = { SMALL = 1 }\n }\n on \"crash\" {\n env = { SMALL = 2 }\n }\n}")
	d.failAll(0, message.Ended{Signal: crash})
	d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: 1, Port: 20001}})
	d.tick(time.Second, 0, 1, 2)
	d.failAll(1, message.Ended{Signal: "SIGBUS"})
	if d.b.Phase != run.Wrapping {
		t.Fatalf("phase %v", d.b.Phase)
	}
	r := d.end(0, 1, 2)
	if last := r.Attempts[len(r.Attempts)-1]; r.Exit != 128+7 || last.Decision != "end" || !strings.Contains(last.Reason, "1") {
		t.Errorf("exit %d, the last attempt %+v", r.Exit, last)
	}
}

func TestNothingIsRestartedThatTheUserHasStopped(t *testing.T) {
	d := begun(t, "restart {\n attempts = 5\n backoff = \"0s\"\n}")
	d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"})
	d.failAll(0, message.Ended{Signal: crash})
	if d.b.Phase != run.Wrapping {
		t.Errorf("phase %v", d.b.Phase)
	}
}

func TestTheOneWithTheReasonIsWaitedFor(t *testing.T) {
	d := begun(t, "")
	d.ended(0, message.Ended{Code: 1, Evidence: &evidence.Worker{Stderr: []byte("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1\n")}})
	if d.b.Phase != run.Running {
		t.Fatalf("phase %v: the others were stopped at once", d.b.Phase)
	}
	d.tick(time.Second, 0, 1, 2)
	d.ended(3, message.Ended{Code: 1, Evidence: &evidence.Worker{Stderr: []byte("ValueError: bad shape\n")}})
	if d.b.Phase != run.Stopping {
		t.Fatalf("phase %v", d.b.Phase)
	}
	for _, rank := range []int{1, 2, 4, 5} {
		d.ended(rank, message.Ended{Signal: "SIGTERM", Sent: "SIGTERM"})
	}
	if r := d.end(0, 1, 2); r.FirstCause.Rank == nil || *r.FirstCause.Rank != 3 {
		t.Errorf("cause %+v", r.FirstCause)
	}
	alone := begun(t, "")
	alone.ended(0, message.Ended{Code: 1, Evidence: &evidence.Worker{Stderr: []byte("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1\n")}})
	alone.tick(3*time.Second, 0, 1, 2)
	if alone.b.Phase != run.Stopping {
		t.Error("nobody comes forward, and the others run on")
	}
}

// What cannot be killed holds its GPU, and is alive: no other attempt may run beside it.
func TestNothingIsStartedBesideAWorkerThatCannotBeKilled(t *testing.T) {
	d := newDrillOf(t, "restart {\n attempts = 3\n on \"exit\" { attempts = 3 }\n}").run()
	d.ended(1, message.Ended{Code: 5, Evidence: &evidence.Worker{}})
	for _, rank := range []int{0, 2, 3, 4} {
		d.ended(rank, message.Ended{Sent: "SIGTERM", Signal: "SIGTERM"})
	}
	d.ended(5, message.Ended{Sent: "SIGKILL", Error: "cannot be killed (pid 7, state D: it waits for a device or a file system)"})
	if r := d.end(0, 1, 2); r.Exit != 5 || len(r.Attempts) != 1 || !strings.Contains(r.Attempts[0].Reason, "rank 5 of the attempt before cannot be killed") {
		t.Errorf("the report is %+v", r)
	}
	d = newSweep(t, `["a", "b", "c", "d", "e", "f", "g"]`, `
  hang {
    silence = "1m"
    action  = "stop"
  }`)
	d.startedTasks()
	d.news(0, message.Update{Ended: &message.Ended{Rank: 0, Sent: "SIGKILL", Error: "cannot be killed (pid 7, state D)"}})
	if got := d.startedTasks(); len(got) != 0 {
		t.Errorf("tasks %v were started in its place", got)
	}
}

// After a restart it must be clear which attempt a finding is about.
func TestAFindingSaysInWhichAttemptAndWhen(t *testing.T) {
	d := newDrillOf(t, "restart {\n attempts = 1\n backoff = \"0s\"\n}")
	d.b.Find(report.Finding{Code: "before"})
	d.run()
	d.b.Find(report.Finding{Code: "first"})
	d.failAll(0, message.Ended{Signal: crash})
	d.after(time.Minute)
	d.b.Find(report.Finding{Code: "second", Rank: new(3)})
	if f := d.b.Record.Findings; f[0].At != 0 || f[1].Attempt != 0 || f[2].Attempt != 1 || f[1].At == 0 || f[2].At-f[1].At != float64(time.Minute) {
		t.Errorf("found %+v", f)
	}
}
