package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

// session is what is known so far. Checks run one after the other.
type session struct {
	options
	log   *os.File // of commands
	notes []string // of the check in progress
	jobs  int

	rows      []row // as nvidia-smi has them before anything was started
	apps      []app // processes then
	nvml, smi *gpu.Inventory
	usable    []row // those that muster gives ranks, in their order
	pids      map[int]bool
	torch     torch  // that of Python, once it was asked
	noTorch   error  // why there is none
	how       string // workers are seen: byPID, byNumber, byMemory; "": none was yet
}

// runFolder is where in the folder jobs and what came of them are.
const runFolder = "runs"

func open(o options) (*session, error) {
	if err := os.MkdirAll(filepath.Join(o.out, runFolder), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.out, "commands.log"))
	return &session{options: o, log: log, pids: map[int]bool{}}, err
}

func (s *session) close() { _ = s.log.Close() }

// keep writes something into the folder.
func (s *session) keep(name, text string) {
	if err := os.WriteFile(filepath.Join(s.out, name), []byte(text), 0o644); err != nil {
		s.note("%v", err)
	}
}

// said is what a command said.
type said struct {
	stdout, stderr string
	exit           int
	took           time.Duration
}

// all is both streams, for texts that may stand in either.
func (o said) all() string { return o.stdout + o.stderr }

// last is the end of what a command said, for errors.
func (o said) last() string {
	text := strings.TrimSpace(o.stderr)
	if text == "" {
		text = strings.TrimSpace(o.stdout)
	}
	if n := len(text); n > 1500 {
		text = "…" + strings.ToValidUTF8(text[n-1500:], "")
	}
	return text
}

// endWait is how long a program that was asked to end may take for it: as long as muster
// gives ranks.
const endWait = 15 * time.Second

// command runs a program to its end. An exit status is no error.
func (s *session) command(ctx context.Context, argv ...string) (said, error) {
	var stdout, stderr bytes.Buffer
	cmd := s.program(ctx, argv...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err := cmd.Run()
	o := said{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(begin)}
	s.logCommand(argv, o, err)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return o, fmt.Errorf("%s did not end in time: %s", strings.Join(argv, " "), o.last())
	case err != nil && !errors.As(err, &exit):
		return o, err
	}
	return o, nil
}

// program is asked to end by SIGTERM, which muster takes as the wish to stop a run. State
// of muster lies in the folder.
func (s *session) program(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "XDG_STATE_HOME="+filepath.Join(s.out, "state"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endWait
	return cmd
}

// logCommand writes its line at once: two commands may end at the same time.
func (s *session) logCommand(argv []string, o said, err error) {
	line := fmt.Sprintf("%6.2f s, status %d: %s", o.took.Seconds(), o.exit, strings.Join(argv, " "))
	if err != nil {
		line += fmt.Sprintf(" (%v)", err)
	}
	_, _ = s.log.WriteString(line + "\n") // what it says is not checked
}
