package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

// pulse has a host tell that nothing has moved in its ranks for so many seconds.
func (d *drill) pulse(host int, still ...float64) {
	told := &message.Pulses{}
	for i, seconds := range still {
		rank := 2*host + i
		told.Ranks = append(told.Ranks, hang.Pulse{Rank: rank, Attempt: d.b.Ranks[rank].Attempt, Age: 10_000, Output: seconds, Told: seconds, CPU: seconds, Files: seconds})
	}
	d.news(host, message.Update{Pulses: told})
}

// inquiries is how often hosts were asked where ranks are.
func (d *drill) inquiries() (number int) {
	for _, a := range d.all {
		if a.Send != nil && a.Send.Command.Stacks != nil {
			number = a.Send.Command.Stacks.Number
		}
	}
	return number
}

func (d *drill) says(text string) bool {
	return slices.ContainsFunc(d.all, func(a run.Action) bool { return a.Event != nil && strings.Contains(a.Event.Message, text) })
}

// hangs has all ranks silent, rank 3 for longest, and answers the question where they are.
func (d *drill) hangs() {
	d.pulse(0, 70, 70)
	d.pulse(1, 70, 75)
	d.pulse(2, 70, 70)
	d.tick(100*time.Millisecond, 0, 1, 2)
	for host := range 3 {
		d.news(host, message.Update{Stacks: &message.StacksTaken{Number: d.inquiries(), Ranks: map[int]message.RankStack{
			2*host + 1: {PID: 7, State: "S (sleeping)", How: "kernel", Text: "[<0>] futex_wait+0x1/0x2\n", Stdout: []byte("step 5\n")},
		}}})
	}
	d.tick(100*time.Millisecond, 0, 1, 2)
}

func TestAHangEndsTheRunWithTheRankThatWasSilentFirst(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	d.hangs()
	for rank := range 6 {
		d.ended(rank, message.Ended{Sent: "SIGTERM", Signal: "SIGTERM"})
	}
	r := d.end(0, 1, 2)
	if c := r.FirstCause; r.Exit != report.ExitTimeout || c.Class != class.Hang || c.Rank == nil || *c.Rank != 3 || c.Host != "b" || !strings.Contains(c.Tail, "step 5") {
		t.Errorf("the report is %+v, its cause %+v", r, r.FirstCause)
	} else if all := strings.Join(c.Evidence, "\n"); !strings.Contains(all, "futex_wait") || !strings.Contains(all, "rank 0 on a") {
		t.Errorf("the evidence is %s", all)
	}
}

func TestAHangThatIsReportedOnlyLeavesTheRunAloneAndIsSaidOnce(t *testing.T) {
	d := newDrillOf(t, `hang { silence = "1m" }`).run()
	d.hangs()
	d.hangs()
	found := len(d.found("silent"))
	if found != 1 || d.b.Phase != run.Running {
		t.Errorf("it was said %d times, and the phase is %d", found, d.b.Phase)
	}
	// What has moved again may hang again.
	d.pulse(0, 1, 1)
	d.pulse(1, 1, 1)
	d.pulse(2, 1, 1)
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.hangs()
	if d.inquiries() != 2 {
		t.Errorf("where ranks are was asked %d times", d.inquiries())
	}
}

func TestWithoutAHangBlockALongSilenceIsSaidAndNothingElse(t *testing.T) {
	d := newDrill(t).run()
	d.hangs()
	if d.says("no output, no progress") {
		t.Error("70 s were said already")
	}
	for host := range 3 {
		d.pulse(host, 700, 700)
	}
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.tick(100*time.Millisecond, 0, 1, 2)
	if !d.says("no output, no progress and no work of all 6 ranks for 11m40s") || d.inquiries() > 0 || d.b.Phase != run.Running {
		t.Error("the silence was not said, or more was done")
	}
}

