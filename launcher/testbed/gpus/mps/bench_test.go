//go:build linux

package mps_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// within is far more than anything here takes.
const within = 20 * time.Second

// bench is a machine with folders for a daemon.
type bench struct {
	t             *testing.T
	folder        string // of the scenario
	pipes, logs   string
	env           []string // of all programs
	own           []string // of the daemon alone
	control, work string
}

func newBench(t *testing.T, s *gpus.Scenario, env ...string) *bench {
	t.Helper()
	built, err := gpus.Build()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, folder: t.TempDir(), control: built.MPSControl, work: built.Worker}
	if err := s.Write(b.folder); err != nil {
		t.Fatal(err)
	}
	return b.daemon(env...)
}

// daemon is the same machine with folders for another daemon.
func (b *bench) daemon(env ...string) *bench {
	b.t.Helper()
	other := *b
	other.env, other.own = nil, env
	root, err := os.MkdirTemp("", "mps") // short: paths of sockets are
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(root) })
	other.pipes, other.logs = filepath.Join(root, "pipe"), filepath.Join(root, "log")
	for _, folder := range []string{other.pipes, other.logs} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, variable := range os.Environ() { // no variable of who runs the tests
		if !strings.HasPrefix(variable, "CUDA_") {
			other.env = append(other.env, variable)
		}
	}
	other.env = append(other.env, gpus.Variable+"="+b.folder, "CUDA_MPS_PIPE_DIRECTORY="+other.pipes)
	other.env = append(other.env, "CUDA_MPS_LOG_DIRECTORY="+other.logs)
	b.t.Cleanup(other.killAll)
	return &other
}

// killAll ends what a test has left: the daemon and servers that its log names.
func (b *bench) killAll() {
	text, _ := os.ReadFile(filepath.Join(b.logs, "control.log"))
	for _, found := range regexp.MustCompile(`Control +(\d+)\]|new server (\d+)`).FindAllStringSubmatch(string(text), -1) {
		pid, _ := strconv.Atoi(found[1] + found[2])
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if pid > 1 && strings.Contains(string(name), "nvidia-cuda-mps") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (b *bench) command(path string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(b.t.Context(), within)
	b.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = b.env
	return cmd
}

// start starts the daemon.
func (b *bench) start() *bench {
	b.t.Helper()
	cmd := b.command(b.control, "-d")
	cmd.Env = append(cmd.Env, b.own...)
	if said, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("start: %v: %s", err, said)
	}
	return b
}

// try asks the front end.
func (b *bench) try(lines ...string) (said string, status int) {
	b.t.Helper()
	cmd := b.command(b.control)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return strings.TrimSpace(string(out)), exit.ExitCode()
	} else if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), 0
}

// ask is try where the daemon is to answer.
func (b *bench) ask(lines ...string) string {
	b.t.Helper()
	said, status := b.try(lines...)
	if status != 0 {
		b.t.Fatalf("%v: status %d: %s", lines, status, said)
	}
	return said
}

func (b *bench) says(line, want string) {
	b.t.Helper()
	if got := b.ask(line); got != want {
		b.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// worker is a cudaworker that runs.
type worker struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs bytes.Buffer
	line workerLine
	done chan error
}

type workerLine struct {
	PID     int
	UUID    string
	Index   int
	Visible []string
	MPS     *struct {
		Server             int
		Percentage         float64
		Limit, Free, Total uint64
	}
}

// run starts a worker, which stays unless args say otherwise, and returns when it has its
// context, or has ended.
func (b *bench) run(env []string, args ...string) *worker {
	b.t.Helper()
	w := &worker{t: b.t, cmd: b.command(b.work, append([]string{"-for", "1m", "-bytes", "1GiB"}, args...)...), done: make(chan error, 1)}
	w.cmd.Env = append(w.cmd.Env, env...)
	w.cmd.Stderr = &w.errs
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	w.line.PID = w.cmd.Process.Pid
	_ = json.NewDecoder(out).Decode(&w.line) // one that ends says why on its standard error
	go func() { w.done <- w.cmd.Wait() }()
	return w
}

// client is a worker that must be a client.
func (b *bench) client(env []string, args ...string) *worker {
	b.t.Helper()
	w := b.run(env, args...)
	if w.line.MPS == nil {
		b.t.Fatalf("no client of MPS: %s", w.ends())
	}
	return w
}

// ends waits for the worker and returns what it said.
func (w *worker) ends() string {
	w.t.Helper()
	select {
	case err := <-w.done:
		return fmt.Sprintf("%s (%v)", w.errs.String(), err)
	case <-time.After(within):
		w.t.Fatal("the worker stays")
		return ""
	}
}

func (w *worker) fails(want string) {
	w.t.Helper()
	if said := w.ends(); !strings.Contains(said, want) || !strings.Contains(said, "exit status 1") {
		w.t.Errorf("the worker says %q, want %q", said, want)
	}
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	w.ends()
}

func (b *bench) await(what string, is func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(within)
	for !is() {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %v", what, within)
		}
	}
}

func (b *bench) log(name string) string {
	text, err := os.ReadFile(filepath.Join(b.logs, name))
	if err != nil {
		b.t.Error(err)
	}
	return string(text)
}

// pid is the daemon's.
func (b *bench) pid() int {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.pipes, "nvidia-cuda-mps-control.pid"))
	if err != nil {
		b.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

func runs(pid int) bool {
	_, err := gpus.StartTime(pid)
	return err == nil
}

// killDaemon returns when the daemon is dead and its socket, which threads may have open
// after its first one has ended, is nobody's.
func (b *bench) killDaemon(sig syscall.Signal) {
	b.t.Helper()
	pid := b.pid()
	if err := syscall.Kill(pid, sig); err != nil {
		b.t.Fatal(err)
	}
	b.await("the daemon's death", func() bool {
		conn, err := net.Dial("unix", filepath.Join(b.pipes, "control"))
		if err == nil {
			conn.Close()
		}
		return err != nil && !runs(pid)
	})
}
