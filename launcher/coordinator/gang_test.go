package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/gang"
	shared "github.com/muster-dev/muster/launcher/coordinator/machine"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/tasks"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// drill is a run of three hosts with two ranks each whose brain is fed by hand.
type drill struct {
	t    *testing.T
	m    machine
	core *shared.Machine
	b    *run.Run
	all  []run.Action // everything that was decided
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	return newDrillOf(t, "")
}

// newDrillOf is a drill of a job with more in it.
func newDrillOf(t *testing.T, more string) *drill {
	t.Helper()
	job, diags := config.Source{Filename: "job.hcl", Text: []byte(`job "j" {
  command = ["true"]
  hosts "ssh" {
    names = ["a", "b", "c"]
  }
  ranks {
    per_host = 2
  }
` + more + `
}`)}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	var hosts []facts.Host
	for i := range 3 {
		hosts = append(hosts, facts.Host{
			System: facts.System{ID: fmt.Sprint(i)},
			Network: facts.Network{NICs: []facts.NIC{
				{Name: "eth0", Up: true, Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}},
				{Name: "eth1", Up: true, Addresses: []string{fmt.Sprintf("10.1.0.%d", i+1)}},
			}},
		})
	}
	p, problems := lint.Plan(job, hosts)
	if problems != nil {
		t.Fatal(problems)
	}
	return drillOf(t, job, p)
}

// drillOf is a drill of a plan.
func drillOf(t *testing.T, job *config.Job, p *plan.Plan) *drill {
	t.Helper()
	m := newMachine(settingsOf("j-1", job), p, func(i link.Instant) float64 { return float64(i) })
	d := &drill{t: t, m: m, b: m.State()}
	switch m := m.(type) {
	case *gang.Gang:
		d.core = m.Machine
	case *tasks.Tasks:
		d.core = m.Machine
	}
	d.b.Now = link.Instant(time.Hour)
	return d
}

// next gives the machine an input.
func (d *drill) next(in run.Input) { d.all = append(d.all, d.m.Next(in, d.b.Now)...) }

func (d *drill) news(host int, n message.Update) {
	d.next(run.Update{Host: host, At: d.b.Now, Update: &n})
}

func (d *drill) after(pass time.Duration) { d.b.Now = d.b.Now.Add(pass) }

func reached(addr string, err string) link.Reach {
	return link.Reach{Addr: addr + ":4000", Local: addr, Error: err}
}

func (d *drill) join(host int) {
	d.next(run.Joined{Host: host})
	d.news(host, message.Update{Reached: &message.Reached{Complete: true, Results: []link.Reach{reached("10.0.0.1", ""), reached("10.1.0.1", "")}}})
}

func (d *drill) ready(host int) { d.news(host, message.Update{Prepared: &message.Prepared{}}) }

// run brings all hosts up and starts the workers.
func (d *drill) run() *drill {
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	for rank := range 6 {
		d.news(rank/2, message.Update{Started: &message.Started{Rank: rank, PID: 100 + rank}})
	}
	return d
}

func (d *drill) ended(rank int, e message.Ended) {
	e.Rank = rank
	d.news(rank/2, message.Update{Ended: &e})
}

// tick lets time pass in which the given hosts are heard.
func (d *drill) tick(pass time.Duration, heard ...int) {
	silentSince := d.b.Now
	d.after(pass)
	d.next(run.Tick{Heard: func(host int) (link.Instant, bool) {
		if slices.Contains(heard, host) {
			return d.b.Now, true
		}
		return silentSince, true
	}})
}

// end lets the hosts finish and returns the report.
func (d *drill) end(hosts ...int) *report.Report {
	d.t.Helper()
	d.next(run.Flushed{})
	for _, host := range hosts {
		d.news(host, message.Update{Finished: &message.Finished{}})
	}
	for _, a := range d.all {
		if a.End != nil {
			return a.End
		}
	}
	d.t.Fatalf("the run is not over; phase %d", d.b.Phase)
	return nil
}

func (d *drill) sent(want func(message.Command) bool) (hosts []int) {
	for _, a := range d.all {
		if a.Send != nil && want(a.Send.Command) {
			hosts = append(hosts, a.Send.Host)
		}
	}
	return hosts
}

func isStart(o message.Command) bool  { return o.Start != nil }
func isStop(o message.Command) bool   { return o.Stop != nil }
func isKill(o message.Command) bool   { return o.Stop != nil && o.Stop.Kill }
func isFinish(o message.Command) bool { return o.Finish != nil }