func TestAHangIsRestartedByItsRule(t *testing.T) {
	d := newDrillOf(t, `restart {
    attempts = 1
    on "hang" { env = { NCCL_P2P_DISABLE = "1" } }
  }
  hang {
    silence = "1m"
    action  = "restart"
  }`).run()
	d.hangs()
	for rank := range 6 {
		d.ended(rank, message.Ended{Sent: "SIGTERM", Signal: "SIGTERM"})
	}
	if d.b.Attempt != 1 || len(d.b.Record.Attempts) != 1 || d.b.Record.Attempts[0].Class != class.Hang || d.b.Record.Attempts[0].Changes["NCCL_P2P_DISABLE"] == "" {
		t.Errorf("attempt %d, past %+v", d.b.Attempt, d.b.Record.Attempts)
	}
}

// A host that tells nothing says nothing about its ranks: it may be slow to answer.
func TestAHostThatTellsNothingIsNoHang(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	d.pulse(0, 70, 70)
	d.pulse(1, 70, 70)
	d.tick(100*time.Millisecond, 0, 1, 2)
	if d.inquiries() > 0 {
		t.Error("two of three hosts were enough")
	}
	d.pulse(2, 70, 70)
	d.tick(16*time.Second, 0, 1, 2)
	if d.inquiries() > 0 {
		t.Error("what was told long ago was enough")
	}
}

// Ranks that waited for another are judged by what was seen of them before it ended: its end is
// what has moved.
func TestRanksThatEndAfterALongWaitAreNoHang(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	d.pulse(0, 70, 70)
	d.pulse(1, 70, 2) // it computes, and then all end
	d.pulse(2, 70, 70)
	d.tick(100*time.Millisecond, 0, 1, 2)
	for _, rank := range []int{3, 2, 1, 0} {
		d.ended(rank, message.Ended{})
		d.tick(100*time.Millisecond, 0, 1, 2)
	}
	if d.inquiries() > 0 || d.says("no output, no progress") {
		t.Error("the last ranks were taken for hung")
	}
	for range 7 { // they do not end
		d.pulse(2, 140, 140)
		d.tick(10*time.Second, 0, 1, 2)
	}
	if d.inquiries() == 0 {
		t.Error("two that never end were not taken for hung")
	}
}

// A host that does not answer the question where its ranks are cannot keep the run.
func TestAHangIsConcludedThoughAHostDoesNotAnswer(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	for host := range 3 {
		d.pulse(host, 70, 70)
	}
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.tick(21*time.Second, 0, 1, 2)
	if d.b.Phase != run.Stopping || d.b.Lost == nil || !strings.Contains(strings.Join(d.b.Lost.Evidence, "\n"), "has not said where it is") {
		t.Errorf("the phase is %d, the cause %+v", d.b.Phase, d.b.Lost)
	}
}

// NCCL hangs without a word where its buffers do not fit, or its sockets are elsewhere.
func TestWhatIsKnownToMakeNCCLHangIsSaid(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	d.b.Plan.Backend = "nccl"
	for host := range 3 {
		full := samples.None()
		full[samples.DeviceUsed] = 79.9 * (1 << 30)
		d.news(host, message.Update{Samples: &samples.Digest{Ranks: []samples.Rank{{Rank: 2 * host, Now: full, Total: 80 << 30}}}})
	}
	d.hangs()
	all := strings.Join(d.b.Lost.Evidence, "\n")
	for _, want := range []string{"the hosts reach a by ", "eth0 on a: nccl { debug", "rank 4 has 0.1 GiB free on its GPU, and a communicator of NCCL takes up to"} {
		if !strings.Contains(all, want) {
			t.Errorf("the evidence lacks %q: %s", want, all)
		}
	}
}

