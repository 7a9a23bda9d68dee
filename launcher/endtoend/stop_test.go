//go:build linux

package endtoend

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// catching is a worker that notes what it is sent and ends by itself on SIGTERM, once the
// test has let it.
const catching = `
cd %[1]s
trap 'touch int-$RANK' INT
trap 'touch term-$RANK; while [ ! -e let ]; do sleep 0.02; done; echo saved; exit 0' TERM
touch ready-$RANK
while :; do sleep 0.02; done`

// stubborn is a worker that ends on SIGKILL alone.
const stubborn = `
trap "" TERM INT
touch %[1]s/ready-$RANK
while :; do sleep 0.05; done`

func TestTheFirstCtrlCGivesWorkersTheirGrace(t *testing.T) {
	bed := threeHosts(t)
	for _, hosts := range [][]string{nil, {"host-z", "host-a"}} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, bed)
			if hosts == nil {
				u.sittingAt("host-z")
			}
			l := u.start("run", u.write(job{script: fmt.Sprintf(catching, u.dir), hosts: hosts, perHost: 2 / max(1, len(hosts)),
				more: "stop {\n grace = \"10m\"\n}"}))
			u.waitFor("ready-0", "ready-1")
			l.signal(syscall.SIGINT)
			u.waitFor("term-0", "term-1")
			if u.exists("int-0") || u.exists("int-1") {
				t.Error("the terminal's Ctrl-C came to the workers by itself")
			}
			u.file("let", "")
			r := l.wait().exits(130)
			if want := "■ stopped: Ctrl-C"; r.finalScreen()[0] != want {
				t.Errorf("the final screen begins %q, want %q", r.finalScreen()[0], want)
			}
			if n := strings.Count(r.stdout, "saved\n"); n != 2 {
				t.Errorf("the last words of 2 workers are shown %d times:\n%s", n, r.stdout)
			}
		})
	}
}

func TestTheSecondCtrlCKills(t *testing.T) {
	u := newUser(t, threeHosts(t))
	l := u.start("run", u.write(job{script: fmt.Sprintf(stubborn, u.dir), hosts: []string{"host-z", "host-a"}, more: "stop {\n grace = \"10m\"\n}"}))
	u.waitFor("ready-0", "ready-1")
	l.signal(syscall.SIGINT)
	l.waitToSay("stopping the workers: Ctrl-C")
	l.signal(syscall.SIGINT)
	r := l.wait().exits(130)
	r.line("ranks 0-1: stopped by muster (SIGKILL)")
}

func TestTheGraceEndsByItself(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-a")
	l := u.start("run", u.write(job{script: fmt.Sprintf(stubborn, u.dir), more: "stop {\n grace = \"300ms\"\n}"}))
	u.waitFor("ready-0")
	l.signal(syscall.SIGTERM)
	l.wait().exits(143).line("rank 0: stopped by muster (SIGKILL)")
}

func TestTheThirdCtrlCLeavesAtOnceAndNamesWhatMayBeLeft(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: "touch " + u.path("ready-$RANK") + "\nexec sleep 1000", hosts: []string{"host-z", "host-a"}}))
	u.waitFor("ready-0", "ready-1")
	// The first two have no effect as long as the coordinator is stopped.
	head := bed.Host("host-z")
	coordinator := process(t, head, "muster", "coordinator")
	signalTo(t, head, coordinator, syscall.SIGSTOP)
	// Signals of one kind that come too fast after each other are one.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended; {
		l.signal(syscall.SIGINT)
		select {
		case <-tick.C:
		case <-l.ended:
			ended = true
		case <-t.Context().Done():
			t.Fatal("the time for tests is over")
		}
	}
	l.wait().exits(130).says("workers may still be ending on: host-z host-a")
	signalTo(t, head, coordinator, syscall.SIGKILL) // then the hosts end their workers
}

// flooding writes more than pipes, sockets and windows between hold, and says so in a file
// when it has ended.
const flooding = "i=0; while [ $i -lt 4000 ]; do echo %0999d $i; i=$((i+1)); done; touch %s/done-$RANK\n"

func TestTheThirdCtrlCLeavesThoughNobodyReadsTheOutput(t *testing.T) {
	u := newUser(t, threeHosts(t))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	l := u.startInto(write, "run", u.write(job{script: fmt.Sprintf(flooding, 0, u.dir) + "exec sleep 1000", hosts: []string{"host-z", "host-a"}}))
	write.Close()
	u.waitFor("done-0", "done-1")
	l.signal(syscall.SIGINT)
	l.waitToSay("stopping the workers: Ctrl-C")
	l.signal(syscall.SIGINT)
	pass(t, time.Second) // signals of one kind that come too fast after each other are one
	began := time.Now()
	l.signal(syscall.SIGINT)
	l.wait().exits(130).says("without waiting for its end")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestTheThirdCtrlCLeavesATerminalThatTakesNothing(t *testing.T) {
	u := newUser(t, threeHosts(t))
	term := u.inTerminalUnread(muster(t), "run", u.write(job{script: fmt.Sprintf(flooding, 0, u.dir) + "exec sleep 1000", hosts: []string{"host-z"}}))
	u.waitFor("done-0")
	for range 3 {
		pass(t, time.Second)
		term.signal(syscall.SIGINT)
	}
	select {
	case <-term.ended:
	case <-time.After(patience):
		t.Fatal("muster has not left")
	}
	if status := term.command.ProcessState.ExitCode(); status != 130 {
		t.Errorf("exit status %d, want 130", status)
	}
}

func signalTo(t testing.TB, h *testbed.Host, processes []testbed.Process, s syscall.Signal) {
	t.Helper()
	for _, p := range processes {
		if err := h.Kill(p.PID, s); err != nil {
			t.Fatal(err)
		}
	}
}

// process finds processes of a host by their first words.
func process(t testing.TB, h *testbed.Host, words ...string) (found []testbed.Process) {
	t.Helper()
	all, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if strings.HasPrefix(strings.Join(p.Args, " ")+" ", strings.Join(words, " ")+" ") {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no process %q on %s", words, h.Name)
	}
	return found
}

// silentServer takes connections on a host and says nothing.
func silentServer(t testing.TB, h *testbed.Host) (port string, accepted <-chan struct{}) {
	t.Helper()
	var listener net.Listener
	err := h.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(h.Addr.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			if open = append(open, conn); len(open) == 1 {
				close(came)
			}
		}
		for _, conn := range open {
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), came
}

func TestCtrlCEndsTheWaitForAHostThatSaysNothing(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	port, accepted := silentServer(t, bed.Host("host-m"))
	u.ssh("silent", "HostName "+bed.Host("host-m").Addr.String(), "Port "+port)
	l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "silent", "host-a"}}))
	select {
	case <-accepted:
	case <-time.After(patience):
		t.Fatal("nobody has connected")
	}
	began := time.Now()
	l.signal(syscall.SIGINT)
	l.wait().exits(130).says("Ctrl-C before the start")
	// On an idle machine it takes some 50 ms; a connection attempt may take 20 s.
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}

func TestCtrlCDuringSetupStartsNothing(t *testing.T) {
	u := newUser(t, threeHosts(t))
	l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "host-a"},
		more: setup("touch " + u.path("setup-$(hostname)") + "\nsleep 1000")}))
	u.waitFor("setup-host-z", "setup-host-a")
	l.signal(syscall.SIGINT)
	l.wait().exits(130)
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}
