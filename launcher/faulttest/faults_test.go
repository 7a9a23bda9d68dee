//go:build linux

package faulttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// TestFaults runs a job of six ranks on three hosts for each of a number of seeds, lets
// happen to it what the seed says, and looks at what remains.
//
//	go test ./launcher/faulttest -run TestFaults/seed=17$     one seed again
//	MUSTER_FAULT_SEED=17     likewise; 17-40 for several
//	MUSTER_FAULT_SEEDS=100   how many, from 1 on; make chaos tries 500, and 100 sweeps
func TestFaults(t *testing.T) {
	tryAll(t, 20, decide)
}

// TestSweepFaults does the same with tasks of mode = "independent", and sees to it that each
// is done once. Its seeds are others'.
func TestSweepFaults(t *testing.T) {
	tryAll(t, 8, decideSweep)
}

// tryAll tries what is made of each seed, of this many unless the environment says otherwise.
func tryAll(t *testing.T, many uint64, decide func(seed uint64) scenario) {
	first, last := seeds(t, many)
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			bed := idle.take(t)
			fit := false
			t.Cleanup(func() { idle.give(t, bed, fit) })
			r := &trial{t: t, s: decide(seed), bed: bed}
			t.Log(r.s)
			t.Cleanup(func() { fit = r.isFit() })
			t.Cleanup(r.tell)
			r.prepare()
			r.strike()
			r.settle()
			r.judge()
			r.checkNothingLeft()
			r.checkLogs()
			if r.isSweep() {
				r.checkTasks()
				r.checkShown()
			}
		})
	}
}

func seeds(t *testing.T, many uint64) (first, last uint64) {
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if text := os.Getenv("MUSTER_FAULT_SEED"); text != "" {
		from, to, several := strings.Cut(text, "-")
		if !several {
			to = from
		}
		return number(from), number(to)
	}
	if text := os.Getenv("MUSTER_FAULT_SEEDS"); text != "" {
		return 1, number(text)
	}
	if replaying() {
		return 1, 1000
	}
	return 1, many
}

// replaying reports whether -run names a seed, which need not be among the first.
func replaying() bool {
	for _, arg := range os.Args {
		if strings.HasPrefix(arg, "-test.run=") && strings.Contains(arg, "seed=") {
			return true
		}
	}
	return false
}

// settle brings the run to its end, if it does not come to one by itself, and waits for it.
func (r *trial) settle() {
	r.undoing.Wait()
	if r.isGone() && !r.commits() {
		return
	}
	v := r.expect()
	switch {
	case v.certain:
	case v.unsure:
		waits(lease+2*time.Second, r.isOver)
	case len(r.faults) > 0:
		waits(300*time.Millisecond, r.isOver)
	}
	if !v.certain && !r.isOver() {
		r.bringToEnd()
	}
	began := time.Now()
	over := waits(r.bound(), r.isOver)
	for _, l := range r.stops {
		waits(r.bound(), l.hasEnded)
	}
	r.launch.signal(syscall.SIGKILL) // one that was stopped for good would be waited for
	r.note("over: %v, after %.1f s", over, time.Since(began).Seconds())
	if !over {
		r.t.Errorf("the run has not ended within %v", r.bound())
	}
}

// commits is for a launcher that was killed, or stopped for good: it waits until the run
// is committed all the same, or else nothing is left, for which there is the lease.
func (r *trial) commits() bool {
	if r.happened("committed") {
		return true
	}
	began := time.Now()
	limit := lease + slack/2
	gone := waits(limit, func() bool { return r.happened("committed") || len(r.leftovers()) == 0 })
	r.note("committed: %v, or nothing left: %v, after %.1f s", r.happened("committed"), gone, time.Since(began).Seconds())
	if !gone {
		r.t.Errorf("left within %v of a launcher that left before the start:\n%s", limit, strings.Join(r.leftovers(), "\n"))
	}
	return r.happened("committed")
}

// isOver reports whether the launcher has ended, or where it cannot, whether no worker is
// left.
func (r *trial) isOver() bool {
	if !r.isGone() {
		return r.launch.hasEnded()
	}
	if r.isSweep() { // between two tasks there may be none
		return len(r.leftovers()) == 0
	}
	for _, h := range r.bed.Hosts {
		processes, _ := h.Leftovers()
		if slices.ContainsFunc(processes, func(p testbed.Process) bool { return p.Name == "talker" }) {
			return false
		}
	}
	return true
}

// bringToEnd ends a run that goes on: by itself, or where a worker is stopped by the user.
func (r *trial) bringToEnd() {
	switch {
	case !r.hasSuspended():
		r.endWell()
	case !r.isGone():
		r.ask("Ctrl-C, as a worker is stopped")
	default:
		r.asked = true
		l := r.start("stop", "-")
		if r.isSweep() { // which may have failed before
			r.stops = append(r.stops, l)
			return
		}
		if !waits(r.bound(), l.hasEnded) || l.status() != 0 {
			r.t.Errorf("muster stop has not ended well: %s", l.stderr.String())
		}
	}
}

