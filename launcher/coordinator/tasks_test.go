package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// newSweep is a drill of tasks on three hosts with two places each.
func newSweep(t *testing.T, tasks, more string) *drill {
	t.Helper()
	d := newDrillOf(t, `mode = "independent"
  tasks = `+tasks+more)
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	return d
}

// started are the tasks that were ordered to be started since last asked, by place.
func (d *drill) startedTasks() (tasks []int) {
	for _, a := range d.all {
		if a.Send != nil && a.Send.Command.Start != nil {
			for _, r := range a.Send.Command.Start.Ranks {
				tasks = append(tasks, r.Rank)
			}
		}
	}
	d.all = slices.DeleteFunc(d.all, func(a run.Action) bool { return a.Send != nil })
	return tasks
}

// isOver is whether a task is not started again.
func (d *drill) isOver(task int) bool {
	out, _ := d.m.Output(task)
	return out.Over
}

// taskEnded: a task's worker ended, as of an attempt.
func (d *drill) taskEnded(task, attempt, code int) {
	r := d.b.Ranks[task]
	d.news(r.Host, message.Update{Ended: &message.Ended{Rank: task, Attempt: attempt, Code: code, Evidence: &evidence.Worker{}}})
}

func TestTasksComeToPlacesAsTheyBecomeFree(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g", "h"]`, "")
	if got := d.startedTasks(); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
		t.Fatalf("started %v at first", got)
	}
	d.taskEnded(3, 0, 0)
	if got := d.startedTasks(); !slices.Equal(got, []int{6}) || d.b.Ranks[6].Place != 3 {
		t.Errorf("started %v when place 3 was free", got)
	}
	d.taskEnded(0, 0, 4)
	for _, task := range []int{1, 2, 4, 5, 6, 7} {
		d.taskEnded(task, 0, 0)
	}
	r := d.end(0, 1, 2)
	if r.Outcome != report.Failed || r.Exit != 4 || *r.FirstCause.Rank != 0 || r.Ranks[7].Outcome != report.OK || r.Ranks[0].Outcome != report.Failed {
		t.Errorf("the report is %+v", r)
	}
}

// News of an earlier attempt must not be taken for the present one's.
func TestATaskIsRestartedInItsPlaceAfterItsBackoff(t *testing.T) {
	d := newSweep(t, `["a", "b"]`, `
  restart {
    attempts = 3
    backoff  = "10s"
    on "exit" { env = { X = 1 } }
    on "exit" { env = { X = 2 } }
  }`)
	d.startedTasks()
	d.taskEnded(0, 0, 4)
	if got := d.startedTasks(); !slices.Equal(got, []int{0}) {
		t.Fatalf("started %v: the first restart is at once", got)
	}
	d.taskEnded(0, 0, 0) // late news of the first
	d.taskEnded(0, 1, 4)
	if got := d.startedTasks(); len(got) != 0 {
		t.Fatalf("started %v before the backoff", got)
	}
	d.tick(11*time.Second, 0, 1, 2)
	if got := d.startedTasks(); !slices.Equal(got, []int{0}) {
		t.Fatalf("started %v after it", got)
	}
	d.taskEnded(0, 2, 0)
	d.taskEnded(1, 0, 0)
	r := d.end(0, 1, 2)
	if ends := r.Ranks[0].Ends; r.Exit != 0 || len(ends) != 3 || ends[0].Changes["X"] == "" || ends[2].Attempt != 2 {
		t.Errorf("the report is %+v", r.Ranks[0])
	}
}

func TestAStopLeavesWhatWaitsUndone(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g"]`, "")
	d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"})
	for task := range 6 {
		d.news(d.b.Ranks[task].Host, message.Update{Ended: &message.Ended{Rank: task, Sent: "SIGTERM", Signal: "SIGTERM"}})
	}
	r := d.end(0, 1, 2)
	if r.Outcome != report.Stopped || r.Exit != 130 || !strings.Contains(r.FirstCause.Message, "not done: 7 of 7 tasks") || r.Ranks[6].Outcome != report.NotRun || r.Ranks[0].Outcome != report.Stopped {
		t.Errorf("the report is %+v", r)
	}
}

// A drain that comes when everything is under way already changes nothing.
func TestADrainOfNothingIsNoStop(t *testing.T) {
	d := newSweep(t, `["a", "b"]`, "")
	d.next(run.Stop{Exit: 143, Reason: "muster stop --drain", Drain: true})
	d.taskEnded(0, 0, 0)
	d.taskEnded(1, 0, 0)
	if r := d.end(0, 1, 2); r.Outcome != report.OK || r.Exit != 0 {
		t.Errorf("the report is %+v", r)
	}
}

