package event

import (
	"encoding/json"
	"time"

	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

// State is where a run stands, as its events tell.
type State struct {
	Name    string // one of the States
	Attempt int
	Since   time.Time // of the newest event
	Message string    // of the newest event that changed Name
	Ranks   map[int]RankState
	Report  *report.Report // once over
	// Notices are what the user has to know of, in the order in which it came: findings of
	// checks, warnings, lost hosts, and failures that were followed by another attempt.
	Notices []Event
	// MPS are GPUs that ranks share by MPS, by host, as they were told of last.
	MPS map[string][]report.MPSGPU
	// Samples is how ranks use memory and devices now. Events do not tell it: nil where nobody
	// was asked.
	Samples *samples.Overview
}

// Names of a run's state. The last two are not told by events: who asks finds out.
const (
	Starting = "starting"
	Running  = "running"
	StopsNow = "stopping"
	IsOver   = "over"
	IsLost   = "lost"    // its coordinator is no more and has left no report
	Unknown  = "unknown" // its head host cannot be asked
)

// RankState is where a rank stands.
type RankState struct {
	Host    string
	Attempt int
	Name    string // "starting", "running", "ended", or Unknown: nobody has heard of its end
	PID     int
	Since   time.Time
	Message string
	Log     string
	Failed  bool
	// Observed is the newest that the worker has told of itself; nil where that was nothing.
	Observed *observe.Latest
}

// Take takes the next event in.
func (s *State) Take(e Event) {
	if s.Ranks == nil {
		s.Name, s.Ranks = Starting, map[int]RankState{}
	}
	if s.Since = e.Time; e.Rank == nil { // else it may be the rank's own
		s.Attempt = e.Attempt
	}
	switch e.Kind {
	case Found, Warning, Lost, Restarting:
		s.Notices = append(s.Notices, e)
	}
	switch e.Kind {
	case Restarting:
		if s.Name == StopsNow { // all ranks were ended; one that restarts alone leaves the others running
			s.Name, s.Message, s.Attempt = Starting, e.Message, e.Attempt+1
		}
	case Meeting:
		if e.Attempt > 0 { // before the first attempt the run is not committed yet
			s.Name, s.Message = Running, e.Message
		}
	case Committed:
		s.Name, s.Message = Running, e.Message
	case Stopping:
		s.Name, s.Message = StopsNow, e.Message
	case Over:
		s.Name, s.Message, s.Report = IsOver, e.Message, e.Report
		s.recall(e.Report)
		s.forgetRunning()
	case Shared:
		if s.MPS == nil {
			s.MPS = map[string][]report.MPSGPU{}
		}
		s.MPS[e.Host] = e.MPS
	case Started, Ended:
		r := RankState{Host: e.Host, Attempt: e.Attempt, Since: e.Time, Message: e.Message, Log: e.Log}
		if r.Name = "ended"; e.Kind == Started {
			r.Name, r.PID = "running", e.PID
		} else {
			r.Failed = e.Failed
		}
		s.Ranks[*e.Rank] = r
	}
}

// Lose notes that the run has lost its coordinator, and why.
func (s *State) Lose(message string) {
	s.Name, s.Message = IsLost, message
	s.forgetRunning()
}

// forgetRunning is for an end of the run: of ranks that ran until then no end will be heard.
func (s *State) forgetRunning() {
	for rank, r := range s.Ranks {
		if r.Name == "running" {
			r.Name, r.PID = Unknown, 0
			s.Ranks[rank] = r
		}
	}
}

// recall takes from a report what workers have told of themselves until they ended.
func (s *State) recall(r *report.Report) {
	if r == nil {
		return
	}
	for _, rank := range r.Ranks {
		if n := len(rank.Ends); n > 0 {
			s.Observe(rank.Rank, rank.Ends[n-1].Attempt, rank.Ends[n-1].Observed)
		}
	}
}

// Observe notes what a rank's worker of an attempt has told of itself.
func (s *State) Observe(rank, attempt int, latest *observe.Latest) {
	if r, known := s.Ranks[rank]; known && r.Attempt == attempt && latest != nil {
		r.Observed = latest
		s.Ranks[rank] = r
	}
}

// Fold reads a journal, one event a line; a last line that is not whole is left out.
func Fold(lines [][]byte) State {
	var s State
	for _, line := range lines {
		var e Event
		if json.Unmarshal(line, &e) == nil {
			s.Take(e)
		}
	}
	return s
}
