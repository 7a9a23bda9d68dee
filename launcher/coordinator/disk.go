package coordinator

import (
	"os"
	"sync"
	"time"
)

// disk does what touches the run's folder, in the order in which it was asked for and by a
// goroutine of its own: where the file system hangs, the loop that decides goes on. The
// goroutine lives as long as the process.
type disk struct {
	mu   sync.Mutex
	jobs []func()
	more chan struct{} // gets a value when there are jobs
}

func newDisk() *disk {
	d := &disk{more: make(chan struct{}, 1)}
	go d.work()
	return d
}

func (d *disk) work() {
	for range d.more {
		for _, job := range d.take() {
			job()
		}
	}
}

func (d *disk) take() []func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	jobs := d.jobs
	d.jobs = nil
	return jobs
}

func (d *disk) do(job func()) {
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
	select {
	case d.more <- struct{}{}:
	default:
	}
}

// settle waits until all is done that was asked for, at most so long, and reports whether
// it is.
func (d *disk) settle(limit time.Duration) bool {
	done := make(chan struct{})
	d.do(func() { close(done) })
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// replace writes a file whole or not at all.
func replace(path string, text []byte) error {
	err := os.WriteFile(path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
