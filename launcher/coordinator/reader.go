package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/rendezvous/link"
)

// reader is somebody who reads the output of ranks. Agents push it here at the reader's pace.
type reader struct {
	name   string
	ranks  map[int]int64 // where to begin in the attempt that runs at first
	of     map[int]int   // which attempt that must be, or it is read from its start; none: any
	chunks chan *link.Chunk
	done   <-chan struct{} // closed when the reader has left
	woken  chan struct{}   // gets a value when end was called

	mu    sync.Mutex
	hosts map[int]string   // of ranks
	next  map[source]int64 // next byte wanted of each output that has not ended
	last  bool             // no attempt will follow
	moved time.Time        // when output last got to the reader
	late  bool             // the run has ended without waiting for the reader any longer
}

// source is the output of a rank in an attempt.
type source struct{ attempt, rank int }

// idle is how long a reader may take nothing before the run ends without it. Who reads later finds the rest in the
// files.
const idle = 10 * time.Second

func newReader(ctx context.Context, request *pb.LogsRequest) *reader {
	r := &reader{
		ranks: map[int]int64{}, of: map[int]int{}, chunks: make(chan *link.Chunk), done: ctx.Done(),
		woken: make(chan struct{}, 1), hosts: map[int]string{}, next: map[source]int64{}, moved: time.Now(),
	}
	for _, rank := range request.Ranks {
		r.ranks[int(rank)] = int64(request.From[rank])
		if request.Tail {
			r.ranks[int(rank)] = message.FromTail
		}
		if attempt, known := request.Attempt[rank]; known {
			r.of[int(rank)] = int(attempt)
		}
	}
	return r
}

// from is where to begin in the attempt that is running at first.
func (r *reader) from(attempt, rank int) int64 {
	if of, told := r.of[rank]; told && of != attempt {
		return 0
	}
	return r.ranks[rank]
}

// add adds the output of one rank, which is on a host.
func (r *reader) add(s source, host string, from int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[s], r.hosts[s.rank] = from, host
}

// attempts are those of which output is still wanted.
func (r *reader) attempts() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[int]bool{}
	for s := range r.next {
		found[s.attempt] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// end says that no attempt will follow.
func (r *reader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last {
		r.last = true
		r.woken <- struct{}{}
	}
}

// wanted returns the ranks, of those that want selects, whose output of an attempt has
// not ended, and from where on.
func (r *reader) wanted(attempt int, want func(rank int) bool) map[int]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ranks := map[int]int64{}
	for s, from := range r.next {
		if s.attempt == attempt && want(s.rank) {
			ranks[s.rank] = from
		}
	}
	return ranks
}

// hasLeft reports whether the reader reads no more.
func (r *reader) hasLeft() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// finished reports whether nothing more is to be waited for: all was read, or the
// reader has left or takes nothing. Ranks whose host is lost do not count.
func (r *reader) finished(lost func(rank int) bool) bool {
	if r.hasLeft() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.next {
		if !lost(s.rank) {
			r.late = time.Since(r.moved) > idle
			return r.late
		}
	}
	return true
}

// cutOff is the error of a reader that the run has ended without.
func (r *reader) cutOff() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late && len(r.next) > 0 {
		return status.Errorf(codes.DeadlineExceeded, "nothing was read for %v", idle)
	}
	return nil
}

// pass hands one chunk on, less what the reader has already (after a lost connection agents may push the same bytes
// again), and reports whether that was the last.
func (r *reader) pass(c *link.Chunk, send func(*pb.LogChunk) error) (over bool, err error) {
	var s source
	if _, err := fmt.Sscanf(c.Source, "%d/%d", &s.attempt, &s.rank); err != nil {
		return false, fmt.Errorf("output of %q: %w", c.Source, err)
	}
	r.mu.Lock()
	next, wanted := r.next[s]
	host := r.hosts[s.rank]
	r.mu.Unlock()
	if !wanted {
		return false, nil
	}
	data, offset := c.Data, int64(c.Offset)
	if skip := next - offset; skip > 0 && !c.End {
		data, offset = data[min(skip, int64(len(data))):], next
	}
	if len(data) > 0 || c.End {
		err = send(&pb.LogChunk{
			Rank: int32(s.rank), Attempt: int32(s.attempt), Host: host, Lane: c.Lane, Offset: uint64(offset),
			Data: data, End: c.End,
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = time.Now()
	if c.End {
		delete(r.next, s)
	} else {
		r.next[s] = offset + int64(len(data))
	}
	return r.last && len(r.next) == 0, err
}

// isOver reports whether nothing more will come.
func (r *reader) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last && len(r.next) == 0
}
