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
// is not for a process in which somebody else waits for all children.
//
// Each plugin is in the process group of a guard, a shell that does nothing but wait for
// this process: when it is gone, the guard kills its group. The plugin itself is also
// killed by the kernel then; its children are left to the guard. Of those that leave the
// group nobody knows.
type Children struct{}

var _ Starter = Children{}

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
	p := &childProcess{stdout: stdout, stderr: stderr, ended: make(chan struct{})}
	if err := p.start(s, out, errs); err != nil {
		stdout.Close()
		stderr.Close()
		return nil, err
	}
	go p.reap()
	return p, nil
}

// childProcess is a plugin and its guard.
type childProcess struct {
	stdout, stderr *os.File
	plugin, guard  *exec.Cmd
	line           *os.File // the guard reads its end when this process is gone

	ended chan struct{}
	how   error // once ended

	mu   sync.Mutex
	gone bool // the guard was waited for, and the group's number may be another's
}

func (p *childProcess) start(s Spec, stdout, stderr *os.File) error {
	if err := p.startGuard(); err != nil {
		return fmt.Errorf("start its guard: %w", err)
	}
	const descriptor = 3 // the first of ExtraFiles
	p.plugin = &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", descriptor), Args: s.Argv, Dir: "/",
		Env:    append([]string{}, s.Env...), // nil would be this process's
		Stdout: stdout, Stderr: stderr, ExtraFiles: []*os.File{s.File},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pgid: p.guard.Process.Pid, Pdeathsig: syscall.SIGKILL},
	}
	if err := byForker(p.plugin.Start); err != nil {
		p.endGuard()
		return err
	}
	return nil
}

func (p *childProcess) startGuard() error {
	far, line, err := os.Pipe()
	if err != nil {
		return err
	}
	defer far.Close()
	p.line = line
	p.guard = &exec.Cmd{
		Path: "/bin/sh", Args: []string{"muster-plugin-guard", "-c", "read line; kill -KILL 0"}, Dir: "/",
		Env: []string{}, Stdin: far, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := p.guard.Start(); err != nil {
		line.Close()
		return err
	}
	return nil
}

// reap waits for the plugin, kills what it left, and then lets the group's number go.
func (p *childProcess) reap() {
	p.how = p.plugin.Wait()
	p.endGuard()
	close(p.ended)
}

func (p *childProcess) endGuard() {
	_ = p.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.guard.Wait() // always "killed"
	p.line.Close()
	p.gone = true
}

// Kill kills the process and its group.
func (p *childProcess) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	return syscall.Kill(-p.guard.Process.Pid, syscall.SIGKILL)
}

// Wait waits for the end.
func (p *childProcess) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.how
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *childProcess) PID() int              { return p.plugin.Process.Pid }
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

func byForker(start func() error) error {
	done := make(chan error)
	forker() <- func() { done <- start() }
	return <-done
}
