//go:build linux

package endtoend

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// B02, B04
func TestARankThatFailsTakesTheOthersAlongAtOnce(t *testing.T) {
	u := newUser(t, lend(t))
	began := time.Now()
	r := u.runJob(job{script: "[ $RANK = 1 ] && exit 5\nexec sleep 10000", hosts: three, more: longLease}).exits(5)
	if took := time.Since(began); took > atOnce {
		t.Errorf("it took %v", took)
	}
	r.says("✗ rank 1 on host-a ended with exit status 5", "ranks 0,2: stopped by muster (SIGTERM)")
}

// B31
func TestAWorkerThatSomebodyKilledIsNamedWithTheSignal(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: "echo $$ >" + u.path("pid-$RANK") + fmt.Sprintf(obedient, u.dir), hosts: three, more: longLease}))
	l.waitRunning(u, 3)
	signalTo(t, bed.Host("host-a"), process(t, bed.Host("host-a"), "sh", u.path("t.sh")), syscall.SIGKILL)
	l.waitFor(atOnce).exits(137).says("✗ rank 1 on host-a was killed by SIGKILL", "which muster did not send", "ranks 0,2: stopped by muster")
}

// B31
func TestAShellWhoseProgramWasKilledIsExplainedToo(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.runJob(job{script: "sh -c 'kill -KILL $$'\nexit $?", hosts: []string{"host-z"}}).exits(137).
		says("✗ rank 0 on host-z ended with exit status 137", "killed by SIGKILL", "which muster did not send")
}

// runOnThree starts a run whose workers obey on three hosts, and waits until they run.
func runOnThree(t *testing.T, lease string) (*testbed.Bed, *user, *launch) {
	t.Helper()
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(obedient, u.dir), hosts: three, more: lease}))
	l.waitRunning(u, 3)
	return bed, u, l
}

// B39
func TestTheLossOfAPartEndsTheRunAtOnceAndNamesIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, host string
		status     int
		says       string
	}{
		{agent, "host-a", 69, "the agent on host-a died"},
		{agent, "host-z", 69, "the agent on host-z died"},
		{keeper, "host-a", 69, "host-a ends its workers: its keeper died"},
		{keeper, "host-z", 69, "host-z ends its workers: its keeper died"},
		{coordinator, "host-z", 70, "lost its coordinator on host-z"},
	} {
		t.Run(c.part+" of "+c.host, func(t *testing.T) {
			bed, _, l := runOnThree(t, longLease)
			h := bed.Host(c.host)
			signalTo(t, h, inRole(t, h, c.part), syscall.SIGKILL)
			l.waitFor(atOnce).exits(c.status).says(c.says)
		})
	}
}

func TestAPartThatIsStoppedIsLostAfterTheLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, host string
		status     int
		says       string
	}{
		{agent, "host-a", 69, "host-a"},
		{keeper, "host-a", 69, "host-a ends its workers: its keeper is stopped or hangs"},
		{coordinator, "host-z", 70, "host-z"},
	} {
		t.Run(c.part, func(t *testing.T) {
			bed, _, l := runOnThree(t, shortLease)
			h := bed.Host(c.host)
			signalTo(t, h, inRole(t, h, c.part), syscall.SIGSTOP)
			l.wait().exits(c.status).says(c.says)
			nothingLeft(t, bed)
		})
	}
}

// The kernel ends no process that waits for a disk that hangs: then nobody answers and nobody
// is gone. No command waits for that without an end.
func TestACoordinatorThatCanNeitherAnswerNorBeEndedIsGivenUp(t *testing.T) {
	bed, u, l := runOnThree(t, shortLease)
	follows, looks := u.start("logs", "-", "--follow"), u.start("top", "-", "--json")
	h := bed.Host("host-z")
	thaw := freeze(t, inRole(t, h, coordinator)[0])
	l.wait().exits(69).says("the coordinator of run", "on host-z does not answer", "workers have ended on host-a, host-m")
	follows.wait().exits(69).says("on host-z does not answer")
	looks.wait().exits(69).says("on host-z does not answer")
	u.gone(h, 5*lease)
	all := []*launch{u.start("attach", "-"), u.start("stop", "-"), u.start("logs", "-", "--follow"), u.start("top", "-", "--json")}
	if got := u.run("status", "-").exits(0).stdout; !strings.Contains(got, "unknown") || !strings.Contains(got, "does not answer") {
		t.Errorf("muster status: %s", got)
	}
	attach := u.start("attach", "-")
	attach.waitToSay("does not answer; waiting")
	attach.signal(syscall.SIGINT)
	attach.waitFor(atOnce).exits(130).says("nothing was done to run")
	for _, command := range all {
		command.wait().exits(69).says("on host-z does not answer (for")
	}
	thaw()
}

