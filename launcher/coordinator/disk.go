package coordinator

import (
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/rendezvous/link"
)

// disk does what touches the run's folder, in order and in a goroutine of its own: where the file system hangs, the
// loop that decides goes on. The goroutine lives as long as the process.
type disk struct{ jobs *link.Queue[func()] }

func newDisk() *disk {
	d := &disk{link.NewQueue[func()](nil)}
	go func() {
		for job := range d.jobs.Out() {
			job()
		}
	}()
	return d
}

func (d *disk) do(job func()) { d.jobs.Put(job) }

// settle waits until everything so far is done, at most so long, and reports whether it is.
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

// replace writes a file of a folder whole or not at all.
func replace(dir, name string, text []byte) error {
	path := filepath.Join(dir, name)
	err := os.WriteFile(path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