func (d *drill) check(what string, got, want any) {
	d.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestNoWorkerStartsBeforeEveryHostIsReady(t *testing.T) {
	d := newDrill(t)
	d.join(0)
	d.ready(0)
	d.join(1)
	d.ready(1)
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	d.join(2)
	d.check("starts with a host not ready", d.sent(isStart), []int{})
	d.ready(2)
	d.check("starts", d.sent(isStart), []int{0, 1, 2})
}

func TestAllRanksWellIsWell(t *testing.T) {
	d := newDrill(t).run()
	for rank := range 6 {
		d.ended(rank, message.Ended{})
	}
	r := d.end(0, 1, 2)
	d.check("outcome", r.Outcome, report.OK)
	d.check("exit", r.Exit, 0)
	d.check("stops", d.sent(isStop), []int{})
}

func TestTheFirstFailureStopsTheOthersAndIsTheCause(t *testing.T) {
	d := newDrill(t).run()
	d.ended(3, message.Ended{Code: 3})
	d.check("stops", d.sent(isStop), []int{0, 1, 2})
	for _, rank := range []int{0, 1, 2, 4, 5} {
		d.ended(rank, message.Ended{Signal: "SIGKILL", Sent: "SIGKILL"})
	}
	r := d.end(0, 1, 2)
	d.check("exit", r.Exit, 3)
	d.check("cause", *r.FirstCause.Rank, 3)
	d.check("host", r.FirstCause.Host, "b")
}

// News of an earlier failure can arrive after that of a later one.
func TestTheCauseIsFirstInTimeAndNotInArrival(t *testing.T) {
	d := newDrill(t).run()
	d.ended(5, message.Ended{Code: 1})
	d.next(run.Update{Host: 0, Update: &message.Update{Ended: &message.Ended{Rank: 0, Code: 7}}, At: d.b.Now.Add(-time.Second)})
	for _, rank := range []int{1, 2, 3, 4} {
		d.ended(rank, message.Ended{Sent: "SIGTERM", Signal: "SIGTERM"})
	}
	d.check("exit", d.end(0, 1, 2).Exit, 7)
}

func TestASignalGivesTheStatusThatAShellGives(t *testing.T) {
	d := newDrill(t).run()
	d.ended(0, message.Ended{Signal: "SIGSEGV"})
	for rank := 1; rank < 6; rank++ {
		d.ended(rank, message.Ended{Sent: "SIGTERM"})
	}
	d.check("exit", d.end(0, 1, 2).Exit, 139)
}

func TestEveryHostThatCannotPrepareIsNamedAtOnce(t *testing.T) {
	d := newDrill(t)
	for host := range 3 {
		d.join(host)
	}
	d.news(0, message.Update{Prepared: &message.Prepared{Error: "workdir: no such folder"}})
	d.check("finishes before all have answered", d.sent(isFinish), []int{})
	d.ready(1)
	d.news(2, message.Update{Prepared: &message.Prepared{Error: "setup ended with exit status 3", Output: []byte("oops")}})
	r := d.end(0, 1, 2)
	d.check("exit", r.Exit, report.ExitRefused)
	d.check("starts", d.sent(isStart), []int{})
	for _, part := range []string{"a: workdir", "c: setup ended"} {
		if !strings.Contains(r.FirstCause.Message, part) {
			t.Errorf("cause %q does not name %q", r.FirstCause.Message, part)
		}
	}
}

func TestRanksMeetWhereEveryHostWasSeenToReach(t *testing.T) {
	d := newDrill(t)
	for host := range 3 {
		d.next(run.Joined{Host: host})
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	for host := range 3 {
		first := reached("10.0.0.1", "")
		if host == 2 {
			first = reached("10.0.0.1", "no route")
		}
		d.news(host, message.Update{Reached: &message.Reached{Complete: true, Results: []link.Reach{first, reached("10.1.0.1", "")}}})
	}
	d.check("starts", d.sent(isStart), []int{0, 1, 2})
	d.check("address", d.core.PlanMeeting().MasterAddr, "10.1.0.1")
}

func TestNoCommonAddressIsRefusedWithATable(t *testing.T) {
	d := newDrill(t)
	for host := range 3 {
		d.next(run.Joined{Host: host})
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	for host := range 3 {
		results := []link.Reach{reached("10.0.0.1", ""), reached("10.1.0.1", "")}
		if host > 0 {
			results[host-1].Error = "no route"
		}
		d.news(host, message.Update{Reached: &message.Reached{Complete: true, Results: results}})
	}
	r := d.end(0, 1, 2)
	d.check("exit", r.Exit, report.ExitUnreachable)
	for _, part := range []string{"10.0.0.1 (eth0) from b: no route", "10.1.0.1 (eth1) from c: no route"} {
		if !strings.Contains(r.FirstCause.Message, part) {
			t.Errorf("no %q in %q", part, r.FirstCause.Message)
		}
	}
}

func TestALostConnectionStopsTheOthersAtOnce(t *testing.T) {
	d := newDrill(t).run()
	d.next(run.Dropped{Host: 1, Why: "EOF"})
	d.check("stops", d.sent(isStop), []int{0, 1, 2})
	for _, rank := range []int{0, 1, 4, 5} {
		d.ended(rank, message.Ended{Sent: "SIGTERM"})
	}
	d.check("waits for the lost host", d.b.Phase, run.Stopping)
	d.tick(d.b.Job.Lease, 0, 2)
	r := d.end(0, 2)
	d.check("class", r.FirstCause.Class, class.AgentLost)
	d.check("host", r.FirstCause.Host, "b")
	d.check("exit", r.Exit, report.ExitUnreachable)
}

func TestAHostWhoseKeeperHasEndedIsNotWaitedFor(t *testing.T) {
	d := newDrill(t).run()
	d.next(run.Dropped{Host: 1, Why: "EOF"})
	d.next(run.Empty{Host: 1})
	for _, rank := range []int{0, 1, 4, 5} {
		d.ended(rank, message.Ended{Sent: "SIGTERM"})
	}
	d.check("exit", d.end(0, 2).Exit, report.ExitUnreachable)
}

func TestASilentHostIsLostAfterTheLease(t *testing.T) {
	d := newDrill(t).run()
	d.tick(d.b.Job.Lease-time.Second, 0, 1)
	d.check("stops within the lease", d.sent(isStop), []int{})
	d = newDrill(t).run()
	d.tick(d.b.Job.Lease, 0, 1)
	d.check("stops", d.sent(isStop), []int{0, 1})
	for rank := range 4 {
		d.ended(rank, message.Ended{Sent: "SIGTERM"})
	}
	r := d.end(0, 1)
	d.check("class", r.FirstCause.Class, class.HostLost)
	if !strings.HasPrefix(r.FirstCause.Message, "no answer from c for 30s") {
		t.Errorf("cause %q", r.FirstCause.Message)
	}
}

// Socket errors of others may come long before a silent host counts as lost.
func TestAHostThatWasSilentBeforeAWorkerFailedIsTheCause(t *testing.T) {
	for name, c := range map[string]struct {
		silent time.Duration // before the failure
		class  string
	}{
		"silent for some heartbeats": {3 * time.Second, class.HostLost},
		"heard a moment ago":         {300 * time.Millisecond, class.Exit},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrill(t).run()
			heard := d.b.Now
			d.after(c.silent)
			d.ended(1, message.Ended{Code: 1})
			for _, rank := range []int{0, 2, 3} {
				d.ended(rank, message.Ended{Sent: "SIGTERM"})
			}
			d.after(d.b.Job.Lease)
			d.next(run.Tick{Heard: func(host int) (link.Instant, bool) {
				return []link.Instant{d.b.Now, d.b.Now, heard}[host], true
			}})
			r := d.end(0, 1)
			d.check("class", r.FirstCause.Class, c.class)
		})
	}
}

// The others' socket errors come after the loss that made them.
func TestWhatWorkersMakeOfALostHostIsNoCause(t *testing.T) {
	d := newDrill(t).run()
	d.next(run.Dropped{Host: 0, Why: "EOF"})
	d.after(time.Millisecond)
	for _, rank := range []int{2, 3, 4, 5} {
		d.ended(rank, message.Ended{Code: 1, Tail: []byte("Socket Timeout")})
	}
	d.next(run.Empty{Host: 0})
	r := d.end(1, 2)
	d.check("class", r.FirstCause.Class, class.AgentLost)
	d.check("host", r.FirstCause.Host, "a")
}

func TestCtrlCLadder(t *testing.T) {
	d := newDrill(t).run()
	d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"})
	d.check("stops", d.sent(isStop), []int{0, 1, 2})
	d.check("kills", d.sent(isKill), []int{})
	d.next(run.Stop{Exit: 130, Reason: "Ctrl-C", Kill: true})
	d.check("kills", d.sent(isKill), []int{0, 1, 2})
	for rank := range 6 {
		d.ended(rank, message.Ended{Sent: "SIGKILL", Signal: "SIGKILL"})
	}
	r := d.end(0, 1, 2)
	d.check("exit", r.Exit, 130)
	d.check("outcome", r.Outcome, report.Stopped)
}

// A Ctrl-C that comes when everything is done changes nothing; one that a rank was sent does.
func TestAStopAfterTheLastEndIsNoStop(t *testing.T) {
	for sent, want := range map[string]string{"": report.OK, "SIGTERM": report.Stopped} {
		d := newDrill(t).run()
		d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"})
		for rank := range 6 {
			e := message.Ended{}
			if rank == 5 {
				e.Sent = sent
			}
			d.ended(rank, e)
		}
		r := d.end(0, 1, 2)
		d.check("outcome", r.Outcome, want)
		d.check("exit", r.Exit == 0, want == report.OK)
	}
}

func TestAStopBeforeTheStartLeavesNothing(t *testing.T) {
	d := newDrill(t)
	d.join(0)
	d.join(1)
	d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"})
	d.check("finishes", d.sent(isFinish), []int{0, 1})
	d.next(run.Joined{Host: 2}) // too late
	d.check("finishes", d.sent(isFinish), []int{0, 1, 2})
	d.check("exit", d.end(0, 1, 2).Exit, 130)
	d.check("starts", d.sent(isStart), []int{})
}

func TestASetupThatWasEndedIsNoReasonForTheEnd(t *testing.T) {
	d := newDrill(t)
	for host := range 3 {
		d.join(host)
	}
	d.next(run.Stop{Exit: report.ExitInterrupted, Reason: "Ctrl-C"})
	d.news(1, message.Update{Prepared: &message.Prepared{Error: "setup ended with killed by SIGTERM"}})
	r := d.end(0, 1, 2)
	d.check("exit", r.Exit, report.ExitInterrupted)
	d.check("outcome", r.Outcome, report.Stopped)
}

func TestALauncherThatLeavesEndsOnlyWhatIsNotCommitted(t *testing.T) {
	d := newDrill(t).run()
	d.next(run.LauncherLeft{})
	d.check("stops", d.sent(isStop), []int{})
	d = newDrill(t)
	d.join(0)
	d.next(run.LauncherLeft{})
	d.check("finishes", d.sent(isFinish), []int{0})
}

func TestAnEarlyExitIsSaidAndThenFails(t *testing.T) {
	d := newDrill(t).run()
	d.ended(0, message.Ended{})
	d.tick(d.b.Job.EarlyExit.Notice, 0, 1, 2)
	warned := slices.ContainsFunc(d.all, func(a run.Action) bool { return a.Event != nil && a.Event.Kind == event.Warning })
	d.check("said", warned, true)
	d.check("stops", d.sent(isStop), []int{})
	d.tick(d.b.Job.EarlyExit.Limit, 0, 1, 2)
	d.check("stops", d.sent(isStop), []int{0, 1, 2})
	for rank := 1; rank < 6; rank++ {
		d.ended(rank, message.Ended{Sent: "SIGTERM"})
	}
	r := d.end(0, 1, 2)
	d.check("class", r.FirstCause.Class, class.EarlyExit)
	d.check("exit", r.Exit, report.ExitTimeout)
}

func TestRanksThatEndUnevenlyButWellAreNoFailure(t *testing.T) {
	d := newDrill(t).run()
	for rank := range 6 {
		d.ended(rank, message.Ended{})
		d.tick(time.Minute, 0, 1, 2)
	}
	d.check("exit", d.end(0, 1, 2).Exit, 0)
}

func TestNewsOfAnotherAttemptIsDropped(t *testing.T) {
	d := newDrill(t).run()
	d.ended(0, message.Ended{Attempt: 7, Code: 1})
	d.check("stops", d.sent(isStop), []int{})
}

func TestASignalIsPassedOnOnceToEachHost(t *testing.T) {
	d := newDrill(t).run()
	d.next(run.Signal{Name: "SIGUSR1"})
	d.check("signals", d.sent(func(o message.Command) bool { return o.Signal != nil }), []int{0, 1, 2})
}

func TestAnEndWhileThePortOfTheNextAttemptIsTaken(t *testing.T) {
	for name, end := range map[string]func(*drill){
		"by the user":    func(d *drill) { d.next(run.Stop{Exit: 130, Reason: "Ctrl-C"}) },
		"by a lost host": func(d *drill) { d.next(run.Dropped{Host: 1, Why: "EOF"}); d.next(run.Empty{Host: 1}) },
		"as there is no port": func(d *drill) {
			d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: 1, Error: "none is free"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrill(t).run()
			d.ended(0, message.Ended{Code: 1, Tail: []byte("EADDRINUSE 20000")})
			for rank := 1; rank < 6; rank++ {
				d.ended(rank, message.Ended{Sent: "SIGTERM", Signal: "SIGTERM"})
			}
			d.check("phase", d.b.Phase, run.Restarting)
			end(d)
			r := d.end(0, 1, 2)
			d.check("starts", len(d.sent(isStart)), 3)
			if r.Exit == 0 {
				t.Error("exit status 0 after a failure")
			}
		})
	}
}
