//go:build linux

package external

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Children starts plugins as children of this process, for programs without a keeper. It
// is not for a process in which somebody else waits for all children. The kernel kills the
// plugin when this process dies; what the plugin has started itself may outlive it then.
type Children struct{}

var _ Starter = Children{}

// childProcess is a plugin at the head of a process group.
type childProcess struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File

	mu    sync.Mutex // held to signal the group, whose number may be another's once ended is set
	ended chan struct{}
	exit  error // once ended
}

// Start starts a plugin.
func (Children) Start(ctx context.Context, s Spec) (Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	stderr, errs, err := os.Pipe()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	defer errs.Close()
	const descriptor = 3 // the first of ExtraFiles
	p := &childProcess{stdout: stdout, stderr: stderr, ended: make(chan struct{}), cmd: &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", descriptor), Args: s.Argv, Dir: "/",
		Env:    append([]string{}, s.Env...), // nil would be this process's
		Stdout: out, Stderr: errs, ExtraFiles: []*os.File{s.File},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}}
	started := make(chan error)
	forker() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		stdout.Close()
		stderr.Close()
		return nil, err
	}
	go p.reap()
	return p, nil
}

// reap waits for the plugin, and kills what it left of its group.
func (p *childProcess) reap() {
	exit := p.cmd.Wait()
	_ = p.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exit = exit
	close(p.ended)
}

// Kill kills the process and its group.
func (p *childProcess) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if within(p.ended, 0) {
		return nil
	}
	return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

// Wait waits for the end.
func (p *childProcess) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.exit
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *childProcess) PID() int              { return p.cmd.Process.Pid }
func (p *childProcess) Stdout() io.ReadCloser { return p.stdout }
func (p *childProcess) Stderr() io.ReadCloser { return p.stderr }

// forker is a thread that never ends. The parent-death signal is tied to the thread that
// forked: one that the runtime ends would take the plugin along.
var forker = sync.OnceValue(func() chan<- func() {
	forks := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range forks {
			f()
		}
	}()
	return forks
})
