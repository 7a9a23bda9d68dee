//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon leaves a process that has left its session, its parent and its good manners.
const daemon = `
cd %[1]s
(setsid sh -c 'trap "" TERM HUP INT; echo $$ >daemon-$RANK; while :; do sleep 0.1; done' %[2]s &)
while [ ! -e daemon-$RANK ]; do sleep 0.02; done
`

// B37
func TestWhatARankLeavesBehindIsEndedAndReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, redirect, end string }{
		{"quiet", ">/dev/null 2>&1", "exit 0"},
		{"that holds the output open", "", "exit 0"},
		{"of a rank that ends by a signal", "", "kill -KILL $$"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			status := map[bool]int{true: 0, false: 137}[c.end == "exit 0"]
			r := u.runJob(job{script: fmt.Sprintf(daemon, u.dir, c.redirect) + "echo last words\n" + c.end, hosts: []string{"host-z", "host-a"},
				more: longLease + "stop {\n grace = \"300ms\"\n}"}).exits(status)
			r.says("outlived the rank and was ended")
			if n := strings.Count(r.stdout, "last words\n"); n != 2 {
				t.Errorf("the last words of 2 ranks are shown %d times", n)
			}
		})
	}
}

// B37, B01
func TestWhatARankHasStartedIsEndedWithIt(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(daemon, u.dir, "") + fmt.Sprintf(obedient, u.dir), hosts: []string{"host-z", "host-a"},
		more: longLease + "stop {\n grace = \"300ms\"\n}"}))
	u.waitReady(2)
	l.signal(syscall.SIGINT)
	l.waitFor(atOnce).exits(130)
	if left := leftOn(t, bed); len(left) > 0 {
		t.Errorf("muster has ended before %q", left)
	}
}

func TestOutputThatAStrangerHoldsOpenIsCutAfterTwoSeconds(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	l := u.start("run", u.write(job{script: fmt.Sprintf(`cd %s; echo $$ >pid; while [ ! -e end ]; do sleep 0.05; done; echo last words`, u.dir),
		hosts: []string{"host-a"}, more: longLease}))
	u.waitFor("pid")
	eventually(t, "the pid is written", func() bool { return strings.HasSuffix(u.read("pid"), "\n") })
	ctx, cancel := context.WithCancel(t.Context())
	stranger := make(chan error, 1)
	script := "exec 9>/proc/" + strings.TrimSpace(u.read("pid")) + "/fd/1; touch " + u.path("held") + "; exec sleep 1000"
	go func() { _, _, err := h.Run(ctx, "sh", "-c", script); stranger <- err }()
	defer func() { cancel(); <-stranger }()
	u.waitFor("held")
	u.file("end", "")
	r := l.waitFor(atOnce).exits(0).says("its output was still open 2 s after its last known process had ended")
	if !strings.Contains(r.stdout, "last words") {
		t.Errorf("standard output is %q", r.stdout)
	}
	select {
	case err := <-stranger:
		t.Errorf("the stranger has ended: %v", err)
	default:
	}
}

func TestProcessesThatAreNotOfTheRunAreNeverTouched(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	script := u.file("same.sh", fmt.Sprintf("cd %s; echo $$ >>pids; trap 'exit 0' TERM; while :; do sleep 0.1; done", u.dir))
	command := []string{"sh", script}
	ctx, cancel := context.WithCancel(t.Context())
	decoy := make(chan error, 1)
	go func() { _, _, err := h.Run(ctx, command...); decoy <- err }()
	defer func() { cancel(); <-decoy }()
	ready := func(n int) func() bool {
		return func() bool { return u.exists("pids") && strings.Count(u.read("pids"), "\n") == n }
	}
	eventually(t, "the decoy runs", ready(1))
	first := u.start("run", u.write(job{name: "first", command: command, hosts: []string{"host-a"}, more: longLease}))
	second := u.start("run", u.write(job{name: "second", command: command, hosts: []string{"host-a"}, more: longLease}))
	eventually(t, "the ranks of both runs run", ready(3))
	first.signal(syscall.SIGINT)
	first.wait().exits(130)
	if n := len(process(t, h, command...)); n != 2 {
		t.Errorf("%d processes of that command line are left, want the decoy and the other run's", n)
	}
	second.signal(syscall.SIGTERM)
	second.wait().exits(143)
	if n := len(process(t, h, command...)); n != 1 {
		t.Errorf("%d processes of that command line are left, want the decoy", n)
	}
	select {
	case err := <-decoy:
		t.Errorf("the decoy has ended: %v", err)
	default:
	}
}

// A worker in state D ignores SIGKILL: the freezer of cgroup v1 does the same to one.
func TestAWorkerThatCannotBeKilledIsNamedAndHoldsNothingUp(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	l := u.start("run", u.write(job{script: "touch " + u.path("ready-$RANK") + "\nexec sleep 10000", hosts: []string{"host-z", "host-a"},
		more: longLease + "stop {\n grace = \"300ms\"\n}"}))
	u.waitReady(2)
	sleeping := process(t, h, "sleep", "10000")
	thaw := freeze(t, sleeping[0])
	l.signal(syscall.SIGINT)
	r := l.waitFor(45 * time.Second).exits(130)
	r.says("cannot be killed", fmt.Sprintf("pid %d", sleeping[0].PID), "left over: host-a")
	thaw()
	nothingLeft(t, bed)
}
