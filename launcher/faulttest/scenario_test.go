//go:build linux

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// lease is that of every run.
const lease = 3 * time.Second

// perHost is how many ranks a host has.
const perHost = 2

// moment is when in a run's life something happens to it.
type moment string

const (
	connecting moment = "connecting" // nothing has begun on some of the hosts
	settingUp  moment = "setup"      // the job's setup runs
	starting   moment = "start"      // the run is committed a moment ago
	running    moment = "running"    // every rank has written something
	stopping   moment = "stopping"   // the user has asked for the end
)

// part is what something happens to.
type part string

const (
	worker      part = "worker"
	agent       part = "agent"
	keeper      part = "keeper"
	coordinator part = "coordinator"
	launcher    part = "launcher"
	session     part = "session" // of sshd, for the launcher's connection
	host        part = "host"
	user        part = "user" // who does something from the launcher's machine
)

// blow is what happens.
type blow string

const (
	kill      blow = "SIGKILL"
	stop      blow = "SIGSTOP"
	interrupt blow = "SIGINT"
	cut       blow = "cut"     // carrier lost
	silence   blow = "silence" // every frame dropped
	powerOff  blow = "power off"
	askStop   blow = "muster stop"
	askNow    blow = "muster stop --now"
	askDrain  blow = "muster stop --drain"
	goAndCome blow = "SIGHUP and muster attach"
)

// fault is one thing that happens to a run.
type fault struct {
	part part
	blow blow
	host int // index into hosts
	rank int // of a worker; of tasks, which of those that run then
	when moment
	wait time.Duration // after the moment has come; of the second fault: after the first
	undo time.Duration // SIGCONT, or healed, after so long; 0: never
}

func (f fault) String() string {
	text := fmt.Sprintf("%s: %s", f.part, f.blow)
	switch f.part {
	case worker:
		text = fmt.Sprintf("rank %d: %s", f.rank, f.blow)
	case agent, keeper, session, host:
		text = fmt.Sprintf("%s of %s: %s", f.part, hosts[f.host], f.blow)
	}
	if f.undo > 0 {
		text += fmt.Sprintf(" for %v", f.undo)
	}
	return text
}

// disables reports whether the part does nothing more after it.
func (f fault) disables() bool {
	return f.blow == kill || f.undo == 0 && (f.blow == stop || f.part == host)
}

// scenario is all that a seed decides.
type scenario struct {
	seed   uint64
	grace  time.Duration
	term   string        // what workers do on SIGTERM, in words of the worker
	daemon string        // what their double-forked child does, likewise
	pause  int           // µs between two of their lines
	setup  time.Duration // how long it takes
	bare   bool          // hosts have no copy of muster yet
	tasks  []task        // that independent workers do; none: ranks work together
	faults []fault
}

func (s scenario) String() string {
	var faults []string
	for i, f := range s.faults {
		at := fmt.Sprintf("%s + %v", f.when, f.wait)
		if i > 0 {
			at = fmt.Sprintf("%v later", f.wait)
		}
		faults = append(faults, fmt.Sprintf("%v (%s)", f, at))
	}
	return fmt.Sprintf("seed %d: %d tasks, grace %v, workers: SIGTERM %s, daemon %s, a line each %d µs; setup %v, bare %v; faults: %s",
		s.seed, len(s.tasks), s.grace, s.term, s.daemon, s.pause, s.setup, s.bare, strings.Join(faults, "; "))
}

// choice is a kind of fault with its weight among the others.
type choice struct {
	part   part
	blow   blow
	weight int
}

// before the workers run, and from then on.
var (
	early = []choice{
		{agent, kill, 3}, {agent, stop, 3}, {keeper, kill, 3}, {keeper, stop, 3}, {coordinator, kill, 2}, {coordinator, stop, 2},
		{launcher, kill, 4}, {launcher, stop, 4}, {launcher, interrupt, 4}, {session, kill, 4},
		{host, cut, 2}, {host, silence, 2}, {host, powerOff, 2},
	}
	late = append([]choice{{worker, kill, 6}, {worker, stop, 3}}, early...)
)

// decide makes a scenario of a seed; it is always the same.
func decide(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 3))
	s := scenario{
		seed:   seed,
		term:   pick(r, "default", "catch", "catch", "fail", "ignore"),
		daemon: pick(r, "none", "none", "-", "i", "io", "o"),
		pause:  []int{300, 1000, 4000}[r.IntN(3)],
		setup:  time.Duration(r.IntN(100)) * time.Millisecond,
		bare:   r.IntN(10) == 0,
	}
	s.grace = time.Second + time.Duration(r.IntN(1000))*time.Millisecond
	when := []moment{connecting, connecting, settingUp, settingUp, starting, starting, running, running, running, stopping}[r.IntN(10)]
	if when == settingUp {
		s.setup = time.Second
	}
	for n := faultCount(r); len(s.faults) < n; {
		choices := late
		if when == connecting || when == settingUp {
			choices = early
		}
		f := s.draw(r, when, choices)
		if len(s.faults) > 0 {
			f.wait = time.Duration(r.IntN(1500)) * time.Millisecond
			if when == starting {
				f.when = running
			}
		}
		if s.bearable(f) {
			s.faults = append(s.faults, f)
		}
	}
	return s
}

// faultCount: one in most cases, sometimes none.
func faultCount(r *rand.Rand) int {
	return []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2}[r.IntN(20)]
}

func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

// draw makes up a fault, one of some choices.
func (s *scenario) draw(r *rand.Rand, when moment, choices []choice) fault {
	c := weighted(r, choices)
	f := fault{part: c.part, blow: c.blow, host: r.IntN(len(hosts)), rank: r.IntN(len(hosts) * perHost), when: when}
	switch c.part {
	case coordinator, launcher, user:
		f.host = 0
	case worker:
		f.host = f.rank / perHost
	}
	longest := map[moment]int{connecting: 400, settingUp: 800, starting: 40, running: 700, stopping: int(s.grace.Milliseconds())}[when]
	f.wait = time.Duration(r.IntN(longest)) * time.Millisecond
	if c.blow == stop || c.blow == cut || c.blow == silence {
		f.undo = []time.Duration{0, 0, 800, 1500, 4500}[r.IntN(5)] * time.Millisecond
	}
	return f
}

func weighted(r *rand.Rand, choices []choice) choice {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := r.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c
		}
	}
	panic("n was less than the sum of all weights")
}

// bearable reports whether muster promises a clean end after one more fault. Keeper and
// agent look after each other: when both are gone, or one is gone while the other is
// stopped, a grandchild may stay until the next start on that host sweeps it up. And
// nothing happens twice to the same part; who leaves the run has a launcher to leave with
// that is not on its way back to the head host.
func (s *scenario) bearable(f fault) bool {
	for _, other := range s.faults {
		same := f.part == other.part && f.host == other.host && (f.part != worker || f.rank == other.rank)
		pair := f.part != other.part && f.host == other.host && (f.part == keeper || f.part == agent) && (other.part == keeper || other.part == agent)
		leaves := f.blow == goAndCome && other.bindsLauncher() || other.blow == goAndCome && f.bindsLauncher()
		if same || pair || leaves {
			return false
		}
	}
	return true
}

// bindsLauncher reports whether a launcher may be unable to leave after it.
func (f fault) bindsLauncher() bool {
	return f.part == launcher || f.host == 0 && (f.part == session || f.part == host)
}
