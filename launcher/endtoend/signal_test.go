//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// B41
func TestCtrlCDuringAnUploadStopsItAtOnce(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	on(t, h, "rm", "-rf", "/root/.cache/muster")
	const rate = 256 << 10 // the agent alone takes some 15 s
	if err := h.SetRate(rate); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.SetRate(0); err != nil {
			t.Error(err)
		}
	})
	l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "host-a"}}))
	cached := func() (files []string) { return onHost(h, "/root/.cache/muster/*/*") }
	eventually(t, "something of muster arrives", func() bool {
		for _, file := range append(cached(), onHost(h, "/root/.cache/muster/*")...) {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
				return true
			}
		}
		return false
	})
	began := time.Now()
	l.signal(syscall.SIGINT)
	l.wait().exits(130).says("Ctrl-C before the start")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}

// B06
func TestARunInTheBackgroundKeepsIgnoringWhatItsShellHadIgnored(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.deaf = true
	l := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z", "host-a"}}))
	u.waitReady(2)
	for range 3 {
		l.signal(syscall.SIGHUP)
		l.signal(syscall.SIGINT) // of a script's "&"
	}
	u.file("end", "")
	r := l.wait().exits(0).saysNothingOf("SIGHUP", "Ctrl-C")
	if n := strings.Count(r.stdout, "done\n"); n != 2 {
		t.Errorf("%d ranks are seen to be done:\n%s", n, r.stdout)
	}
}

func TestSIGQUITShowsWhereTheRunStands(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: "[ $RANK = 1 ] && exit 0\n" + fmt.Sprintf(untilEnd, u.dir), hosts: three}))
	u.waitFor("ready-0", "ready-2")
	head := bed.Host("host-z")
	pid := process(t, head, "sh", u.path("t.sh"))[0].PID
	var table string
	for i := 1; strings.Contains(table, "not started") || !strings.Contains(table, "ended"); i++ { // news may be on its way
		l.signal(syscall.SIGQUIT)
		eventually(t, "the state is shown", func() bool { return strings.Count(l.stderr.String(), "RANK  HOST") == i })
		text := l.stderr.String()
		table = text[strings.LastIndex(text, "RANK  HOST"):]
	}
	u.file("end", "")
	l.wait().exits(0)
	for rank, want := range []string{fmt.Sprintf(`host-z running .* %d`, pid), `host-a ended`, `host-m running`} {
		line := strings.Join(strings.Fields(strings.Split(table, "\n")[rank+1]), " ")
		if !regexp.MustCompile(fmt.Sprintf("^%d %s\\b", rank, want)).MatchString(line) {
			t.Errorf("of rank %d the table says %q", rank, line)
		}
	}
}

func TestALauncherThatIsSuspendedHarmsNoRun(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: three, more: shortLease}))
	u.waitReady(3)
	l.signal(syscall.SIGTSTP)
	eventually(t, "muster is stopped", func() bool { return stateOf(l.command.Process.Pid) == "T" })
	pass(t, lease+lease/2)
	l.signal(syscall.SIGCONT)
	u.file("end", "")
	r := l.wait().exits(0).saysNothingOf("warning", "lost")
	if n := strings.Count(r.stdout, "done\n"); n != 3 {
		t.Errorf("%d ranks are seen to be done:\n%s", n, r.stdout)
	}
}

func TestASuspendedLauncherHearsTheEndWhenItGoesOn(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir) + "\n[ $RANK = 0 ] || exit 0\nsleep 1\nexit 3", hosts: []string{"host-z", "host-a"}, more: shortLease}))
	u.waitReady(2)
	l.signal(syscall.SIGTSTP)
	eventually(t, "muster is stopped", func() bool { return stateOf(l.command.Process.Pid) == "T" })
	u.file("end", "")
	u.gone(bed.Host("host-z"), patience)
	u.gone(bed.Host("host-a"), patience)
	pass(t, 8*time.Second) // longer than the hosts wait for somebody to hear the end
	l.signal(syscall.SIGCONT)
	r := l.wait().exits(3)
	if n := strings.Count(r.stdout, "done\n"); n != 2 {
		t.Errorf("%d ranks are seen to be done:\n%s\n%s", n, r.stdout, r.stderr)
	}
}

func TestUserSignalsComeToEveryRankExactlyOnce(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(`
		cd %s
		trap 'echo USR1 >>told-$RANK' USR1
		trap 'echo USR2 >>told-$RANK' USR2
		sh -c 'trap "echo child >>told-$RANK" USR1 USR2; while [ ! -e end ]; do sleep 0.05; done' &
		touch ready-$RANK
		while [ ! -e end ]; do sleep 0.05; done
		wait`, u.dir), hosts: []string{"host-z", "host-a"}, perHost: 2}))
	u.waitReady(4)
	want := ""
	for _, s := range []struct {
		signal syscall.Signal
		word   string
	}{{syscall.SIGUSR1, "USR1\n"}, {syscall.SIGUSR2, "USR2\n"}, {syscall.SIGUSR1, "USR1\n"}} {
		l.signal(s.signal)
		want += s.word
		for rank := range 4 {
			name := fmt.Sprintf("told-%d", rank)
			eventually(t, name+" holds "+want, func() bool { return u.exists(name) && len(u.read(name)) >= len(want) })
		}
	}
	u.file("end", "")
	l.wait().exits(0)
	for rank := range 4 {
		if got := u.read(fmt.Sprintf("told-%d", rank)); got != want {
			t.Errorf("rank %d was told %q, want %q", rank, got, want)
		}
	}
}
