//go:build linux

package testbed

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own, which ends with f: f may change the
// thread's namespaces. It returns when f has.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the runtime drops the thread
		if unix.Gettid() == os.Getpid() {
			// The main thread stands for the process in /proc and for `ip ... netns
			// PID`: it must keep its namespaces. Hold it while another one serves.
			onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// thread is an OS thread that waits for work until it is ended. Children started
// on it inherit its namespaces, and their parent-death signal comes with its end,
// not with that of some thread the Go runtime had no more use for.
type thread struct {
	work chan func()
	done chan struct{}
}

// newThread starts a thread and calls setup on it.
func newThread(setup func() error) (*thread, error) {
	t := &thread{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		onThread(func() {
			for f := range t.work {
				f()
			}
		})
	}()
	if err := t.do(setup); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// do calls f on the thread; one call at a time.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	t.work <- func() { result <- f() }
	return <-result
}

// end ends the thread and waits for that. Nothing may call do afterwards.
func (t *thread) end() {
	close(t.work)
	<-t.done
}
