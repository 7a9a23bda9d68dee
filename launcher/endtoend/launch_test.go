//go:build linux

package endtoend

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// launch is a muster command on its way.
type launch struct {
	t              testing.TB
	stdout, stderr *capture
	command        *exec.Cmd
	ended          chan struct{}
	err            error // valid once ended
}

// result is how a command ended and what it printed.
type result struct {
	t              testing.TB
	status         int
	stdout, stderr string
}

// capture takes in a stream while others look at it.
type capture struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// run runs a muster command to its end.
func (u *user) run(args ...string) result {
	u.t.Helper()
	return u.start(args...).wait()
}

// runJob runs a job to its end.
func (u *user) runJob(j job, args ...string) result {
	u.t.Helper()
	return u.run(append([]string{"run", u.write(j)}, args...)...)
}

// start starts a muster command. It is killed when the test ends, if it still runs then.
func (u *user) start(args ...string) *launch {
	u.t.Helper()
	return u.startInto(nil, args...)
}

// startInto is start with a file for standard output; nil: it is captured.
func (u *user) startInto(stdout *os.File, args ...string) *launch {
	u.t.Helper()
	l := &launch{t: u.t, stdout: &capture{}, stderr: &capture{}, ended: make(chan struct{})}
	argv := append(append(slices.Clone(u.under), muster(u.t)), args...)
	if u.deaf {
		argv = append([]string{"/bin/sh", "-c", `trap "" INT QUIT HUP TERM PIPE USR1; exec "$0" "$@"`}, argv...)
	}
	l.command = exec.Command(argv[0], argv[1:]...)
	if u.input != nil {
		l.command.Stdin = u.input
	}
	l.command.Env = u.environ()
	l.command.Dir = u.dir
	l.command.Stdout, l.command.Stderr = l.stdout, l.stderr
	if stdout != nil {
		l.command.Stdout = stdout
	}
	l.command.ExtraFiles = u.open
	l.command.WaitDelay = 5 * time.Second
	// A terminal's Ctrl-C comes to a process group.
	l.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := make(chan error, 1)
	go func() {
		defer close(l.ended)
		l.err = u.there(func() error {
			err := l.command.Start()
			started <- err
			if err != nil {
				return err
			}
			return l.command.Wait()
		})
	}()
	select {
	case err := <-started:
		if err != nil {
			u.t.Fatal(err)
		}
	case <-l.ended:
		u.t.Fatal(l.err)
	}
	u.t.Cleanup(func() {
		select {
		case <-l.ended:
		default:
			l.signal(syscall.SIGKILL)
			<-l.ended
		}
	})
	return l
}

// there calls f where the user sits.
func (u *user) there(f func() error) error {
	if u.at == nil {
		return f()
	}
	return u.at.Do(f)
}

func (u *user) environ() []string {
	env := slices.DeleteFunc(u.bed.ClientEnv(), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
	return append(append(env, "HOME="+u.dir), u.env...)
}

// signal sends the launcher's process group a signal, as a terminal does. One that has
// just ended gets none.
func (l *launch) signal(s syscall.Signal) {
	l.t.Helper()
	if err := syscall.Kill(-l.command.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		l.t.Error(err)
	}
}

// waitToSay waits until standard error holds a text.
func (l *launch) waitToSay(text string) {
	l.t.Helper()
	within(l.t, patience, func() string { return "it says " + text + "; it said:\n" + l.stderr.String() },
		func() bool { return strings.Contains(l.stderr.String(), text) })
}

// wait waits for the command's end.
func (l *launch) wait() result {
	l.t.Helper()
	return l.waitFor(patience)
}

func (l *launch) waitFor(limit time.Duration) result {
	l.t.Helper()
	select {
	case <-l.ended:
	case <-time.After(limit):
		l.t.Fatalf("muster has not ended within %v; it said:\n%s\n%s", limit, l.stdout, l.stderr)
	}
	r := result{t: l.t, stdout: l.stdout.String(), stderr: l.stderr.String()}
	var exit *exec.ExitError
	switch status, isExit := syscall.WaitStatus(0), errors.As(l.err, &exit); {
	case isExit:
		status = exit.Sys().(syscall.WaitStatus)
		r.status = status.ExitStatus()
		if status.Signaled() {
			r.status = -int(status.Signal())
		}
	case l.err != nil:
		l.t.Fatalf("%v; it said:\n%s\n%s", l.err, l.stdout, l.stderr)
	}
	return r
}

// exits checks the exit status.
func (r result) exits(status int) result {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("exit status %d, want %d; it said:\n%s\n%s", r.status, status, r.stdout, r.stderr)
	}
	return r
}

// says checks that standard error holds texts.
func (r result) says(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			r.t.Errorf("standard error lacks %q:\n%s", text, r.stderr)
		}
	}
	return r
}

// saysNothingOf checks that standard error lacks texts.
func (r result) saysNothingOf(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.stderr, text) {
			r.t.Errorf("standard error has %q:\n%s", text, r.stderr)
		}
	}
	return r
}
