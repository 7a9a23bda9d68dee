//go:build linux

package torchtest

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds a run; on an idle machine the slowest takes ten seconds.
const patience = 4 * time.Minute

// command is a program that a test runs.
type command struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout text
	stderr text
	done   chan struct{}
}

// text is what a command has written until now.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// start starts a program at the top of the source tree. It ends with the test.
func start(t testing.TB, env []string, argv ...string) *command {
	t.Helper()
	needPrograms(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	c := &command{t: t, cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), done: make(chan struct{})}
	c.cmd.Dir, c.cmd.Env = tree(), env
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	// Two signals are two Ctrl-C to muster, which then leaves nothing behind.
	c.cmd.Cancel = func() error { _ = c.cmd.Process.Signal(syscall.SIGTERM); return c.cmd.Process.Signal(syscall.SIGINT) }
	c.cmd.WaitDelay = 15 * time.Second
	if err := c.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait() // shows as the status
		cancel()
		close(c.done)
	}()
	t.Cleanup(func() { <-c.done })
	return c
}

// exits waits for the end and wants this status.
func (c *command) exits(want int) *command {
	c.t.Helper()
	<-c.done
	if got := c.cmd.ProcessState.ExitCode(); got != want {
		c.t.Fatalf("%v\n%v, want status %d\n%s", c.cmd.Args, c.cmd.ProcessState, want, c.all())
	}
	return c
}

func (c *command) all() string {
	return "stdout:\n" + lastLines(c.stdout.String()) + "\nstderr:\n" + lastLines(c.stderr.String())
}

func lastLines(all string) string {
	lines := strings.SplitAfter(all, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

// says wants parts in what was written.
func (c *command) says(parts ...string) *command {
	c.t.Helper()
	for _, part := range parts {
		if !strings.Contains(c.stdout.String()+c.stderr.String(), part) {
			c.t.Errorf("%v does not say %q\n%s", c.cmd.Args, part, c.all())
		}
	}
	return c
}

// waitFor waits until the command has written this.
func (c *command) waitFor(x *text, part string) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(x.String(), part) {
		select {
		case <-tick.C:
		case <-c.done:
			c.t.Fatalf("%v ended without %q\n%s", c.cmd.Args, part, c.all())
		}
	}
}

// interrupt is Ctrl-C.
func (c *command) interrupt() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		c.t.Fatal(err)
	}
}

var stepLine = regexp.MustCompile(`(?m)step (\d+) loss ([0-9.]+)$`)

// losses are what the training of examples/ddp-cpu has printed, by step.
func (c *command) losses() map[int]float64 {
	c.t.Helper()
	found := map[int]float64{}
	for _, match := range stepLine.FindAllStringSubmatch(c.stdout.String(), -1) {
		step, _ := strconv.Atoi(match[1])
		loss, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			c.t.Fatal(err)
		}
		if _, twice := found[step]; twice {
			c.t.Errorf("step %d was trained twice", step)
		}
		found[step] = loss
	}
	return found
}
