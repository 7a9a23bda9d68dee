//go:build linux

package faulttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// task is one of a sweep: how long each of its attempts takes, and their exit statuses, of
// which the last stands for all that follow.
type task struct {
	takes    time.Duration
	statuses []int
}

func (t task) words() string {
	var statuses []string
	for _, s := range t.statuses {
		statuses = append(statuses, fmt.Sprint(s))
	}
	return fmt.Sprintf("[\"%d\", %q]", t.takes.Milliseconds(), strings.Join(statuses, ","))
}

// byUser are what a user does to a sweep besides Ctrl-C.
var byUser = []choice{{user, askStop, 5}, {user, askNow, 3}, {user, askDrain, 5}, {user, goAndCome, 6}}

// decideSweep makes a scenario with tasks of a seed; it is always the same.
func decideSweep(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 4))
	s := scenario{
		seed:   seed,
		term:   pick(r, "default", "catch", "catch", "fail", "ignore"),
		daemon: pick(r, "none", "none", "none", "-"),
		pause:  []int{1000, 4000}[r.IntN(2)],
		grace:  time.Second + time.Duration(r.IntN(1000))*time.Millisecond,
	}
	for range 18 + r.IntN(5) {
		s.tasks = append(s.tasks, task{
			takes:    time.Duration(150+r.IntN(600)) * time.Millisecond,
			statuses: [][]int{{0}, {0}, {0}, {0}, {7, 0}, {7, 7, 0}}[r.IntN(6)],
		})
	}
	if r.IntN(3) > 0 {
		s.tasks[r.IntN(len(s.tasks))].statuses = []int{9}
	}
	when := []moment{starting, running, running, running, running}[r.IntN(5)]
	for n := 1 + r.IntN(2); len(s.faults) < n; {
		f := s.draw(r, when, append(byUser, late...))
		if f.when = running; len(s.faults) == 0 {
			f.when = when
		}
		if f.when == running {
			f.wait = time.Duration(r.IntN(1500)) * time.Millisecond
		}
		if s.bearable(f) {
			s.faults = append(s.faults, f)
		}
	}
	return s
}

// work is how long the tasks take where one host is left to do them.
func (s scenario) work() time.Duration {
	const start = 300 * time.Millisecond
	var all time.Duration
	for _, t := range s.tasks {
		all += (t.takes + start) * time.Duration(len(t.statuses)+1)
	}
	return all / perHost
}

func (r *trial) isSweep() bool { return len(r.s.tasks) > 0 }

func (r *trial) sweep() string {
	var tasks []string
	for _, t := range r.s.tasks {
		tasks = append(tasks, t.words())
	}
	return fmt.Sprintf(`job %q {
  command = [%q, %q, "%d", "%d", %q, %q]
  mode    = "independent"
  tasks   = [%s]
  lease   = %q
  hosts "ssh" {
    names = ["node[1-3]"]
  }
  ranks {
    per_host = %d
  }
  stop {
    grace = %q
  }
  restart {
    attempts = 4
    backoff  = "200ms"
    on "exit" {
      env = { STEP = "1" }
    }
    on "exit" {
      env = { STEP = "2" }
    }
  }
}
`, r.name(), r.talker, r.dir, r.s.seed, r.s.pause, r.s.term, r.s.daemon, strings.Join(tasks, ", "), lease, perHost, r.s.grace)
}

// start is an attempt at a task, as its worker has told of it.
type start struct {
	rank, attempt, host, pid int
	at                       int64 // ns of the machine's clock
	ended                    bool  // by itself
	status                   int   // then
}

// told reads what workers have told of themselves, in the order in which it was, and hands
// each line to take.
func (r *trial) told(take func(what string, host, rank, attempt, number int, at int64)) {
	for h, name := range hosts {
		text, _ := os.ReadFile(filepath.Join(r.dir, "lines-"+name)) // none has begun there
		for line := range strings.Lines(string(text)) {
			var what string
			var rank, attempt, number int
			var at int64
			if n, err := fmt.Sscanf(line, "%s %d %d %d %d\n", &what, &rank, &attempt, &number, &at); n < 5 || err != nil {
				r.t.Errorf("%q is no line of a worker: %v", line, err)
				continue
			}
			take(what, h, rank, attempt, number, at)
		}
	}
}

// begun are the attempts that have begun, in that order.
func (r *trial) begun() (all []*start) {
	r.told(func(what string, host, rank, attempt, number int, at int64) {
		switch what {
		case "begin":
			all = append(all, &start{rank: rank, attempt: attempt, host: host, pid: number, at: at})
		case "end":
			for _, s := range all {
				if s.rank == rank && s.attempt == attempt && s.host == host {
					s.ended, s.status = true, number
				}
			}
		}
	})
	slices.SortFunc(all, func(a, b *start) int { return int(a.at - b.at) })
	return all
}

// byTask sorts attempts by their tasks.
func byTask(all []*start) map[int][]*start {
	of := map[int][]*start{}
	for _, s := range all {
		of[s.rank] = append(of[s.rank], s)
	}
	return of
}

