//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// object is what a command prints with --json. keys are those that it must have, and no
// others.
func (r result) object(keys ...string) map[string]any {
	r.t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &object); err != nil {
		r.t.Fatalf("%v in %s", err, r.stdout)
	}
	if object["version"] != 1.0 {
		r.t.Errorf("version %v", object["version"])
	}
	checkKeys(r.t, object, keys...)
	return object
}

func checkKeys(t testing.TB, object any, keys ...string) map[string]any {
	t.Helper()
	fields, ok := object.(map[string]any)
	if !ok {
		t.Fatalf("%v is no object", object)
	}
	for _, key := range keys {
		if _, ok := fields[key]; !ok {
			t.Errorf("there is no %q in %v", key, fields)
		}
	}
	for key := range fields {
		if !slices.Contains(keys, key) {
			t.Errorf("nobody knows of %q in %v", key, fields)
		}
	}
	return fields
}

// listed are the runs of ps --json.
func (u *user) listed() (runs []map[string]any) {
	u.t.Helper()
	object := u.run("ps", "--json").exits(0).object("version", "runs")
	for _, run := range object["runs"].([]any) {
		runs = append(runs, checkKeys(u.t, run, "run", "job", "state", "head", "started", "attempt", "exit"))
	}
	return runs
}

func TestADetachedRunIsListedShownReadAndStopped(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	if runs := u.listed(); len(runs) != 0 {
		t.Errorf("before the first run there are %v", runs)
	}
	u.runJob(job{name: "first", script: "echo first", hosts: []string{"host-a"}}).exits(0)
	began := time.Now()
	u.runJob(job{name: "second", script: "echo out $RANK; echo err $RANK >&2" + fmt.Sprintf(obedient, u.dir), hosts: []string{"host-z", "host-a"}, perHost: 2}, "--detach").
		exits(0).says("muster attach second-", "muster stop second-")
	runs := u.listed()
	if len(runs) != 2 {
		t.Fatalf("%d runs are listed: %v", len(runs), runs)
	}
	for i, want := range []string{"first ok host-a 0 0", "second running host-z 0 <nil>"} {
		r := runs[i]
		if got := fmt.Sprint(r["job"], " ", r["state"], " ", r["head"], " ", r["attempt"], " ", r["exit"]); got != want {
			t.Errorf("run %d is listed as %q, want %q", i, got, want)
		}
	}
	if started := runs[1]["started"].(float64); started < float64(began.Unix())-1 || started > float64(time.Now().Unix())+1 {
		t.Errorf("the run started at %v, and that was about %v", started, began.Unix())
	}
	id := runs[1]["run"].(string)
	table := u.run("ps").exits(0).stdout
	if lines := strings.Split(table, "\n"); !strings.HasPrefix(lines[0], "RUN ") || !strings.HasPrefix(lines[1], "first-") || !strings.HasPrefix(lines[2], id+" ") {
		t.Errorf("the table of runs is\n%s", table)
	}
	u.waitReady(4)

	status := u.run("status", id, "--json").exits(0).object("version", "run", "job", "state", "message", "attempt", "exit", "ranks", "others", "findings", "warnings")
	if status["state"] != "running" || status["exit"] != nil || len(status["ranks"].([]any)) != 4 {
		t.Errorf("the state is %v", status)
	}
	for rank, r := range status["ranks"].([]any) {
		fields := checkKeys(t, r, "rank", "host", "state", "attempt", "pid", "since", "log", "samples")
		if want := []string{"host-z", "host-a"}[rank/2]; fields["host"] != want || fields["rank"] != float64(rank) || fields["state"] != "running" {
			t.Errorf("rank %d is %v", rank, fields)
		}
	}
	if text := u.run("status", "-").exits(0).stdout; !strings.Contains(text, "RANK  HOST") || !strings.Contains(text, id+": running") {
		t.Errorf("status says\n%s", text)
	}

	logs := u.run("logs", id, "--rank", "3").exits(0)
	if logs.stdout != "host-a:3| out 3\n" || logs.stderr != "host-a:3| err 3\n" {
		t.Errorf("logs of rank 3: %q and %q", logs.stdout, logs.stderr)
	}
	u.run("logs", id, "--rank", "2,9").exits(64).says("has no rank 9: its ranks are 0 to 3")
	u.run("attach", id, "--ranks", "4").exits(64).says("has no rank 4")
	logs = u.run("logs", "second").exits(0)
	if n := strings.Count(logs.stdout, "| out "); n != 4 {
		t.Errorf("logs shows %d lines of 4 ranks: %q", n, logs.stdout)
	}
	follow := u.start("logs", "-f", "-", "--rank", "0")
	eventually(t, "logs -f shows what there is", func() bool { return follow.stdout.String() == "host-z:0| out 0\n" })

	u.run("report", id).exits(64).says("is not over")
	u.run("stop", id).exits(0)
	follow.wait().exits(0)
	// The report is made when agents have said that nothing is left; they and their keepers
	// take another moment, which nothingLeft bounds.
	workers := slices.DeleteFunc(leftOn(t, bed), func(left string) bool {
		return slices.ContainsFunc([]string{"muster-agent", "muster coordinator", "/tmp/muster-run-", " Z ["}, func(own string) bool { return strings.Contains(left, own) })
	})
	if len(workers) > 0 {
		t.Errorf("muster stop has ended before %q", workers)
	}
	nothingLeft(t, bed)
	u.run("stop", id).exits(0).says("has ended already")
	report := u.run("report", id, "--json").exits(0).object("version", "run", "job", "outcome", "exit", "first_cause", "attempts", "ranks", "left", "warnings", "findings")
	if report["outcome"] != "stopped" || report["exit"] != 143.0 || report["run"] != id || report["job"] != "second" {
		t.Errorf("the report is %v", report)
	}
	runs = u.listed()
	if r := runs[1]; r["state"] != "stopped" || r["exit"] != 143.0 {
		t.Errorf("the run is listed as %v", r)
	}
	u.run("attach", id).exits(143).says("■ stopped: muster stop")
	u.run("report", "first").exits(0)
	u.run("status", "no-such").exits(64).says("no run \"no-such\"")
}

