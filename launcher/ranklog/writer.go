//go:build linux

package ranklog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lineHold is how long one lane waits for the other to finish its line, so that lines do not mix in the file. A
	// worker that leaves a line open longer (a prompt, a progress bar) gets what a terminal would show; the map still
	// tells the lanes apart.
	lineHold = 100 * time.Millisecond
	// mergeSpan is how long consecutive bytes of one lane share a map record.
	mergeSpan = time.Second
)

// Writer moves what a worker writes from its pipes into the file. Bytes go from pipe to file inside the kernel
// (splice(2)), so that none is lost if this process is killed: it is in one of the two.
type Writer struct {
	path  string
	log   *os.File
	index *os.File

	mu       sync.Mutex // held while the file is written, which a file system that hangs does not end
	last     record
	lastAt   int64 // where in the map the last record stands
	openLane Lane  // whose line is open, while open is set
	open     bool
	openAt   time.Time
	lineEnd  chan struct{} // closed when the open line ends

	// What may be read meanwhile.
	size    atomic.Int64
	taken   atomic.Int64 // bytes that came out of pipes
	dropped atomic.Int64
	failure atomic.Pointer[error] // of the file; output is thrown away from then on
	state   sync.Mutex            // held for changed and ended
	changed chan struct{}         // closed when bytes were added or the log ended
	ended   bool
}

// Create makes the file of a rank's attempt. An existing one is never touched: it is an error.
func Create(path string) (*Writer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	return open(path, os.O_CREATE|os.O_EXCL)
}

// Resume goes on with the file of a writer that is gone.
func Resume(path string) (*Writer, error) { return open(path, os.O_CREATE) }

func open(path string, flags int) (*Writer, error) {
	log, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	index, err := os.OpenFile(mapPath(path), os.O_RDWR|flags, 0o600)
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("open log map: %w", err)
	}
	w := &Writer{path: path, log: log, index: index, lineEnd: make(chan struct{}), changed: make(chan struct{})}
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	w.size.Store(size)
	end, err := index.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("open log map: %w", err)
	}
	w.lastAt = end - end%recordSize - recordSize
	return w, nil
}

// Path returns where the log is.
func (w *Writer) Path() string { return w.path }

// Pump moves everything from pipe, which must be in non-blocking mode, into the file until its end. The worker never
// waits for the disk: when the file cannot be written, output is read and thrown away, and counted.
func (w *Writer) Pump(pipe *os.File, lane Lane) error {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	var moveErr error
	eof := false
	for !eof && moveErr == nil {
		err := raw.Read(func(fd uintptr) bool {
			n, err := w.move(int(fd), lane)
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			eof, moveErr = n == 0 && err == nil, err
			return true
		})
		if err != nil {
			return fmt.Errorf("read output: %w", err)
		}
	}
	return moveErr
}

// move takes what is in the pipe, at most a chunk. It returns EAGAIN when there is nothing, and 0 at the end.
func (w *Writer) move(fd int, lane Lane) (int, error) {
	w.lockTurn(lane)
	defer w.mu.Unlock()
	if w.failure.Load() != nil {
		return w.discard(fd)
	}
	n, err := w.splice(fd)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, err
	case err != nil:
		w.fail(w.path, err)
		w.announce()
		return w.discard(fd)
	case n > 0:
		w.added(n, lane)
	}
	return n, nil
}

func (w *Writer) splice(fd int) (int, error) {
	for {
		off := w.size.Load()
		n, err := unix.Splice(fd, nil, int(w.log.Fd()), &off, chunk, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			return w.copy(fd) // a file system that cannot splice
		}
		return int(n), err
	}
}

func (w *Writer) copy(fd int) (int, error) {
	buf := make([]byte, chunk)
	n, err := unix.Read(fd, buf)
	if n <= 0 || err != nil {
		return 0, err
	}
	if _, err := w.log.WriteAt(buf[:n], w.size.Load()); err != nil {
		w.dropped.Add(int64(n))
		return 0, err
	}
	return n, nil
}

func (w *Writer) discard(fd int) (int, error) {
	buf := make([]byte, chunk)
	n, err := unix.Read(fd, buf)
	if n > 0 {
		w.taken.Add(int64(n))
		w.dropped.Add(int64(n))
	}
	return max(n, 0), err
}

func (w *Writer) fail(path string, err error) {
	err = fmt.Errorf("write %s: %w", path, err)
	w.failure.CompareAndSwap(nil, &err)
}

// lockTurn locks the writer once lane may write: the other has no line open, or has had it open for too long.
func (w *Writer) lockTurn(lane Lane) {
	for {
		w.mu.Lock()
		left := lineHold - time.Since(w.openAt)
		if !w.open || w.openLane == lane || left <= 0 {
			return
		}
		lineEnd := w.lineEnd
		w.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-lineEnd:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (w *Writer) added(n int, lane Lane) {
	now := time.Now()
	size := w.size.Add(int64(n))
	w.taken.Add(int64(n))
	next := record{end: size, lane: lane, at: now}
	if w.last.end == 0 || w.last.lane != lane || now.Sub(w.last.at) > mergeSpan {
		w.lastAt += recordSize
		w.last = next
	}
	w.last.end = size
	entry := record{end: size, lane: lane, at: now}
	if _, err := w.index.WriteAt(entry.encode(), w.lastAt); err != nil {
		w.fail(mapPath(w.path), err)
	}
	w.noteLine(lane, now)
	w.announce()
}

func (w *Writer) noteLine(lane Lane, now time.Time) {
	var tail [1]byte
	_, err := w.log.ReadAt(tail[:], w.size.Load()-1)
	wasOpen := w.open
	w.open = err == nil && tail[0] != '\n' && tail[0] != '\r'
	if w.open {
		w.openLane, w.openAt = lane, now
	}
	if wasOpen && !w.open {
		close(w.lineEnd)
		w.lineEnd = make(chan struct{})
	}
}

func (w *Writer) announce() {
	w.state.Lock()
	defer w.state.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change, and whether the log has ended. It never waits for the
// file system.
func (w *Writer) Changed() (next <-chan struct{}, ended bool) {
	w.state.Lock()
	defer w.state.Unlock()
	return w.changed, w.ended
}

// Size returns how many bytes the file holds. It never waits for the file system.
func (w *Writer) Size() int64 { return w.size.Load() }

// Taken returns how many bytes were taken from the pipes, kept or not. It never waits for the file system.
func (w *Writer) Taken() int64 { return w.taken.Load() }

// Failure returns how many bytes were thrown away, and why output could not be written; nil if all is well. It never
// waits for the file system.
func (w *Writer) Failure() (dropped int64, why error) {
	if failure := w.failure.Load(); failure != nil {
		why = *failure
	}
	return w.dropped.Load(), why
}

// Removed reports whether the file has lost its name: it is still written, but nobody can open it any more. While it is
// being written that is not known.
func (w *Writer) Removed() bool {
	if !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	var stat unix.Stat_t
	return unix.Fstat(int(w.log.Fd()), &stat) == nil && stat.Nlink == 0
}

// Close ends the log. Pumps have ended, or what they would still move is given up. Readers learn of it at once;
// the files are closed once nobody writes them.
func (w *Writer) Close() error {
	w.state.Lock()
	ended := w.ended
	w.ended = true
	w.state.Unlock()
	if ended {
		return nil
	}
	w.announce()
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.log.Close(), w.index.Close())
}