// judge compares how the run has ended with how it may.
func (r *trial) judge() {
	v := r.expect()
	judge := func(who string, exit int, words string) {
		for _, e := range v.endings {
			if e.fits(exit, words) {
				r.note("%s: exit status %d", who, exit)
				return
			}
		}
		r.t.Errorf("%s: exit status %d, want one of %v; it said:\n%s", who, exit, v.endings, words)
	}
	if !r.isGone() && r.launch.hasEnded() {
		judge("launcher", r.launch.status(), finalWords(r.launch.stderr.String()))
	}
	for _, l := range r.stops {
		if !l.hasEnded() {
			r.t.Errorf("%v has not ended", l.command.Args)
		} else if l.status() != 0 { // 0: stopped, or ended already
			judge("muster stop", l.status(), finalWords(l.stderr.String()))
		}
	}
	if report := r.report(); report != nil {
		words := fmt.Sprintf("all %ss ended well", r.unit())
		if c := report.FirstCause; c != nil {
			words = c.Message
		}
		if r.asked && r.isGone() && report.Exit == 143 {
			report.Exit, words = 130, "Ctrl-C" // muster stop took its place
		}
		if report.Exit != 129 { // the launcher says of it what it knows
			judge("report", report.Exit, words)
		}
	}
}

// report is what the tests read of a run's report.
type report struct {
	Exit       int
	Outcome    string
	FirstCause *struct {
		Host, Message string
		Rank          *int
	} `json:"first_cause"`
	Ranks []struct {
		Rank          int
		Host, Outcome string
	}
}

// report reads the run's; nil: there is none.
func (r *trial) report() *report {
	for _, path := range r.files(0, "report.json") {
		var found report
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &found)
		}
		if err == nil {
			return &found
		}
		r.t.Error(err)
	}
	return nil
}

// finalWords is the end of what the launcher says: its final screen, or its own error.
func finalWords(stderr string) string {
	from := max(strings.LastIndex(stderr, "\n✗ "), strings.LastIndex(stderr, "\n■ "))
	if from < 0 {
		from = max(0, strings.LastIndex(stderr, "muster: "))
	}
	return stderr[from:]
}

// checkNothingLeft waits until no process of the run is on the hosts, nor a socket or lock
// of it. Hosts that were cut off are looked at as they are.
func (r *trial) checkNothingLeft() {
	began := time.Now()
	waits(r.bound(), func() bool { return len(r.leftovers()) == 0 })
	left := r.leftovers()
	r.note("%d things left, after %.1f s", len(left), time.Since(began).Seconds())
	if len(left) > 0 {
		r.t.Errorf("left on the hosts:\n%s", strings.Join(left, "\n"))
	}
	for _, h := range r.bed.Hosts {
		keys, _ := filepath.Glob(filepath.Join(h.Home, ".local/state/muster/runs", r.name()+"-*", "*", "*"))
		for _, path := range keys {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("PRIVATE KEY")) {
				r.t.Errorf("%s holds a private key", path)
			}
		}
	}
}

func (r *trial) leftovers() (left []string) {
	for _, h := range r.bed.Hosts {
		processes, err := h.Leftovers()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, p := range processes {
			left = append(left, fmt.Sprintf("%s: %v", h.Name, p))
		}
		if h.PID() == 0 {
			continue
		}
		folders, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/tmp/*muster-*", h.PID()))
		for _, folder := range folders {
			if filepath.Base(folder) != filepath.Base(r.bed.Dir) { // the way to bed.Shared
				inside, _ := filepath.Glob(folder + "/*")
				left = append(left, fmt.Sprintf("%s: %s with %q", h.Name, folder, inside))
			}
		}
		sockets, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", h.PID()))
		for line := range strings.Lines(string(sockets)) {
			if strings.Contains(line, "@muster-run-") || strings.Contains(line, "@muster-port-") {
				left = append(left, h.Name+": lock "+strings.TrimSpace(line))
			}
		}
	}
	return left
}

// tell shows what happened, where something was wrong.
func (r *trial) tell() {
	if r.launch != nil {
		r.launch.signal(syscall.SIGKILL)
	}
	if !r.t.Failed() {
		if testing.Verbose() {
			r.t.Log("\n" + strings.Join(r.notes, "\n"))
		}
		return
	}
	r.t.Logf("what happened:\n%s", strings.Join(r.notes, "\n"))
	if r.launch == nil {
		return
	}
	r.t.Logf("standard error of muster:\n%s", mustersOwn(r.launch.stderr.String()))
	for i, h := range r.bed.Hosts {
		for _, path := range r.files(i, "agent.log") {
			text, _ := os.ReadFile(path)
			r.t.Logf("agent.log of %s:\n%s", h.Name, text)
		}
	}
	for _, path := range r.files(0, "events.jsonl") {
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			r.t.Logf("event: %.600s", line)
		}
	}
}

// mustersOwn leaves the workers' lines out.
func mustersOwn(stderr string) string {
	var own strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "node") || !strings.Contains(line, "| ") {
			own.WriteString(line[:min(len(line), 400)])
		}
	}
	return own.String()
}
