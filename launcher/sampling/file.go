//go:build linux

package sampling

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/launcher/samples"
)

const (
	// FileName is the folder of samples in the run's folder.
	FileName = "samples"
	// samplesWaiting is how much may wait for the disk: a minute of samples.
	samplesWaiting = 60
	// samplesEnd is how long the disk may take for what is left at the end.
	samplesEnd = time.Second
)

// File keeps what is measured of all attempts in the run's folder. A goroutine of its own does what touches the disk,
// so that one that hangs keeps nobody waiting: what it does not take meanwhile is lost, with a warning.
type File struct {
	path  string
	base  time.Time // from which seconds count, on the clock that stops during a suspend
	jobs  chan func() error
	ctx   context.Context // until Close
	stop  context.CancelFunc
	ended chan struct{}
	warn  func(ctx context.Context, message string)

	recorder *samples.Recorder // of the goroutine
	late     bool              // the disk takes nothing, which was reported; of the caller of keep
}

// NewFile begins to keep samples. The file is made with the first one.
func NewFile(path string, warn func(ctx context.Context, message string)) *File {
	f := &File{
		path: path, base: time.Now(), warn: warn,
		jobs: make(chan func() error, samplesWaiting), ended: make(chan struct{}),
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	go f.work()
	return f
}

func (f *File) work() {
	defer close(f.ended)
	failed := false
	do := func(job func() error) {
		if failed {
			return
		}
		if err := job(); err != nil {
			failed = true
			f.warn(f.ctx, fmt.Sprintf("how much memory ranks use is not kept any more: %v; the run goes on", err))
		}
	}
	for f.ctx.Err() == nil {
		select {
		case job := <-f.jobs:
			do(job)
		case <-f.ctx.Done():
		}
	}
	for len(f.jobs) > 0 {
		do(<-f.jobs)
	}
	if f.recorder != nil {
		_ = f.recorder.Close() // a full disk was reported before
	}
}

// do has the goroutine run a job once the disk is free; false: too many wait.
func (f *File) do(job func() error) bool {
	select {
	case f.jobs <- job:
		return true
	default:
		return false
	}
}

// keep puts a sample into the file: for each slot who is in it, and what was measured.
func (f *File) keep(now time.Time, who []samples.Occupant, values []samples.Values) {
	at := now.Sub(f.base).Seconds()
	kept := f.do(func() (err error) {
		if f.recorder == nil {
			if f.recorder, err = samples.Create(f.path, float64(f.base.UnixMilli())/1000); err != nil {
				return err
			}
		}
		return f.recorder.Add(at, who, values)
	})
	switch {
	case !kept && !f.late:
		f.late = true
		f.warn(f.ctx, fmt.Sprintf("the file system of %s takes nothing: how much memory ranks use is not kept meanwhile; "+
			"the run goes on", filepath.Dir(f.path)))
	case kept && len(f.jobs) <= 1:
		f.late = false
	}
}

func (f *File) flush() {
	f.do(func() error {
		if f.recorder == nil {
			return nil
		}
		return f.recorder.Flush()
	})
}

// read hands all that was kept so far to use.
func (f *File) read(use func(*samples.Series)) {
	f.do(func() error {
		if f.recorder == nil {
			return nil
		}
		if err := f.recorder.Flush(); err != nil {
			return err
		}
		if series, err := samples.Read(f.path); err == nil { // else the next time may do
			use(series)
		}
		return nil
	})
}

// Close completes the file, if the disk does that in time.
func (f *File) Close() {
	f.stop()
	select {
	case <-f.ended:
	case <-time.After(samplesEnd):
	}
}
