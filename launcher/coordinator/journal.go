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
	file    *os.File
}

func openJournal(stateDir string) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, "events.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{changed: make(chan struct{}), file: f}, nil
}

func (j *journal) add(e event.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq, e.Time = uint64(len(j.events)+1), time.Now()
	j.events = append(j.events, e)
	// The run goes on without its journal; who watches still sees everything.
	_, _ = j.file.Write(append(e.Encode(), '\n'))
	close(j.changed)
	j.changed = make(chan struct{})
}

// since returns the events from a sequence number on, and a channel that is closed
// when there are more.
func (j *journal) since(seq uint64) ([]event.Event, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	from := min(max(seq, 1)-1, uint64(len(j.events)))
	return j.events[from:], j.changed
}
