//go:build linux

package endtoend

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a terminal with a user's command in its foreground.
type terminal struct {
	*launch
	keyboard *os.File // what is written here is typed
	slave    *os.File // kept open, so that its settings outlive the command
}

// inTerminal starts a command at a terminal of its own; all that it shows is in stdout.
func (u *user) inTerminal(argv ...string) *terminal {
	u.t.Helper()
	return u.inTerminalOf(func(shown io.Writer, master io.Reader) {
		_, _ = io.Copy(shown, master) // ends when no slave is open any more
	}, argv...)
}

// inTerminalUnread is inTerminal with a terminal that shows nothing of what it gets.
func (u *user) inTerminalUnread(argv ...string) *terminal {
	u.t.Helper()
	return u.inTerminalOf(func(io.Writer, io.Reader) {}, argv...)
}

func (u *user) inTerminalOf(show func(shown io.Writer, master io.Reader), argv ...string) *terminal {
	u.t.Helper()
	master, slave, err := openTerminal()
	if err != nil {
		u.t.Fatal(err)
	}
	l := &launch{t: u.t, stdout: &capture{}, stderr: &capture{}, ended: make(chan struct{})}
	l.command = exec.Command(argv[0], argv[1:]...)
	l.command.Env, l.command.Dir = append(u.environ(), "TERM=xterm"), u.dir
	l.command.Stdin, l.command.Stdout, l.command.Stderr = slave, slave, slave
	l.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := l.command.Start(); err != nil {
		u.t.Fatal(err)
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		show(l.stdout, master)
	}()
	go func() { l.err = l.command.Wait(); close(l.ended) }()
	u.t.Cleanup(func() {
		_ = l.command.Process.Kill() // if it still runs
		<-l.ended
		slave.Close()
		<-shown
		master.Close()
	})
	return &terminal{launch: l, keyboard: master, slave: slave}
}

func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	return os.NewFile(uintptr(fd), "terminal"), slave, err
}

func (term *terminal) typeKeys(keys string) {
	term.t.Helper()
	if _, err := term.keyboard.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// shows waits until the terminal has shown a text.
func (term *terminal) shows(text string) {
	term.t.Helper()
	within(term.t, patience, func() string { return "the terminal shows " + text + "; it shows:\n" + term.stdout.String() },
		func() bool { return strings.Contains(term.stdout.String(), text) })
}

// settings are those that muster changes while it waits for keys.
func (term *terminal) settings() uint32 {
	term.t.Helper()
	now, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	return now.Lflag & (unix.ICANON | unix.ECHO)
}

const asItWas = unix.ICANON | unix.ECHO

func TestTheGraceIsShownWhileItRunsDown(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	term := u.inTerminal(muster(t), "run", u.write(job{script: fmt.Sprintf(stubborn, u.dir), hosts: []string{"host-z", "host-a"},
		more: "stop {\n grace = \"4s\"\n}"}))
	u.waitReady(2)
	term.typeKeys("\x03")
	for _, text := range []string{"SIGKILL in 4s to what is left", "workers have 3s left", "workers have 2s left", "workers have 1s left"} {
		term.shows(text)
	}
	term.wait().exits(130)
	if got := term.settings(); got != asItWas {
		t.Errorf("the terminal's settings are %#x, want %#x", got, asItWas)
	}
}

func TestTheKeyDLeavesTheRunAndTheTerminalAsTheyWere(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	term := u.inTerminal(muster(t), "run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z", "host-a"}}))
	u.waitReady(2)
	term.typeKeys("xd")
	term.waitFor(atOnce).exits(0)
	term.shows("goes on: muster attach t-")
	if got := term.settings(); got != asItWas {
		t.Errorf("the terminal's settings are %#x, want %#x", got, asItWas)
	}
	u.file("end", "")
	u.run("attach", "-").exits(0)
}

// untilEnd is a worker that says that it is there, and ends well when the test lets it.
const untilEnd = `
cd %s
touch ready-$RANK
while [ ! -e end ]; do sleep 0.05; done
echo done`

// stateOf is the kernel's letter for a process.
func stateOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

func TestCtrlZGivesTheTerminalBackAndTheRunIsUnharmed(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	term := u.inTerminal(muster(t), "run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z", "host-a"}, more: shortLease}))
	u.waitReady(2)
	eventually(t, "keys are read one by one", func() bool { return term.settings() == 0 })
	term.typeKeys("\x1a")
	pid := term.command.Process.Pid
	eventually(t, "muster is stopped", func() bool { return stateOf(pid) == "T" })
	if got := term.settings(); got != asItWas {
		t.Errorf("the terminal's settings are %#x while muster is stopped, want %#x", got, asItWas)
	}
	pass(t, lease+lease/2) // longer than anybody may be silent
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "keys are read one by one", func() bool { return term.settings() == 0 })
	u.file("end", "")
	term.wait().exits(0)
	term.shows("all ranks ended well") // its last words
	shown := term.stdout.String()
	if n := strings.Count(shown, "done"); n != 2 {
		t.Errorf("%d ranks are seen to be done:\n%s", n, shown)
	}
	if strings.Contains(shown, "warning") || term.settings() != asItWas {
		t.Errorf("the terminal has settings %#x and shows\n%s", term.settings(), shown)
	}
}

// pass lets time pass: for what must not happen within it.
func pass(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func TestTheKeyDWorksAfterCtrlZ(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	term := u.inTerminal(muster(t), "run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z"}}))
	u.waitReady(1)
	eventually(t, "keys are read one by one", func() bool { return term.settings() == 0 })
	pid := term.command.Process.Pid
	for range 2 {
		term.typeKeys("\x1a")
		eventually(t, "muster is stopped", func() bool { return stateOf(pid) == "T" })
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, "keys are read one by one", func() bool { return term.settings() == 0 })
	}
	term.typeKeys("d")
	term.waitFor(atOnce).exits(0)
	u.file("end", "")
	u.run("attach", "-").exits(0)
}

func TestARunInTheBackgroundDoesNotTouchTheTerminal(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	path := u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z"}})
	script := u.file("background", fmt.Sprintf("set -m\n%s run %s &\necho $! >%s\nread -r line\necho read $line\nwait $!\necho status $?\n", muster(t), path, u.path("pid")))
	term := u.inTerminal("bash", script)
	u.waitReady(1)
	if got := term.settings(); got != asItWas {
		t.Errorf("the terminal's settings are %#x, want %#x", got, asItWas)
	}
	term.typeKeys("d is for the shell\n")
	term.shows("read d is for the shell")
	u.file("end", "")
	term.shows("status 0")
	term.wait().exits(0)
}

func TestATerminalThatGoesAwayLeavesTheRun(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	path := u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z", "host-a"}})
	term := u.inTerminal(muster(t), "run", path)
	u.waitReady(2)
	term.slave.Close()
	term.keyboard.Close() // the kernel sends SIGHUP to who sits at it
	term.waitFor(atOnce).exits(129)
	u.file("end", "")
	u.run("attach", "-").exits(0)
}