func TestTheReportOfAFailureIsAsDocumented(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.runJob(job{script: "[ $RANK = 1 ] || exec sleep 1000\necho the reason; exit 7", hosts: []string{"host-z", "host-a"}}).exits(7)
	report := u.run("report", "-", "--json").exits(0).object("version", "run", "job", "outcome", "exit", "first_cause", "attempts", "ranks", "left", "warnings", "findings")
	if report["outcome"] != "failed" || report["exit"] != 7.0 {
		t.Errorf("outcome %v, exit %v", report["outcome"], report["exit"])
	}
	cause := checkKeys(t, report["first_cause"], "class", "message", "host", "rank", "attempt", "evidence", "numbers", "log", "tail", "confidence", "advice")
	if cause["class"] != "exit" || cause["host"] != "host-a" || cause["rank"] != 1.0 || cause["tail"] != "the reason\n" {
		t.Errorf("the cause is %v", cause)
	}
	attempt := checkKeys(t, report["attempts"].([]any)[0], "attempt", "started", "ended", "outcome", "class", "decision", "reason", "changes")
	if attempt["outcome"] != "failed" || attempt["class"] != "exit" || attempt["ended"].(float64) < attempt["started"].(float64) {
		t.Errorf("the attempt is %v", attempt)
	}
	ranks := report["ranks"].([]any)
	first := checkKeys(t, ranks[0], "rank", "host", "gpu", "ends", "memory_peak", "peaks")
	end := checkKeys(t, first["ends"].([]any)[0], "attempt", "exit", "signal", "stopped_by_muster", "log")
	if end["exit"] != nil || end["signal"] != "SIGTERM" || end["stopped_by_muster"] != "SIGTERM" {
		t.Errorf("rank 0 has ended so: %v", end)
	}
	second := checkKeys(t, ranks[1], "rank", "host", "gpu", "ends", "memory_peak", "peaks")
	end = checkKeys(t, second["ends"].([]any)[0], "attempt", "exit", "log")
	if end["exit"] != 7.0 {
		t.Errorf("rank 1 has ended so: %v", end)
	}
}

func TestStopNowGivesNoGrace(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(stubborn, u.dir), hosts: []string{"host-z", "host-a"}, more: "stop {\n grace = \"10m\"\n}"}))
	u.waitReady(2)
	u.run("stop", "-", "--now").exits(0)
	l.wait().exits(143).line("ranks 0-1: stopped by muster (SIGKILL)")
}

func TestAttachComesBackToARunWhoseLauncherIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		leave syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"stopped for good", syscall.SIGSTOP}} {
		t.Run(c.name, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			l := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir) + "\n[ $RANK = 1 ] || exit 0\nsleep 1\nexit 9", hosts: []string{"host-z", "host-a"}, more: shortLease}))
			u.waitReady(2)
			l.signal(c.leave)
			attached := u.start("attach", "-")
			attached.waitToSay("attached to t-")
			pass(t, lease+lease/2) // longer than a launcher may be silent before the start
			u.file("end", "")
			r := attached.wait().exits(9).says("✗ rank 1 on host-a ended with exit status 9")
			if n := strings.Count(r.stdout, "done\n"); n != 2 {
				t.Errorf("attach shows the last words of %d ranks", n)
			}
		})
	}
}

func TestCtrlCInAttachStopsTheRun(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.runJob(job{script: fmt.Sprintf(obedient, u.dir), hosts: []string{"host-z", "host-a"}}, "--detach").exits(0)
	u.waitReady(2)
	l := u.start("attach", "-")
	l.waitToSay("attached to t-")
	other := u.start("attach", "-")
	other.waitToSay("attached to t-")
	l.signal(syscall.SIGINT)
	l.wait().exits(130).says("■ stopped: Ctrl-C")
	other.wait().exits(130).says("■ stopped: Ctrl-C")
}

