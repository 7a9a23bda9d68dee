//go:build linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit is how a process ended.
type Exit struct {
	Code   int            // exit status; meaningless after a signal
	Signal syscall.Signal // 0 if it exited by itself
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by %s", unix.SignalName(e.Signal))
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Spec is a process to start.
type Spec struct {
	Path string
	Argv []string
	Env  []string
	Dir  string
	// Files become the descriptors 0, 1, 2, ... of the process; nil is /dev/null.
	Files []*os.File
	// Group puts the process at the head of a process group of its own.
	Group bool
	// GroupDies has what is left of the process's group killed when the process has ended.
	GroupDies bool
	// DieWithParent has the kernel kill the process when its parent does.
	DieWithParent bool
	// CPUs are those that the process is bound to; nil leaves it unbound. Node is the NUMA
	// node whose memory it is to prefer.
	CPUs []int
	Node *int
}

// Child is a started process of this one.
type Child struct {
	ID   ID
	Done chan struct{} // closed once it was reaped
	// MemoryPolicy is why the process could not be told which memory to prefer: nil if it
	// was. It runs all the same.
	MemoryPolicy error
	exit         Exit
	groupDies    bool
}

// Exit returns how the process ended; it may be called once Done is closed.
func (c *Child) Exit() Exit { return c.exit }

// Reaper starts all children of this process and alone waits for them: theirs and
// those it inherits as a subreaper. There is one in a process.
type Reaper struct {
	mu       sync.Mutex
	children map[int]*Child
	forks    chan func()
}

// NewReaper makes this process a subreaper and starts reaping, for ever.
func NewReaper() (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	r := &Reaper{children: map[int]*Child{}, forks: make(chan func())}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go r.fork()
	go func() {
		for {
			r.reapAll()
			<-ended
		}
	}()
	return r, nil
}

// fork starts processes from one thread that never ends, since the parent-death
// signal is tied to the thread that forked, not to the process.
func (r *Reaper) fork() {
	runtime.LockOSThread()
	for f := range r.forks {
		f()
	}
}

// Start starts a process. It is registered before its end can be seen.
func (r *Reaper) Start(spec Spec) (*Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Dir: spec.Dir, Env: spec.Env, Sys: &syscall.SysProcAttr{Setpgid: spec.Group}}
	if spec.DieWithParent {
		attr.Sys.Pdeathsig = unix.SIGKILL
	}
	for _, f := range spec.Files {
		if f == nil {
			f = null
		}
		attr.Files = append(attr.Files, f.Fd())
	}
	child := &Child{Done: make(chan struct{}), groupDies: spec.Group && spec.GroupDies}
	started := make(chan error)
	r.forks <- func() { started <- r.start(spec, attr, child) }
	err = <-started
	runtime.KeepAlive(spec.Files)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return child, nil
}

func (r *Reaper) start(spec Spec, attr *syscall.ProcAttr, child *Child) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	unbind, err := bind(spec, child)
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec(spec.Path, spec.Argv, attr)
	if err := unbind(); err != nil {
		panic(err) // all that is started from now on would be bound where it must not be
	}
	if err != nil {
		return err
	}
	child.ID.PID = pid
	if s, err := StatOf(pid); err == nil { // it cannot be gone: nobody has reaped it
		child.ID = s.ID
	}
	r.children[pid] = child
	return nil
}

func (r *Reaper) reapAll() {
	for {
		pid := endedChild()
		if pid == 0 || !r.reap(pid) {
			return
		}
	}
}

// endedChild returns a child that ended and leaves it in place, so that its pid
// cannot be given to another process while it is still being looked up.
func endedChild() int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0
		}
		// si_pid stands behind three ints and the padding of a 64-bit kernel (sigaction(2)).
		return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16)))
	}
}

func (r *Reaper) reap(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if child := r.children[pid]; child != nil && child.groupDies {
		_ = unix.Kill(-pid, unix.SIGKILL) // as long as it is not reaped the number is its group's
	}
	var status unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if got != pid {
			return false
		}
		break
	}
	if child := r.children[pid]; child != nil {
		delete(r.children, pid)
		child.exit = exitOf(status)
		close(child.Done)
	}
	return true
}

func exitOf(status unix.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Signal: status.Signal()}
	}
	return Exit{Code: status.ExitStatus()}
}
