//go:build linux

package proc

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// theReaper is one for all tests: a process has one.
var theReaper = sync.OnceValue(func() *Reaper {
	r, err := NewReaper()
	if err != nil {
		panic(err)
	}
	return r
})

func start(t *testing.T, script string) *Child {
	t.Helper()
	child, err := theReaper().Start(Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: os.Environ(), Group: true, DieWithParent: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Signal(child.ID, unix.SIGKILL); wait(t, child) })
	return child
}

func wait(t *testing.T, child *Child) Exit {
	t.Helper()
	select {
	case <-child.Done:
		return child.Exit()
	case <-time.After(10 * time.Second):
		t.Fatal("the child has not ended within 10 s")
	}
	return Exit{}
}

func TestExitStatusAndSignalAreToldApart(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 0":        {},
		"exit 3":        {Code: 3},
		"kill -9 $$":    {Signal: unix.SIGKILL},
		"kill -SEGV $$": {Signal: unix.SIGSEGV},
	} {
		if got := wait(t, start(t, script)); got != want {
			t.Errorf("%s: %v, want %v", script, got, want)
		}
	}
}

func TestAChildThatEndsAtOnceIsNotMissed(t *testing.T) {
	for range 100 {
		wait(t, start(t, ":"))
	}
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	if _, err := theReaper().Start(Spec{Path: "/nowhere", Argv: []string{"x"}}); err == nil {
		t.Fatal("started a program that does not exist")
	}
}

// A decoy with the pid of a process that is gone must not be touched.
func TestARecycledPidIsNotSignalled(t *testing.T) {
	child := start(t, "sleep 60")
	stale := ID{PID: child.ID.PID, Start: child.ID.Start - 1}
	if err := Signal(stale, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := signalByPID(stale, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if s, err := StatOf(child.ID.PID); err != nil || s.State == 'Z' {
		t.Fatal("the decoy was killed")
	}
	if err := Signal(child.ID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, child); got.Signal != unix.SIGKILL {
		t.Fatalf("ended with %v", got)
	}
	if err := Signal(child.ID, unix.SIGKILL); err != nil {
		t.Errorf("a process that is gone is an error: %v", err)
	}
}

func TestDoubleForkedDaemonsThatIgnoreEverythingAreFoundAndKilled(t *testing.T) {
	child := start(t, `trap "" TERM HUP INT
setsid sh -c 'trap "" TERM HUP INT; (setsid sleep 61 &) ; sleep 62 & wait' &
sleep 0.2; exit 0`)
	wait(t, child)
	if len(Below(os.Getpid(), All())) < 2 {
		t.Fatal("the daemons escaped the subreaper")
	}
	if left := KillBelow(5*time.Second, nil); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

func TestSparedProcessesLive(t *testing.T) {
	child := start(t, "exec sleep 60")
	if left := KillBelow(5*time.Second, func(s Stat) bool { return s.ID == child.ID }); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	if s, err := StatOf(child.ID.PID); err != nil || s.State == 'Z' {
		t.Fatal("the spared process was killed")
	}
}

func TestCommandsWithSpacesAndParenthesesAreRead(t *testing.T) {
	s, err := parseStat([]byte("42 (a) b (c)) S 7 42 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 123456 0 0\n"))
	if err != nil || s.PID != 42 || s.Command != "a) b (c)" || s.Parent != 7 || s.Group != 42 || s.Session != 41 || s.Start != 123456 {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "42", "42 (x", "x (y) S 1", "42 (y) S 1 2"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a stat line", bad)
		}
	}
}

func TestHandlersAreSeenInTheStatus(t *testing.T) {
	status := []byte("Name:\tx\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000004002\n")
	for signal, want := range map[int]bool{int(unix.SIGINT): true, int(unix.SIGTERM): true, int(unix.SIGHUP): false} {
		if caughtIn(status, signal) != want {
			t.Errorf("signal %d: caught should be %v", signal, want)
		}
	}
}

func TestEnvironIsReadByWholeName(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "60")
	cmd.Env = []string{"XMUSTER_RUN=no", "MUSTER_RUN=yes=1"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill() }() // the reaper waits for it
	value, ok := "", false
	for deadline := time.Now().Add(10 * time.Second); !ok && time.Now().Before(deadline); {
		value, ok = EnvironOf(cmd.Process.Pid, "MUSTER_RUN") // empty while the kernel is still within exec
	}
	if value != "yes=1" {
		t.Errorf("MUSTER_RUN is %q, %v", value, ok)
	}
}

func TestAListenerIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if name := Listener(port); !strings.Contains(name, fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("the listener on %d is %q", port, name)
	}
	l.Close()
	if name := Listener(port); name != "" {
		t.Errorf("nobody listens on %d, but %s", port, name)
	}
}

func TestBothWaysOfAskingForListenersAgree(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // no IPv6 here
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		asked, err := diagListeners(port)
		if read := tableListeners(port); err != nil || len(asked) != 1 || !maps.Equal(asked, read) {
			t.Errorf("%s: the kernel tells %v (%v), its tables %v", address, asked, err, read)
		}
		l.Close()
		if asked, err := diagListeners(port); err != nil || len(asked) != 0 {
			t.Errorf("%s: after the end the kernel tells %v (%v)", address, asked, err)
		}
	}
}

func FuzzDiag(f *testing.F) {
	f.Add(diagRequest(unix.AF_INET, 80))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = parseDiag(data, 80, map[string]bool{})
	})
}

func BenchmarkListening(b *testing.B) {
	for b.Loop() {
		Listening(1)
	}
}
