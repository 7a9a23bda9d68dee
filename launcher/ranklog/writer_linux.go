package ranklog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lineHold is how long one lane waits for the other to finish its line, so that
// lines do not mix in the file. A worker that leaves a line open longer (a prompt,
// a progress bar) gets what a terminal would show; the map still tells the lanes apart.
const lineHold = 100 * time.Millisecond

// mergeSpan is how long consecutive bytes of one lane share a map record.
const mergeSpan = time.Second

const chunkSize = 64 << 10

// Writer moves what a worker writes from its pipes into the file. Bytes go from
// pipe to file inside the kernel (splice(2)), so that none is lost if this process
// is killed: it is in the one or in the other.
type Writer struct {
	path  string
	log   *os.File
	index *os.File

	mu       sync.Mutex
	size     int64
	last     record
	lastAt   int64 // where in the map the last record stands
	openLane Lane  // whose line is open, while open is set
	open     bool
	openAt   time.Time
	lineEnd  chan struct{} // closed when the open line ends
	changed  chan struct{} // closed when bytes were added or the log ended
	ended    bool
	failure  error // of the file; output is thrown away from then on
	dropped  int64
}

// Create makes the file of a rank's attempt. An existing one is never touched: it
// is an error.
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
	if w.size, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	end, err := index.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("open log map: %w", err)
	}
	w.lastAt = end - end%recordSize - recordSize
	return w, nil
}

// Path returns where the log is.
func (w *Writer) Path() string { return w.path }

// Pump moves everything from pipe, which must be in non-blocking mode, into the
// file until its end. The worker never waits for the disk's mood: when the file
// cannot be written, output is read and thrown away, and counted.
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

// move takes what is in the pipe, at most a chunk. It returns EAGAIN when there
// is nothing, and 0 at the end.
func (w *Writer) move(fd int, lane Lane) (int, error) {
	w.lockTurn(lane)
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.discard(fd)
	}
	n, err := w.splice(fd)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, err
	case err != nil:
		w.failure = fmt.Errorf("write %s: %w", w.path, err)
		w.announce()
		return w.discard(fd)
	case n > 0:
		w.added(n, lane)
	}
	return n, nil
}

func (w *Writer) splice(fd int) (int, error) {
	for {
		off := w.size
		n, err := unix.Splice(fd, nil, int(w.log.Fd()), &off, chunkSize, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
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
	buf := make([]byte, chunkSize)
	n, err := unix.Read(fd, buf)
	if n <= 0 || err != nil {
		return 0, err
	}
	if _, err := w.log.WriteAt(buf[:n], w.size); err != nil {
		w.dropped += int64(n)
		return 0, err
	}
	return n, nil
}

func (w *Writer) discard(fd int) (int, error) {
	buf := make([]byte, chunkSize)
	n, err := unix.Read(fd, buf)
	if n > 0 {
		w.dropped += int64(n)
	}
	return max(n, 0), err
}

// lockTurn locks the writer once lane may write: the other has no line open, or
// has had it open for too long.
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

// added notes n bytes that lane has put at the end of the file.
func (w *Writer) added(n int, lane Lane) {
	now := time.Now()
	w.size += int64(n)
	next := record{end: w.size, lane: lane, at: now}
	if w.last.end == 0 || w.last.lane != lane || now.Sub(w.last.at) > mergeSpan {
		w.lastAt += recordSize
		w.last = next
	}
	w.last.end = w.size
	entry := record{end: w.size, lane: lane, at: now}
	if _, err := w.index.WriteAt(entry.encode(), w.lastAt); err != nil && w.failure == nil {
		w.failure = fmt.Errorf("write %s: %w", mapPath(w.path), err)
	}
	w.noteLine(lane, now)
	w.announce()
}

func (w *Writer) noteLine(lane Lane, now time.Time) {
	var tail [1]byte
	_, err := w.log.ReadAt(tail[:], w.size-1)
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
	close(w.changed)
	w.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change, and whether the log
// has ended.
func (w *Writer) Changed() (next <-chan struct{}, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed, w.ended
}

// Size returns how many bytes the file holds.
func (w *Writer) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Failure returns how many bytes were thrown away, and why output could not be
// written; nil if all is well.
func (w *Writer) Failure() (dropped int64, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped, w.failure
}

// Removed reports whether the file has lost its name: it is still written, but nobody
// can open it any more.
func (w *Writer) Removed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stat unix.Stat_t
	return !w.ended && unix.Fstat(int(w.log.Fd()), &stat) == nil && stat.Nlink == 0
}

// Close ends the log. Pumps have ended, or what they would still move is given up.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	w.ended = true
	w.announce()
	return errors.Join(w.log.Close(), w.index.Close())
}