// A host that falls silent has its tasks fail, and the rest is done by the others.
func TestTasksGoOnWithoutAHostThatIsSilent(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g", "h"]`, "")
	d.startedTasks()
	d.tick(31*time.Second, 0, 2)
	d.taskEnded(0, 0, 0)
	if got := d.startedTasks(); !slices.Equal(got, []int{6}) {
		t.Errorf("started %v", got)
	}
	for _, task := range []int{1, 4, 5, 6, 7} {
		d.taskEnded(task, 0, 0)
	}
	r := d.end(0, 2)
	if r.Exit != report.ExitUnreachable || r.FirstCause.Class != class.HostLost || r.Ranks[2].Outcome != report.Failed || r.Ranks[7].Outcome != report.OK {
		t.Errorf("the report is %+v", r)
	}
	if !slices.ContainsFunc(d.all, func(a run.Action) bool { return a.Event != nil && a.Event.Kind == event.Lost && a.Event.Host == "b" }) {
		t.Error("the loss was not told")
	}
}

func TestTasksThatNoHostIsLeftForAreAFailure(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g", "h"]`, "")
	for task := range 6 {
		d.news(d.b.Ranks[task].Host, message.Update{Failing: &message.Failing{Reason: "its keeper died"}})
	}
	for task := range 6 {
		d.news(d.b.Ranks[task].Host, message.Update{Ended: &message.Ended{Rank: task, Sent: "SIGTERM", Signal: "SIGTERM"}})
	}
	r := d.end(0, 1, 2)
	if r.Outcome != report.Failed || r.Exit != report.ExitUnreachable || r.Ranks[7].Outcome != report.NotRun {
		t.Errorf("the report is %+v", r)
	}
}

// There are more tasks than places: what is known of a task's device is known of its place.
func TestATaskBeyondThePlacesThatFailsIsFoundOut(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g", "h"]`, "")
	d.taskEnded(3, 0, 0)
	d.news(d.b.Ranks[6].Host, message.Update{Ended: &message.Ended{Rank: 6, Code: 5, Evidence: &evidence.Worker{Devices: &evidence.Devices{}}}})
	for _, task := range []int{0, 1, 2, 4, 5, 7} {
		d.taskEnded(task, 0, 0)
	}
	if r := d.end(0, 1, 2); r.Exit != 5 || r.FirstCause.Rank == nil || *r.FirstCause.Rank != 6 {
		t.Errorf("the report is %+v", r)
	}
}

// A host that falls silent while its workers are being stopped tells nothing of their ends:
// none is taken for a good one, nor what was ordered to start for what never began.
func TestTasksWhoseEndIsNotKnownDidNotEndWell(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g"]`, "")
	d.news(1, message.Update{Started: &message.Started{Rank: 2, PID: 102}})
	d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"})
	for _, task := range []int{0, 1, 4, 5} {
		d.news(d.b.Ranks[task].Host, message.Update{Ended: &message.Ended{Rank: task, Sent: "SIGTERM", Signal: "SIGTERM"}})
	}
	d.tick(31*time.Second, 0, 2)
	r := d.end(0, 2)
	if r.Ranks[2].Outcome != report.Stopped || r.Ranks[3].Outcome != report.Stopped || r.Ranks[6].Outcome != report.NotRun || r.Exit != 130 {
		t.Errorf("the report is %+v", r)
	}
}

// Thousands of tasks may fail, each with much to say. The first is the run's cause.
func TestWhatWasSaidIsKeptOfTheFirstTaskThatFailedOnly(t *testing.T) {
	d := newSweep(t, `["a", "b"]`, "")
	for _, task := range []int{1, 0} {
		d.after(time.Second)
		d.news(0, message.Update{Ended: &message.Ended{Rank: task, Code: 4, Tail: []byte("no data"), Evidence: &evidence.Worker{}}})
	}
	if r := d.end(0, 1, 2); *r.FirstCause.Rank != 1 || r.FirstCause.Tail != "no data" || r.Ranks[0].Outcome != report.Failed || r.Ranks[0].Ends[0].Message == "" {
		t.Errorf("the report is %+v, its cause %+v", r, r.FirstCause)
	}
}

// A host that was given up may be heard again, and tell what it has done meanwhile.
func TestALateEndOfATaskThatWasGivenUpChangesNothing(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g"]`, "")
	d.tick(31*time.Second, 0, 2)
	d.check("given up", d.isOver(2), true)
	d.news(1, message.Update{Started: &message.Started{Rank: 2, PID: 7}})
	d.news(1, message.Update{Ended: &message.Ended{Rank: 2, Sent: "SIGTERM", Signal: "SIGTERM", Evidence: &evidence.Worker{}}})
	for _, task := range []int{0, 1, 4, 5, 6} {
		d.taskEnded(task, 0, 0)
	}
	if r := d.end(0, 2); len(r.Ranks[2].Ends) > 1 || r.Ranks[2].Outcome != report.Failed {
		t.Errorf("the report is %+v", r.Ranks[2])
	}
}