func (r *trial) pidOf(rank int) int {
	for _, s := range slices.Backward(r.begun()) {
		if s.rank == rank {
			return s.pid
		}
	}
	return 0
}

// chooseTask finds a task that runs for a fault of a worker.
func (r *trial) chooseTask(a *applied) error {
	var run []*start
	waits(search, func() bool {
		run = slices.DeleteFunc(r.begun(), func(s *start) bool { return s.ended })
		return len(run) > 0 || r.launch.hasEnded()
	})
	if len(run) == 0 {
		return errors.New("no task runs")
	}
	s := run[a.rank%len(run)]
	a.rank, a.host = s.rank, s.host
	return nil
}

// expectOfSweep says what may come of everything that has happened to tasks. A host that is
// lost, or a worker, does not end the run: it does so by itself once the work is done.
func (r *trial) expectOfSweep() verdict {
	v := verdict{certain: !r.hasSuspended() || r.asked}
	for _, a := range r.faults {
		v.endings = append(v.endings, r.outcomeOfSweep(a)...)
	}
	if r.asked {
		v.endings = append(v.endings, endsByUser)
	}
	well := 0
	for rank, starts := range byTask(r.begun()) {
		s := starts[len(starts)-1]
		switch {
		case s.ended && s.status == 0:
			well++
		case s.ended:
			v.endings = append(v.endings, ending{[]int{s.status}, fmt.Sprintf("task %d on %s ended with exit status %d", rank, hosts[s.host], s.status)})
		}
	}
	if well == len(r.s.tasks) {
		v.endings = append(v.endings, r.endsWell())
	}
	return v
}

// outcomeOfSweep is in which ways a run may end because of one fault.
func (r *trial) outcomeOfSweep(a *applied) []ending {
	switch {
	case a.part == worker && a.blow == kill:
		return []ending{{[]int{137}, fmt.Sprintf("task %d on %s was killed by SIGKILL", a.rank, hosts[a.host])}}
	case a.part == user && a.blow != goAndCome:
		return []ending{{[]int{143}, "stopped: " + strings.TrimSuffix(string(a.blow), " --now")}}
	case a.part == coordinator && (r.left || len(r.stops) > 0): // who comes then is told otherwise
		return append(a.afterCommit().endings, ending{[]int{69}, "coordinator"})
	}
	return a.afterCommit().endings
}

// isTouched reports whether a fault may have taken a host's tasks along.
func (r *trial) isTouched(h int) bool {
	return slices.ContainsFunc(r.faults, func(a *applied) bool {
		lasts := a.disables() || a.undo > shortEnough || a.part == host
		switch a.part {
		case agent:
			return lasts && a.host == h
		case keeper, host: // of the head host: the coordinator's too
			return lasts && (a.host == h || a.host == 0)
		case coordinator:
			return lasts
		}
		return false
	})
}

// touched is how many hosts are.
func (r *trial) touched() (n int) {
	for h := range hosts {
		if r.isTouched(h) {
			n++
		}
	}
	return n
}

// isKilled reports whether somebody has killed a task's worker.
func (r *trial) isKilled(rank int) bool {
	return slices.ContainsFunc(r.faults, func(a *applied) bool { return a.part == worker && a.rank == rank && a.blow == kill })
}

// isEnded reports whether the user has wanted an end.
func (r *trial) isEnded() bool {
	return r.asked || len(r.stops) > 0 || slices.ContainsFunc(r.faults, func(a *applied) bool { return a.blow == interrupt })
}

// checkTasks sees to it that each task was done once, and that the report says of it what
// its worker says.
func (r *trial) checkTasks() {
	r.t.Helper()
	r.told(func(what string, _, rank, attempt, _ int, _ int64) {
		if what == "twice" {
			r.t.Errorf("task %d has begun attempt %d while it ran", rank, attempt)
		}
	})
	of := byTask(r.begun())
	for rank, starts := range of {
		for i, s := range starts {
			if s.attempt != i || s.host != starts[0].host {
				r.t.Errorf("start %d of task %d is attempt %d on %s, the first was on %s", i, rank, s.attempt, hosts[s.host], hosts[starts[0].host])
			}
			if i > 0 && starts[i-1].ended && starts[i-1].status == 0 && !r.isKilled(rank) {
				r.t.Errorf("task %d has begun attempt %d after it had ended well", rank, s.attempt)
			}
		}
	}
	found := r.report()
	if found == nil {
		return
	}
	if len(found.Ranks) != len(r.s.tasks) {
		r.t.Errorf("the report has %d of %d tasks", len(found.Ranks), len(r.s.tasks))
	}
	counts := map[string]int{}
	for _, task := range found.Ranks {
		counts[task.Outcome]++
		if err := r.checkOutcome(task.Outcome, of[task.Rank]); err != nil {
			r.t.Errorf("the report says %q of task %d on %q: %v", task.Outcome, task.Rank, task.Host, err)
		}
	}
	r.note("outcomes: %v", counts)
	all := counts["ok"] == len(r.s.tasks)
	if found.Exit == 0 && !all || found.Exit != 0 && all && !r.isEnded() && r.touched() == 0 {
		r.t.Errorf("the exit status is %d, the tasks are %v", found.Exit, counts)
	}
}

