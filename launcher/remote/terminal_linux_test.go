package remote

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// newPTY is a terminal and the end at which its user sits.
func newPTY(t *testing.T) (terminal, user *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { user.Close() })
	var number, unlock int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlock} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	return terminal, user
}

// isEchoing reports whether a terminal shows what is typed.
func isEchoing(tty *os.File) bool {
	var state syscall.Termios
	syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), syscall.TCGETS, uintptr(unsafe.Pointer(&state)))
	return state.Lflag&syscall.ECHO != 0
}

func TestTerminal(t *testing.T) {
	tty, user := newPTY(t)
	terminal, err := newTerminal(tty)
	must(t, err)
	seen := make(chan string)
	go func() {
		defer close(seen)
		in := bufio.NewReader(user)
		for _, turn := range []struct{ upTo, say string }{{"name? ", "s3cret\n"}, {"sure? ", "y\n"}, {`"no": `, "Yes\n"}, {"again? ", "no\n"}} {
			var text strings.Builder
			for !strings.HasSuffix(text.String(), turn.upTo) {
				c, err := in.ReadByte()
				if err != nil {
					return
				}
				text.WriteByte(c)
			}
			if turn.say == "s3cret\n" {
				waitFor(t, "the echo to be off", func() bool { return !isEchoing(tty) })
			}
			seen <- text.String()
			io.WriteString(user, turn.say)
		}
	}()
	next := func() string { return <-seen }
	var answers []any
	done := make(chan struct{})
	go func() {
		defer close(done)
		secret, err := terminal.Secret("name? ")
		yes, err2 := terminal.Confirm("sure? ")
		no, err3 := terminal.Confirm("again? ")
		answers = []any{secret, err, yes, err2, no, err3}
	}()
	screen := next() + next() + next() + next()
	<-done
	if fmt.Sprint(answers...) != fmt.Sprint("s3cret", nil, true, nil, false, nil) {
		t.Fatalf("answers %v", answers)
	}
	if strings.Contains(screen, "s3cret") {
		t.Fatalf("the passphrase is on screen: %q", screen)
	}
	must(t, terminal.Close())
}