func TestATaskThatEndsWellOnAHostThatGivesUpIsDone(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f"]`, "")
	d.news(1, message.Update{Failing: &message.Failing{Reason: "its keeper died"}})
	d.taskEnded(2, 0, 0)
	d.news(1, message.Update{Ended: &message.Ended{Rank: 3, Sent: "SIGTERM", Signal: "SIGTERM"}})
	for _, task := range []int{0, 1, 4, 5} {
		d.taskEnded(task, 0, 0)
	}
	if r := d.end(0, 1, 2); r.Ranks[2].Outcome != report.OK || r.Ranks[3].Outcome != report.Failed || r.Exit == 0 {
		t.Errorf("the report is %+v and %+v", r.Ranks[2], r.Ranks[3])
	}
}

// What has ended well stays so when its host is lost before it could tell.
func TestATaskThatHasEndedWellOnALostHostIsDone(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f"]`, "")
	d.news(1, message.Update{Failing: &message.Failing{Reason: "its keeper died"}})
	d.taskEnded(2, 0, 0)
	d.news(1, message.Update{Ended: &message.Ended{Rank: 3, Sent: "SIGTERM", Code: 0}})
	for _, task := range []int{0, 1, 4, 5} {
		d.taskEnded(task, 0, 0)
	}
	r := d.end(0, 1, 2)
	if r.Ranks[2].Outcome != report.OK || r.Ranks[3].Outcome != report.Failed || r.Exit != report.ExitUnreachable {
		t.Errorf("the report is %+v", r)
	}
}

// The end of a lost host's workers is told late, or never: the loss counts from when it was.
func TestALossThatCameBeforeAFailureIsTheFirstCause(t *testing.T) {
	for name, lose := range map[string]func(d *drill){
		"reset":  func(d *drill) { d.next(run.Dropped{Host: 1, Why: "reset"}) },
		"silent": func(*drill) {},
	} {
		d := newSweep(t, `["a", "b", "c", "d", "e", "f"]`, "")
		lost := d.b.Now
		lose(d)
		d.after(time.Second)
		d.taskEnded(0, 0, 4)
		for _, task := range []int{1, 4, 5} {
			d.taskEnded(task, 0, 0)
		}
		d.after(30 * time.Second)
		d.next(run.Tick{Heard: func(host int) (link.Instant, bool) {
			if host == 1 {
				return lost, true
			}
			return d.b.Now, true
		}})
		if r := d.end(0, 2); r.Exit != report.ExitUnreachable || r.FirstCause.Host != "b" {
			t.Errorf("%s: the first cause is %+v", name, r.FirstCause)
		}
	}
}

// The head host's loss ends the run, and yet is no reason for what came before it.
func TestATaskThatFailedBeforeTheHeadHostWasLostIsTheFirstCause(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f", "g"]`, "")
	d.taskEnded(5, 0, 4)
	d.after(time.Second)
	d.next(run.KeeperDied{})
	for _, task := range []int{0, 1, 2, 3, 4, 6} {
		d.news(d.b.Ranks[task].Host, message.Update{Ended: &message.Ended{Rank: task, Sent: "SIGTERM", Signal: "SIGTERM"}})
	}
	if r := d.end(0, 1, 2); r.Exit != 4 || *r.FirstCause.Rank != 5 || r.Ranks[0].Outcome != report.Failed || r.Ranks[2].Outcome != report.Stopped {
		t.Errorf("the report is %+v", r)
	}
}

func TestNewsOfTasksOnAHostThatWasGivenUpComesTooLate(t *testing.T) {
	d := newSweep(t, `["a", "b", "c", "d", "e", "f"]`, "")
	d.tick(31*time.Second, 0, 2)
	d.news(1, message.Update{Started: &message.Started{Rank: 2, PID: 102}})
	d.news(1, message.Update{Ended: &message.Ended{Rank: 2, Sent: "SIGTERM", Signal: "SIGTERM"}})
	for _, task := range []int{0, 1, 4, 5} {
		d.taskEnded(task, 0, 0)
	}
	r := d.end(0, 2)
	if r.Exit != report.ExitUnreachable || r.Ranks[2].Outcome != report.Failed || len(r.Ranks[2].Ends) != 1 {
		t.Errorf("the report is %+v", r)
	}
}

// Before the start no task has a place, and there may be fewer tasks than places.
func TestAFindingOfAPlaceThatNoTaskTakesIsOfNoTask(t *testing.T) {
	d := newGPUDrill(t, "mode = \"independent\"\n tasks = [\"a\"]")
	recovery := "reset"
	d.b.Plan.Facts[1].Devices.Inventory.GPUs[1].Recovery = &recovery
	for host := range 2 {
		d.join(host)
		d.ready(host)
	}
	if found := d.found("gpu_recovery"); len(found) != 1 || d.b.Record.Findings[0].Rank != nil {
		t.Errorf("found %q: %+v", found, d.b.Record.Findings)
	}
}
