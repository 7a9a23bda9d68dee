package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/event"
)

// journal keeps a run's events: in memory for who watches, on disk for who asks later.
type journal struct {
	mu      sync.Mutex
	events  []event.Event
	changed chan struct{}
	disk    *disk
	file    *os.File
	fault   func(error) // is told, once, why events do not reach the file
	faulty  bool        // of the disk's goroutine
}

func openJournal(stateDir string, disk *disk, fault func(error)) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, "events.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{changed: make(chan struct{}), disk: disk, file: f, fault: fault}, nil
}

func (j *journal) add(e event.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq, e.Time = uint64(len(j.events)+1), time.Now()
	j.events = append(j.events, e)
	line := append(e.Encode(), '\n')
	j.disk.do(func() { j.write(line) })
	close(j.changed)
	j.changed = make(chan struct{})
}

// write writes a line. The run goes on without its journal; who watches still sees everything.
func (j *journal) write(line []byte) {
	if _, err := j.file.Write(line); err != nil && !j.faulty {
		j.faulty = true
		j.fault(err)
	}
}

// since returns the events from a sequence number on, and a channel that is closed
// when there are more.
func (j *journal) since(seq uint64) ([]event.Event, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	from := min(max(seq, 1)-1, uint64(len(j.events)))
	return j.events[from:], j.changed
}
