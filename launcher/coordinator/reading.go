package coordinator

import (
	"context"
	"strconv"
	"sync"
	"time"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/rendezvous"
)

// reading is somebody who reads the output of ranks. Agents push it here at the
// reader's pace.
type reading struct {
	name   string
	chunks chan *rendezvous.Chunk
	done   <-chan struct{} // closed when the reader has left

	mu    sync.Mutex
	next  map[int]int64 // next byte wanted of each rank that has not ended
	moved time.Time     // when output last got to the reader
}

// idle is how long a reader may take nothing before the run ends without it.
const idle = 30 * time.Second

func newReading(ctx context.Context, name string, from map[int]int64) *reading {
	return &reading{name: name, chunks: make(chan *rendezvous.Chunk), done: ctx.Done(), next: from, moved: time.Now()}
}

// wanted returns the ranks, of those that want selects, that have not ended, and from
// where on.
func (r *reading) wanted(want func(rank int) bool) map[int]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ranks := map[int]int64{}
	for rank, from := range r.next {
		if want(rank) {
			ranks[rank] = from
		}
	}
	return ranks
}

// finished reports whether nothing more is to be waited for: all was read, or the
// reader has left or takes nothing. Ranks whose host is lost do not count.
func (r *reading) finished(lost func(rank int) bool) bool {
	select {
	case <-r.done:
		return true
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for rank := range r.next {
		if !lost(rank) {
			return time.Since(r.moved) > idle
		}
	}
	return true
}

// pass hands one chunk on, less what the reader has already (after a lost connection
// agents may push the same bytes again), and reports whether all ranks have ended.
func (r *reading) pass(attempt int, c *rendezvous.Chunk, send func(*pb.LogChunk) error) (allEnded bool, err error) {
	rank, err := strconv.Atoi(c.Source)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	next, reading := r.next[rank]
	r.mu.Unlock()
	if !reading {
		return false, nil
	}
	data, offset := c.Data, int64(c.Offset)
	if skip := next - offset; skip > 0 && !c.End {
		data, offset = data[min(skip, int64(len(data))):], next
	}
	if len(data) > 0 || c.End {
		err = send(&pb.LogChunk{Rank: int32(rank), Attempt: int32(attempt), Lane: c.Lane, Offset: uint64(offset), Data: data, End: c.End})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = time.Now()
	if c.End {
		delete(r.next, rank)
	} else {
		r.next[rank] = offset + int64(len(data))
	}
	return len(r.next) == 0, err
}