// An SSH connection that ends is nobody's wish.
func TestALostConnectionIsMadeAgainAndShowsEachLineOnce(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	head := bed.Host("host-z")
	l := u.start("run", u.write(job{script: fmt.Sprintf(counting, u.dir), hosts: []string{"host-z", "host-a"}}))
	l.waitRunning(u, 2)
	for again := range 3 {
		eventually(t, "lines are shown", func() bool { return strings.Contains(l.stdout.String(), "host-z:0| line 0") })
		signalTo(t, head, sessions(t, head), syscall.SIGKILL)
		within(t, patience, func() string { return "muster is connected again; it said:\n" + l.stderr.String() },
			func() bool { return strings.Count(l.stderr.String(), "connected again") == again+1 })
	}
	shown := len(l.stdout.String())
	eventually(t, "more lines are shown", func() bool { return len(l.stdout.String()) > shown })
	u.file("end", "")
	u.checkCounted(l.wait().exits(0))
}

// The laptop loses its network, the hosts do not.
func TestALauncherWithoutNetworkComesBack(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(counting, u.dir), hosts: []string{"host-z", "host-a"}, more: shortLease}))
	l.waitRunning(u, 2)
	link := linkTo(t, bed.Host("host-z"))
	setLink(t, link, "down")
	l.waitToSay("lost the connection to host-z")
	setLink(t, link, "up")
	l.waitToSay("connected again")
	u.file("end", "")
	r := l.wait().exits(0)
	u.checkCounted(r)
}

// A closed terminal leaves the run, also while the launcher is on its way back to it.
func TestALauncherWithoutNetworkCanBeLeft(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(counting, u.dir), hosts: []string{"host-z", "host-a"}, more: shortLease}))
	l.waitRunning(u, 2)
	link := linkTo(t, bed.Host("host-z"))
	setLink(t, link, "down")
	l.waitToSay("lost the connection to host-z")
	l.signal(syscall.SIGHUP)
	l.wait().exits(129).says("muster attach")
	setLink(t, link, "up")
	u.file("end", "")
}

// linkTo is the machine's interface that leads to a host.
func linkTo(t *testing.T, h *testbed.Host) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range all {
		addrs, _ := link.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Contains(h.Addr) {
				return link.Name
			}
		}
	}
	t.Fatalf("no interface leads to %s", h.Addr)
	return ""
}

func setLink(t *testing.T, link, state string) {
	t.Helper()
	if out, err := exec.Command("ip", "link", "set", link, state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if state == "down" {
		t.Cleanup(func() { _ = exec.Command("ip", "link", "set", link, "up").Run() })
	}
}

// counting is a worker that writes a line now and then until it is let.
const counting = `
cd %s
i=0
while [ ! -e end ]; do echo line $RANK $i; i=$((i+1)); touch ready-$RANK; sleep 0.02; done
echo $i >count-$RANK
echo done`

// checkCounted checks that each line of two counting ranks is shown once, in order.
func (u *user) checkCounted(r result) {
	u.t.Helper()
	for rank, host := range []string{"host-z", "host-a"} {
		var want []string
		for i := range mustInt(u.t, u.read(fmt.Sprintf("count-%d", rank))) {
			want = append(want, fmt.Sprintf("line %d %d", rank, i))
		}
		if got := r.linesOf(host, rank); !slices.Equal(got, append(want, "done")) {
			u.t.Errorf("of rank %d %d lines are shown, %d were written: %.2000q", rank, len(got), len(want)+1, got)
		}
	}
}

// The head host is off and on again; it knows of the run what was on its disk.
func TestARunWhoseHeadHostRebootedIsLost(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.runJob(job{script: fmt.Sprintf(obedient, u.dir), hosts: []string{"host-z", "host-a"}, more: shortLease}, "--detach").exits(0)
	u.waitReady(2)
	head := bed.Host("host-z")
	if err := head.Stop(); err != nil {
		t.Fatal(err)
	}
	u.gone(bed.Host("host-a"), 5*lease)
	if err := head.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run := u.listed()[0]; run["state"] != "lost" || run["exit"] != nil {
		t.Errorf("the run is listed as %v", run)
	}
	for _, command := range []string{"attach", "stop", "report"} {
		u.run(command, "-").exits(69).says("is lost")
	}
	u.run("status", "-").exits(0)
}

func mustInt(t testing.TB, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// sessions are the processes of sshd that serve connections to a host.
func sessions(t testing.TB, h *testbed.Host) (found []testbed.Process) {
	t.Helper()
	all, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		title := strings.Join(p.Args, " ")
		if strings.HasPrefix(title, "sshd: root") || strings.HasPrefix(title, "sshd-session: root") {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		t.Fatalf("nobody is connected to %s: %v", h.Name, all)
	}
	return found
}
