package nvidiasmi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster/plugins/nvidia"
)

// Runner runs nvidia-smi. Tests replay recorded outputs by it.
type Runner interface {
	// Run returns what the program printed, whatever its exit status. An error means that it
	// did not run to its end; the output then holds what it printed until then.
	Run(ctx context.Context, args ...string) (Output, error)
}

// Output is what one run printed.
type Output struct {
	Stdout, Stderr []byte
	Exit           int // -1: not known
}

// ErrNotInstalled says that there is no nvidia-smi in PATH and the usual places.
var ErrNotInstalled = errors.New("nvidia-smi is not installed")

const (
	timeLimit = 5 * time.Second
	// killLimit is how long a killed program may take to die, and one that ended may
	// leave its pipes to others.
	killLimit = time.Second
	// maxOutput is how much is kept of a stream: 16 GPUs print about 1 MiB.
	maxOutput = 16 << 20
)

// Program is the real nvidia-smi. A program that does not end within the limit is killed
// with its children. A driver that hangs keeps even killed programs (state D): such a one
// is left behind, and as long as it is there no other is started, so that they do not pile up.
// One goroutine waits for each program until it ends.
type Program struct {
	Path  string        // empty: looked for
	Limit time.Duration // of each run; 0: 5 s

	kill  func(pid int) // nil: kill the group
	mu    sync.Mutex
	stuck int // pid of one that was killed and is not gone; 0: none
}

var _ Runner = (*Program)(nil)

// Run runs the program with these arguments.
func (p *Program) Run(ctx context.Context, args ...string) (Output, error) {
	path, err := p.find()
	if err != nil {
		return Output{Exit: -1}, err
	}
	if pid := p.stuckNow(); pid != 0 {
		return Output{Exit: -1}, fmt.Errorf("nvidia-smi of an earlier probe (pid %d) was killed and is still there: the driver hangs", pid)
	}
	limit := cmp.Or(p.Limit, timeLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end within %s", limit))
	defer cancel()

	var stdout, stderr stream
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &stdout, &stderr, "/", killLimit
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return Output{Exit: -1}, fmt.Errorf("start nvidia-smi: %w", err)
	}
	pid := cmd.Process.Pid
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		p.swapStuck(pid, 0)
		ended <- err
	}()
	exit, err := p.await(ctx, pid, ended)
	return Output{Stdout: stdout.bytes(), Stderr: stderr.bytes(), Exit: exit}, err
}

// await waits for the end of a program, or kills it.
func (p *Program) await(ctx context.Context, pid int, ended <-chan error) (int, error) {
	select {
	case err := <-ended:
		return exitStatus(err), nil
	case <-ctx.Done():
	}
	why := context.Cause(ctx)
	p.swapStuck(0, pid)
	if p.kill != nil {
		p.kill(pid)
	} else {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // its group; gone already: all the better
	}
	select {
	case <-ended:
		p.swapStuck(pid, 0)
		return -1, fmt.Errorf("%w, killed", why)
	case <-time.After(killLimit):
		return -1, fmt.Errorf("%w, and it (pid %d) does not die when killed: the driver hangs", why, pid)
	}
}

// exitStatus is -1 for a signal, and where the process was reaped by somebody else, such
// as an agent that reaps all its children.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}

// find returns the path of the program.
func (p *Program) find() (string, error) {
	if p.Path != "" {
		return p.Path, nil
	}
	if path, err := exec.LookPath("nvidia-smi"); err == nil && filepath.IsAbs(path) {
		return path, nil
	}
	for _, folder := range nvidia.ProgramFolders {
		if path, err := exec.LookPath(filepath.Join(folder, "nvidia-smi")); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

// swapStuck replaces the process that is stuck.
func (p *Program) swapStuck(old, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck == old {
		p.stuck = pid
	}
}

func (p *Program) stuckNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

// stream keeps the first part of what is written to it, and may be read while a program
// that was left behind still writes.
type stream struct {
	mu   sync.Mutex
	kept []byte
}

func (s *stream) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, data[:min(len(data), maxOutput-len(s.kept))]...)
	return len(data), nil
}

func (s *stream) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.kept)
}