// checkOutcome compares an outcome with what the workers of a task have told.
func (r *trial) checkOutcome(outcome string, starts []*start) error {
	switch touched := r.touched(); {
	case len(starts) > 0:
	case outcome == "ok", outcome != "not_run" && !r.isEnded() && touched == 0:
		return errors.New("it was not begun")
	case outcome == "not_run" && !r.isEnded() && touched < len(hosts):
		return errors.New("a host was left for it, and nobody has wanted an end")
	default:
		return nil
	}
	last := starts[len(starts)-1]
	well := last.ended && last.status == 0
	quiet := !r.isTouched(last.host) && !r.isEnded() && !r.isKilled(last.rank)
	switch {
	case outcome == "not_run":
		return errors.New("it was begun")
	case outcome == "ok" && !well:
		return fmt.Errorf("its attempt %d has not ended well", last.attempt)
	case outcome != "ok" && well && quiet:
		return fmt.Errorf("its attempt %d has ended well, and nothing has happened to it", last.attempt)
	case outcome != "failed" && !well && quiet:
		return fmt.Errorf("its attempt %d has failed, and nobody has wanted an end", last.attempt)
	}
	return nil
}

// checkShown looks at what launchers have shown of the tasks' output.
func (r *trial) checkShown() {
	r.t.Helper()
	of := byTask(r.begun())
	shown := map[int][2][]int64{}
	for lane, text := range []string{r.launch.stdout.String(), r.launch.stderr.String()} {
		for line := range strings.Lines(text) {
			if err := takeShown(shown, of, lane, strings.TrimSuffix(line, "\n")); err != nil {
				r.t.Errorf("stream %d of the launcher shows %.60q: %v", lane+1, line, err)
				break // others follow from it
			}
		}
	}
	if !r.seesAll() {
		return
	}
	for rank, starts := range of {
		if r.isTouched(starts[0].host) {
			continue
		}
		for lane := range 2 {
			if err := r.compareShown(shown[rank][lane], lane, starts); err != nil {
				r.t.Errorf("of stream %d of task %d: %v", lane+1, rank, err)
			}
		}
	}
}

// takeShown takes in one line that a launcher shows, of tasks that have begun.
func takeShown(shown map[int][2][]int64, of map[int][]*start, lane int, text string) error {
	prefix, said, ofTask := strings.Cut(text, "| ")
	if !ofTask || !strings.HasPrefix(prefix, "node") {
		if lane == 0 {
			return errors.New("no task has written it")
		}
		return nil
	}
	host, rank := "", 0
	if n, err := fmt.Sscanf(strings.Replace(prefix, ":", " ", 1), "%s %d", &host, &rank); n < 2 || err != nil {
		return fmt.Errorf("its prefix is of no task: %v", err)
	}
	var n int64
	for _, c := range said[:min(8, len(said))] {
		n = n*10 + int64(c) - int64("0A"[lane])
	}
	if n < 0 || said != string(line(lane, n)) {
		return errors.New("no task has written that line")
	}
	lines := shown[rank]
	before := lines[lane]
	if last := len(before) - 1; last >= 0 && n != before[last]+1 && n != 0 {
		return fmt.Errorf("it follows line %d", before[last])
	}
	lines[lane] = append(before, n)
	shown[rank] = lines
	if starts := of[rank]; len(starts) == 0 || hosts[starts[0].host] != host {
		return errors.New("the task was not begun there")
	}
	return nil
}

// seesAll reports whether the launcher has seen the whole run, or has come back to what it
// has missed. What it cannot reach any more it says.
func (r *trial) seesAll() bool {
	return !r.left && !r.isGone() && !strings.Contains(r.launch.stderr.String(), "meanwhile is not shown")
}

// compareShown compares the lines of a task that were shown with those that its attempts
// have counted, one after the other.
func (r *trial) compareShown(shown []int64, lane int, starts []*start) error {
	for i, s := range starts {
		counted, _ := r.record(s.rank, s.attempt)
		n, least := int64(0), counted.lines[lane]
		for len(shown) > 0 && shown[0] == n && n < least {
			shown, n = shown[1:], n+1
		}
		if n < least {
			return fmt.Errorf("attempt %d has written %d lines, %d are shown", s.attempt, least, n)
		}
		// One more may have got through just before a SIGKILL that came before the count. A
		// line 0 is rather the next attempt's.
		isMore := len(shown) > 0 && shown[0] == n
		if isMore && (n > 0 || i == len(starts)-1 || len(shown) > 1 && shown[1] == 0) {
			shown = shown[1:]
		}
	}
	if len(shown) > 0 {
		return fmt.Errorf("%d lines more are shown than were written, from line %d on", len(shown), shown[0])
	}
	return nil
}
