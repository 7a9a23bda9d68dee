package coordinator

import (
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// liveFile keeps what workers report of themselves beside the control socket, for those who ask while the run goes
// on.
type liveFile struct {
	dir     string // "": nowhere
	written int    // Record.Observed of then
	at      link.Instant
}

// Pace of the file: rewriting it costs by its size.
const (
	livePace        = time.Second
	livePacePerRank = 2 * time.Millisecond
)

// write rewrites the file where something is new.
func (f *liveFile) write(state *run.Run, now link.Instant) {
	pace := livePace + time.Duration(len(state.Ranks))*livePacePerRank
	if f.dir == "" || state.Record.Observed == f.written || f.at != 0 && now.Sub(f.at) < pace {
		return
	}
	f.written, f.at = state.Record.Observed, now
	// If it fails, the next report writes it again: the run does not depend on it.
	_ = replace(f.dir, rundir.Observed, message.Encode(observed(state)))
}

// observed is the newest that all workers of the attempt have reported.
func observed(state *run.Run) message.Observed {
	all := message.Observed{Ranks: map[int]message.RankObserved{}}
	for rank, k := range state.Ranks {
		if k.Observed != nil {
			all.Ranks[rank] = message.RankObserved{Attempt: k.Attempt, Latest: k.Observed}
		}
	}
	return all
}
