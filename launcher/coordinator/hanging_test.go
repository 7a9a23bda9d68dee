package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
)

// pulse has a host tell that nothing has moved in its ranks for so many seconds.
func (d *drill) pulse(host int, still ...float64) {
	told := &message.Pulses{}
	for i, seconds := range still {
		rank := 2*host + i
		told.Ranks = append(told.Ranks, hang.Pulse{Rank: rank, Attempt: d.b.ranks[rank].attempt, Age: 10_000, Output: seconds, Told: seconds, CPU: seconds, Files: seconds})
	}
	d.news(host, message.Update{Pulses: told})
}

func (d *drill) says(text string) bool {
	return slices.ContainsFunc(d.all, func(a action) bool { return a.event != nil && strings.Contains(a.event.Message, text) })
}

// hangs has all ranks silent, rank 3 for longest, and answers the question where they are.
func (d *drill) hangs() {
	d.pulse(0, 70, 70)
	d.pulse(1, 70, 75)
	d.pulse(2, 70, 70)
	d.tick(100*time.Millisecond, 0, 1, 2)
	for host := range 3 {
		d.news(host, message.Update{Stacks: &message.StacksTaken{Number: d.b.hanging.numbers, Ranks: map[int]message.RankStack{
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
	if found != 1 || d.b.phase != running {
		t.Errorf("it was said %d times, and the phase is %d", found, d.b.phase)
	}
	// What has moved again may hang again.
	d.pulse(0, 1, 1)
	d.pulse(1, 1, 1)
	d.pulse(2, 1, 1)
	d.tick(100*time.Millisecond, 0, 1, 2)
	d.hangs()
	if d.b.hanging.numbers != 2 {
		t.Errorf("where ranks are was asked %d times", d.b.hanging.numbers)
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
	if !d.says("no output, no progress and no work of all 6 ranks for 11m40s") || d.b.hanging.asking != nil || d.b.phase != running {
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
	if d.b.attempt != 1 || len(d.b.past) != 1 || d.b.past[0].Class != class.Hang || d.b.past[0].Changes["NCCL_P2P_DISABLE"] == "" {
		t.Errorf("attempt %d, past %+v", d.b.attempt, d.b.past)
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
	if d.b.hanging.asking != nil {
		t.Error("two of three hosts were enough")
	}
	d.pulse(2, 70, 70)
	d.tick(16*time.Second, 0, 1, 2)
	if d.b.hanging.asking != nil {
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
	if d.b.hanging.asking != nil || d.says("no output, no progress") {
		t.Error("the last ranks were taken for hung")
	}
	for range 7 { // they do not end
		d.pulse(2, 140, 140)
		d.tick(10*time.Second, 0, 1, 2)
	}
	if d.b.hanging.asking == nil {
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
	if d.b.phase != stopping || d.b.lost == nil || !strings.Contains(strings.Join(d.b.lost.Evidence, "\n"), "has not said where it is") {
		t.Errorf("the phase is %d, the cause %+v", d.b.phase, d.b.lost)
	}
}

// NCCL hangs without a word where its buffers do not fit, or its sockets are elsewhere.
func TestWhatIsKnownToMakeNCCLHangIsSaid(t *testing.T) {
	d := newDrillOf(t, `hang {
    silence = "1m"
    action  = "stop"
  }`).run()
	d.b.plan.Backend = "nccl"
	for host := range 3 {
		full := samples.None()
		full[samples.DeviceUsed] = 79.9 * (1 << 30)
		d.news(host, message.Update{Samples: &samples.Digest{Ranks: []samples.Rank{{Rank: 2 * host, Now: full, Total: 80 << 30}}}})
	}
	d.hangs()
	all := strings.Join(d.b.lost.Evidence, "\n")
	for _, want := range []string{"the hosts reach a by ", "eth0 on a: nccl { debug", "rank 4 has 0.1 GiB free on its GPU, and a communicator of NCCL takes up to"} {
		if !strings.Contains(all, want) {
			t.Errorf("the evidence lacks %q: %s", want, all)
		}
	}
}

// hangsIn has a hang of four ranks on two hosts, silent alike and at one step, whose stacks py-spy
// has taken: the innermost frame of each; "" where there is none.
func (d *drill) hangsIn(frames ...string) *report.Cause {
	a := &asking{stacks: map[int]message.RankStack{}}
	for rank, frame := range frames {
		a.seen = append(a.seen, hang.Seen{Pulse: hang.Pulse{Rank: rank, Age: 1000, Output: 70, Told: 70, CPU: 70, Files: 70}, Host: d.b.hosts[rank/2].name, Mark: observe.Nowhere})
		stack := message.RankStack{PID: 40 + rank, State: "S (sleeping)", Stdout: []byte(fmt.Sprintf("step 4 of rank %d\n\n", rank)), Stderr: []byte("12%\r 13%\r")}
		if frame != "" {
			stack.How, stack.Text, stack.File = "py-spy", "Thread 1 (idle): \"MainThread\"\n    "+frame+"\n", fmt.Sprintf("/logs/rank-%d.stacks", rank)
		}
		a.stacks[rank] = stack
	}
	cause, _ := d.b.causeOfHang(a)
	return cause
}

const waits = "all_reduce (torch/distributed/distributed_c10d.py:2806)"

func TestARankThatTheStacksShowElsewhereIsNamedAndToldOfFirst(t *testing.T) {
	c := newGPUDrill(t, `hang { silence = "1m" }`).hangsIn(waits, waits, "work (gl.py:9)", waits)
	if c.Rank == nil || *c.Rank != 2 || !strings.Contains(c.Message, "rank 2 on b is the one to look at: by the stacks it alone is elsewhere, in work (gl.py:9)") {
		t.Errorf("%+v", c)
	}
	if !strings.HasPrefix(c.Evidence[0], "rank 2 on b") || !strings.Contains(strings.Join(c.Evidence, "\n"), "all of its stack: b:/logs/rank-2.stacks") {
		t.Errorf("%s", strings.Join(c.Evidence, "\n"))
	}
}

func TestWhatIsAdvisedOfAHangIsWhatIsNotDoneYet(t *testing.T) {
	for _, c := range []struct {
		hang   string
		frames []string
		want   string
	}{
		{"", []string{waits, waits, "work (gl.py:9)", waits}, "see why rank 2 is in work (gl.py:9)"},
		{"", []string{waits, waits, waits, waits}, "compare the stacks of the ranks; where all wait in collectives, TORCH_DISTRIBUTED_DEBUG=DETAIL"},
		{"", []string{waits, "", waits, waits}, "py-spy dump --pid 41 on a, as root, shows where rank 1 is while it hangs"},
		{"action = \"stop\"", []string{waits, "", waits, waits}, "action = \"report\" } leaves it running"},
		{"stacks = false", []string{"", "", "", ""}, "hang { stacks = true }"},
		{"", []string{"", "", "", ""}, ""}, // what the class of a hang advises: how stacks are had
	} {
		cause := newGPUDrill(t, "hang {\n"+c.hang+"\n}").hangsIn(c.frames...)
		if all := strings.Join(cause.Advice, "\n"); !strings.Contains(all, c.want) || c.want == "" && all != "" {
			t.Errorf("%q %q: %s", c.hang, c.frames, all)
		}
	}
}

func TestTheLastLineOfEachRankIsEvidenceOfAHang(t *testing.T) {
	c := newGPUDrill(t, `hang { silence = "1m" }`).hangsIn(waits, waits, waits, waits)
	for rank := range 4 {
		want := fmt.Sprintf(`last line "step 4 of rank %d", last on stderr "13%%"`, rank)
		if !strings.HasPrefix(c.Evidence[rank], fmt.Sprint("rank ", rank, " on ")) || !strings.HasSuffix(c.Evidence[rank], want) {
			t.Errorf("%s lacks %s", c.Evidence[rank], want)
		}
	}
	if long := lastLine([]byte(strings.Repeat("x", 5000))); len(long) > longestLine+5 {
		t.Errorf("a long line takes %d bytes", len(long))
	}
}

func TestOfManyRanksThatHangSomeAreToldOfAndTheRestAreCounted(t *testing.T) {
	a := &asking{}
	d := newDrillOf(t, "")
	for rank := range 40 {
		a.seen = append(a.seen, hang.Seen{Pulse: hang.Pulse{Rank: rank}, Host: "a", Mark: observe.Nowhere})
	}
	lines := d.b.placesOf(a, new(30))
	if len(lines) != mostPlaces+1 || lines[mostPlaces] != "and 24 more" || !strings.HasPrefix(lines[0], "rank 30 on a") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// DDP over boards that PCIe joins has no groups, and is what hangs most often.
func TestBoardsThatPCIeJoinsAreSaidOfAHangOfAnyJobThatNCCLJoins(t *testing.T) {
	for _, c := range []struct {
		link gpu.Link
		more string
		want string // "": it is not said
	}{
		{"PIX", "", "on a, b GPUs are joined by PCIe, PIX (one PCIe bridge), not by NVLink: where an IOMMU or ACS is in the way of direct access (P2P), NCCL hangs in its first collectives; nccl { p2p_disable = true }"},
		{"NV4", "", ""},
		{"PIX", "nccl {\n p2p_disable = true\n }", ""},
		{"PIX", "env = { NCCL_P2P_LEVEL = \"NVL\" }", ""},
		{"PIX", "mode = \"independent\"", ""},
		{"PIX", "ranks {\n backend = \"gloo\"\n }", ""},
	} {
		d := newGPUDrill(t, c.more)
		for host := range 2 {
			d.b.plan.Facts[host].Devices.Links = [][]gpu.Link{{"X", c.link}, {c.link, "X"}}
		}
		all := strings.Join(d.b.hangFacts(nil), "\n")
		if said := strings.Contains(all, "PCIe"); said != (c.want != "") || !strings.Contains(all, c.want) {
			t.Errorf("%s with %q: %s", c.link, c.more, all)
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
	if d.b.phase != running || d.b.hanging.asking != nil || !d.says("moved or ended meanwhile") {
		t.Errorf("the phase is %d, asking %+v", d.b.phase, d.b.hanging.asking)
	}
}

// A host from which nothing is heard for a while has not moved by that.
func TestAHangIsNotSaidAgainBecauseItsHostWasNotHeard(t *testing.T) {
	d := newDrillOf(t, `hang { silence = "1m" }`).run()
	d.hangs()
	d.tick(16*time.Second, 0, 1, 2) // what was told is old
	d.hangs()
	if d.b.hanging.numbers != 1 {
		t.Errorf("where ranks are was asked %d times", d.b.hanging.numbers)
	}
}

// silentTask has a host tell that nothing has moved in a task for so many seconds.
func (d *drill) silentTask(task int, seconds float64) {
	r := d.b.ranks[task]
	d.news(r.host, message.Update{Started: &message.Started{Rank: task, Attempt: r.attempt, PID: 7}})
	d.news(r.host, message.Update{Pulses: &message.Pulses{Ranks: []hang.Pulse{
		{Rank: task, Attempt: r.attempt, Age: 10_000, Output: seconds, Told: seconds, CPU: seconds, Files: seconds},
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
	d.check("asked where it is", d.b.hanging.numbers, 1)
	d.taskEnded(0, 0, 4)
	d.news(0, message.Update{Started: &message.Started{Rank: 0, Attempt: 1, PID: 8}})
	d.tick(21*time.Second, 0, 1, 2)
	if d.b.ranks[0].attempt != 1 || len(d.sent(isStopOf(0))) != 0 || d.b.ranks[0].alone.hung != nil {
		t.Errorf("attempt %d, stops sent to %v", d.b.ranks[0].attempt, d.sent(isStopOf(0)))
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
		if a.event != nil && strings.Contains(a.event.Message, "c tells nothing of its ranks") {
			said++
		}
	}
	if said != 1 || d.says("nothing of its ranks since 0s") {
		t.Errorf("it was said %d times", said)
	}
}
