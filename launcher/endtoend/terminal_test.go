//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal and has what is shown in it kept.
func openTerminal(t *testing.T) (keyboard, screen *os.File, shown *capture) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	shown = &capture{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := keyboard.Read(buffer)
			if shown.Write(buffer[:n]); err != nil {
				return // the last end of the screen was closed
			}
		}
	}()
	t.Cleanup(func() { screen.Close(); <-read; keyboard.Close() })
	return keyboard, screen, shown
}

func TestInATerminalPrefixesAreColouredAndWorkersCannotDrawElsewhere(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-z")
	keyboard, screen, shown := openTerminal(t)
	u.terminal = screen
	u.file("bytes", "\x1b[31mred\x1b[0m \x1b[2Jgone\x07 \xff\n")
	l := u.start("run", u.write(job{
		script: fmt.Sprintf("cd %[1]s; cat bytes; trap 'touch int' INT; trap 'echo saving; exit 0' TERM; touch ready; while :; do sleep 0.02; done", u.dir),
	}))
	u.waitFor("ready")
	want := "\x1b[36mlocalhost:0|\x1b[0m \x1b[31mred\x1b[0m ^[[2Jgone^G \\xff"
	within(t, patience, func() string { return fmt.Sprintf("%q is shown in %q", want, shown) }, func() bool { return strings.Contains(shown.String(), want) })
	if _, err := keyboard.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	l.wait().exits(130)
	eventually(t, "the end is shown", func() bool {
		return strings.Contains(shown.String(), "stopped: Ctrl-C") && strings.Contains(shown.String(), "saving")
	})
	if u.exists("int") {
		t.Error("Ctrl-C came to the worker by itself")
	}
}
