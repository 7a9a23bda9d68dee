package nvidiasmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Runner runs nvidia-smi. Tests replay recorded outputs by it.
type Runner interface {
	// Run returns what the program said, whatever its exit status. An error means that it
	// did not run to its end; the output then holds what it said until there.
	Run(ctx context.Context, args ...string) (Output, error)
}

// Output is what one run said.
type Output struct {
	Stdout, Stderr []byte
	Exit           int // -1: not known
}

// ErrNotInstalled says that there is no nvidia-smi in PATH and the usual places.
var ErrNotInstalled = errors.New("nvidia-smi is not installed")

const (
	timeLimit = 5 * time.Second
	// lastWords is how long a killed program may take to die, and one that ended may
	// leave its pipes to others.
	lastWords = time.Second
	// longest is how much is kept of a stream: 16 GPUs say about 1 MiB.
	longest = 16 << 20
)

// usualPlaces are tried after PATH, which services and non-interactive shells often cut.
var usualPlaces = []string{
	"/usr/bin", "/usr/local/bin", "/bin",
	"/usr/local/nvidia/bin",         // containers of some clouds
	"/run/nvidia/driver/usr/bin",    // driver in a container of the GPU operator
	"/run/current-system/sw/bin",    // NixOS
	"/usr/lib/wsl/lib", "/opt/bin/", // WSL; container-optimised systems
}

// Program is the real nvidia-smi. A program that does not end within the limit is killed
// with its children. A driver that hangs keeps even killed programs (state D): such a one
// is left behind, and as long as it is there no other is started, so that probing again
// and again does not pile them up. One goroutine waits for each program until it ends.
type Program struct {
	Path  string        // empty: looked for
	Limit time.Duration // of each run; 0: 5 s

	places []string      // nil: usualPlaces
	kill   func(pid int) // nil: killGroup

	mu    sync.Mutex
	stuck map[int]bool
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
	limit := p.Limit
	if limit == 0 {
		limit = timeLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end within %s", limit))
	defer cancel()

	var stdout, stderr stream
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = lastWords
	if err := cmd.Start(); err != nil {
		return Output{Exit: -1}, fmt.Errorf("start nvidia-smi: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		p.release(cmd.Process.Pid)
		ended <- err
	}()
	exit, err := p.await(ctx, cmd.Process.Pid, ended)
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
	p.hold(pid)
	if p.kill != nil {
		p.kill(pid)
	} else {
		killGroup(pid)
	}
	select {
	case <-ended:
		p.release(pid)
		return -1, fmt.Errorf("%w, killed", why)
	case <-time.After(lastWords):
		return -1, fmt.Errorf("%w, and it (pid %d) does not die when killed: the driver hangs", why, pid)
	}
}

func killGroup(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL) // gone already: all the better
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

// find tells where the program is.
func (p *Program) find() (string, error) {
	if p.Path != "" {
		return p.Path, nil
	}
	if path, err := exec.LookPath("nvidia-smi"); err == nil && filepath.IsAbs(path) {
		return path, nil
	}
	places := p.places
	if places == nil {
		places = usualPlaces
	}
	for _, folder := range places {
		path := filepath.Join(folder, "nvidia-smi")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

// hold marks a program as killed and not yet gone.
func (p *Program) hold(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck == nil {
		p.stuck = map[int]bool{}
	}
	p.stuck[pid] = true
}

func (p *Program) release(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.stuck, pid)
}

// stuckNow is the pid of a program that was killed and is not gone, or 0.
func (p *Program) stuckNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.stuck {
		return pid
	}
	return 0
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
	s.kept = append(s.kept, data[:min(len(data), longest-len(s.kept))]...)
	return len(data), nil
}

func (s *stream) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.kept)
}