// While hosts find out where ranks are these may go on: a file server may have come back.
func TestRanksThatMoveAgainWhileTheirStacksAreTakenAreLeftAlone(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	for host := range 3 {
		d.pulse(host, 70, 70)
	}
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.pulse(1, 2, 75)
	d.tick(21*time.Second, 0, 1, 2)
	if d.b.Phase != run.Running || !d.says("moved or ended meanwhile") {
		t.Errorf("the phase is %d", d.b.Phase)
	}
}

// A host from which nothing is heard for a while has not moved by that.
func TestAHangIsNotSaidAgainBecauseItsHostWasNotHeard(t *testing.T) {
	d := newDrillOf(t, `hang { silence = "1m" }`).run()
	d.hangs()
	d.tick(16*time.Second, 0, 1, 2) // what was told is old
	d.hangs()
	if d.inquiries() != 1 {
		t.Errorf("where ranks are was asked %d times", d.inquiries())
	}
}

// silentTask has a host tell that nothing has moved in a task for so many seconds.
func (d *drill) silentTask(task int, seconds float64) {
	r := d.b.Ranks[task]
	d.news(r.Host, message.Update{Started: &message.Started{Rank: task, Attempt: r.Attempt, PID: 7}})
	d.news(r.Host, message.Update{Pulses: &message.Pulses{Ranks: []hang.Pulse{
		{Rank: task, Attempt: r.Attempt, Age: 10_000, Output: seconds, Told: seconds, CPU: seconds, Files: seconds},
	}}})
}

func isStopOf(task int) func(message.Command) bool {
	return func(o message.Command) bool { return o.Stop != nil && slices.Equal(o.Stop.Ranks, []int{task}) }
}

const hangingSweep = `
  restart {
    attempts = 3
    backoff  = "0s"
    on "exit" { env = { X = 1 } }
  }
  hang {
    silence = "1m"
    action  = "restart"
  }`

// What was found of an attempt must not end the one after it.
func TestATaskThatWasStartedAnewIsNotEndedForTheSilenceOfItsAttemptBefore(t *testing.T) {
	d := newSweep(t, `["a", "b"]`, hangingSweep)
	d.silentTask(0, 70)
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.check("asked where it is", d.inquiries(), 1)
	d.taskEnded(0, 0, 4)
	d.news(0, message.Update{Started: &message.Started{Rank: 0, Attempt: 1, PID: 8}})
	d.tick(21*time.Second, 0, 1, 2)
	if d.b.Ranks[0].Attempt != 1 || len(d.sent(isStopOf(0))) != 0 {
		t.Errorf("attempt %d, stops sent to %v", d.b.Ranks[0].Attempt, d.sent(isStopOf(0)))
	}
}

func TestATaskThatEndsWellBeforeItIsEndedForItsSilenceIsDone(t *testing.T) {
	d := newSweep(t, `["a", "b"]`, hangingSweep)
	d.silentTask(0, 70)
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.tick(21*time.Second, 0, 1, 2)
	d.check("stops sent", len(d.sent(isStopOf(0))), 1)
	d.taskEnded(0, 0, 0)
	d.taskEnded(1, 0, 0)
	if r := d.end(0, 1, 2); r.Exit != 0 || r.Ranks[0].Outcome != report.OK || len(r.Ranks[0].Ends) != 1 {
		t.Errorf("the report is %+v", r.Ranks[0])
	}
}

// Where a host's own disk hangs it tells nothing of its ranks, and goes on answering.
func TestThatAHostTellsNothingOfItsRanksIsSaid(t *testing.T) {
	d := newDrillOf(t, `hang { silence = "1m" }`).run()
	for range 3 {
		d.pulse(0, 1, 1)
		d.pulse(1, 1, 1)
		d.tick(31*time.Second, 0, 1, 2)
	}
	said := 0
	for _, a := range d.all {
		if a.Event != nil && strings.Contains(a.Event.Message, "c tells nothing of its ranks") {
			said++
		}
	}
	if said != 1 || d.says("nothing of its ranks since 0s") {
		t.Errorf("it was said %d times", said)
	}
}