// gone waits until none of the user's workers runs on a host.
func (u *user) gone(h *testbed.Host, limit time.Duration) {
	u.t.Helper()
	within(u.t, limit, func() string { return "the workers on " + h.Name + " have ended" }, func() bool {
		all, err := h.Leftovers()
		if err != nil {
			u.t.Fatal(err)
		}
		for _, p := range all {
			if strings.Contains(strings.Join(p.Args, " "), u.dir) {
				return false
			}
		}
		return true
	})
}

// B39
func TestAHostThatIsCutOffEndsItsWorkersByItself(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(stubborn, u.dir), hosts: three, more: shortLease + "stop {\n grace = \"1s\"\n}"}))
	l.waitRunning(u, 3)
	cut := bed.Host("host-m")
	if err := cut.CutSilently(); err != nil {
		t.Fatal(err)
	}
	u.gone(cut, 5*lease)
	r := l.wait().exits(69)
	r.says("✗ no answer from host-m for 3", "ranks 0-1: stopped by muster (SIGKILL)", "rank 2: its end is not known: host-m was lost")
}

// B40
func TestWhatOthersMakeOfALostHostIsNotTheCause(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: `
		cd ` + u.dir + `
		touch ready-$RANK
		while [ $RANK != 2 ] && [ ! -e cut ]; do sleep 0.05; done
		[ $RANK = 2 ] && exec sleep 10000
		sleep 2.5
		echo Socket Timeout >&2
		exit 1`, hosts: three, more: "lease = \"6s\""}))
	l.waitRunning(u, 3)
	if err := bed.Host("host-m").CutSilently(); err != nil {
		t.Fatal(err)
	}
	u.file("cut", "")
	r := l.wait().exits(69)
	if !strings.HasPrefix(r.finalScreen()[0], "✗ no answer from host-m") {
		t.Errorf("the final screen begins %q", r.finalScreen()[0])
	}
	r.says("ended with status 1 afterwards")
}

// B40
func TestTheLossOfTheHeadHostEndsTheOthersAndIsSaid(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testbed.Host) error{"cut off": (*testbed.Host).CutSilently, "without power": (*testbed.Host).Stop} {
		t.Run(name, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			u.ssh("host-z", "HostName "+bed.Host("host-z").Addr.String(), "ConnectTimeout 4")
			l := u.start("run", u.write(job{script: fmt.Sprintf(obedient, u.dir), hosts: three, more: shortLease}))
			l.waitRunning(u, 3)
			if err := lose(bed.Host("host-z")); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"host-a", "host-m"} {
				u.gone(bed.Host(name), 5*lease)
			}
			l.wait().exits(69).says("host-z, the head host", "workers have ended on host-a, host-m").saysNothingOf("deadline exceeded")
			runs := u.run("ps").exits(0)
			if !strings.Contains(runs.stdout, "unknown") || !strings.Contains(runs.stdout, "host-z") {
				t.Errorf("ps says\n%s", runs.stdout)
			}
		})
	}
}

func TestWhatOutlivedKeeperAndAgentIsSweptAtTheNextStart(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	path := u.write(job{script: `
		cd ` + u.dir + `
		setsid sh -c 'trap "" TERM HUP; touch daemon; while :; do sleep 0.1; done' &
		while [ ! -e daemon ]; do sleep 0.05; done` + fmt.Sprintf(obedient, u.dir), hosts: []string{"host-a"}, more: shortLease})
	l := u.start("run", path)
	l.waitRunning(u, 1)
	// The keeper first: the agent would be seen to die, and the rest ended.
	signalTo(t, h, append(inRole(t, h, keeper), inRole(t, h, agent)...), syscall.SIGKILL)
	l.wait().exits(69)
	u.write(job{script: "true", hosts: []string{"host-a"}})
	u.run("run", path).exits(0)
	u.gone(h, atOnce)
}

// A run waits half a minute for a launcher that is stopped. What that has not read by then it
// reads from the files.
func TestALauncherThatWasStoppedWhileItsRunEndedTellsHowAndShowsAll(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf("cd %s\ntouch ready\nuntil [ -e go ]; do sleep 0.05; done; seq 200000; exit 9", u.dir), hosts: []string{"host-a"}}))
	u.waitFor("ready")
	l.signal(syscall.SIGSTOP)
	u.file("go", "")
	eventually(t, "nothing is left", func() bool { return len(leftOn(t, bed)) == 0 })
	l.signal(syscall.SIGCONT)
	r := l.wait().exits(9)
	r.says("the run has ended out of sight", "rank 0 on host-a ended with exit status 9")
	want := 1
	for line := range strings.Lines(r.stdout) {
		if line != fmt.Sprintf("host-a:0| %d\n", want) {
			t.Fatalf("line %d is %q", want, line)
		}
		want++
	}
	if want != 200001 {
		t.Errorf("%d of 200000 lines are shown", want-1)
	}
}
