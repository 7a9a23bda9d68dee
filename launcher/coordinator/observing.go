package coordinator

import (
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// heardOf takes in what the workers of a host have told of themselves.
func (b *brain) heardOf(host int, o *message.Observed) {
	for rank, told := range o.Ranks {
		if rank < 0 || rank >= len(b.ranks) || told.Latest == nil {
			continue
		}
		if r := b.ranks[rank]; r.host == host && r.attempt == told.Attempt && r.ended == nil {
			r.observed = told.Latest
			b.told++
		}
	}
}

// observed is the newest that all workers of the attempt have told.
func (b *brain) observed() message.Observed {
	all := message.Observed{Ranks: map[int]message.RankObserved{}}
	for rank, r := range b.ranks {
		if r.observed != nil {
			all.Ranks[rank] = message.RankObserved{Attempt: r.attempt, Latest: r.observed}
		}
	}
	return all
}

// furthestTold is how far the run was by what the workers of the attempt have told, where
// the one that failed has told nothing: often one rank tells for all. nil where none has.
func (b *brain) furthestTold() *failure.Steps {
	var found *failure.Steps
	if b.places != nil {
		return nil // independent ranks do not tell for each other
	}
	for _, r := range b.ranks {
		if s := failure.StepsReported(r.observed); s != nil && (found == nil || s.Furthest.Compare(found.Furthest) > 0) {
			found = s
		}
	}
	return found
}

// liveFile keeps what workers tell of themselves where somebody who asks finds it: beside
// the control socket, as it is of interest as long as the run goes on.
type liveFile struct {
	dir     string // "": nowhere
	written int    // brain.told of then
	at      link.Instant
}

// Pace of the file: rewriting it costs by its size.
const (
	livePace        = time.Second
	livePacePerRank = 2 * time.Millisecond
)

// write writes the file anew where there is news.
func (f *liveFile) write(b *brain, now link.Instant) {
	pace := livePace + time.Duration(len(b.ranks))*livePacePerRank
	if f.dir == "" || b.told == f.written || f.at != 0 && now.Sub(f.at) < pace {
		return
	}
	f.written, f.at = b.told, now
	// It is written again at the next news, and the run does not hang on it.
	_ = replace(filepath.Join(f.dir, rundir.Observed), message.Encode(b.observed()))
}
