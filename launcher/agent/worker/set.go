//go:build linux

package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/progress"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Config is what workers need of the agent. The loop calls its functions.
type Config struct {
	Place    rundir.Place
	Home     string
	Loop     *loop.Loop
	Reaper   *proc.Reaper
	Keeper   *keeper.Conn
	Progress *progress.Reports
	// KeeperLost is called when the keeper does not take a worker's output.
	KeeperLost func()
	// Devices is what is known of the devices until a worker's end.
	Devices func(*Worker) *evidence.Devices
	// Over is called when a worker has ended and nothing more will come of it. It stays in the Set until Remove.
	Over func(w *Worker, ended *message.Ended, at link.Instant)
}

// Set is the workers of this host. The loop owns it.
type Set struct {
	Config
	Workdir string
	Base    map[string]string // the environment that workers start from
	Grace   time.Duration
	workers map[int]*Worker // by rank; those whose end was reported are taken out

	policyWarned bool // that memory policies do not work here
}

// New returns a set without workers.
func New(c Config) *Set { return &Set{Config: c, workers: map[int]*Worker{}} }

// Start starts the ranks of a command. Each is reported as started or ended.
func (s *Set) Start(c *message.Start) {
	s.Grace = c.Grace
	checkpoints := c.Checkpoints
	if checkpoints != "" {
		checkpoints = environ.Expand(checkpoints, s.Home, s.Workdir)
	}
	b := newBaseline(checkpoints)
	defer b.closeUnused()
	for _, r := range c.Ranks {
		w, err := s.start(c, r, b)
		if err != nil {
			ended := &message.Ended{Attempt: c.Attempt, Rank: r.Rank, Error: err.Error()}
			if w != nil {
				ended.Log = w.Log.Path()
			}
			if errors.Is(err, errNoKeeper) { // that came first
				s.KeeperLost()
			}
			s.Loop.Report(message.Update{Ended: ended})
			continue
		}
		s.Add(w)
		started := &message.Started{Attempt: c.Attempt, Rank: r.Rank, PID: w.Child.ID.PID, Log: w.Log.Path()}
		s.Loop.Report(message.Update{Started: started})
	}
}

// Get returns a rank's worker; nil: there is none.
func (s *Set) Get(rank int) *Worker { return s.workers[rank] }

// Len is how many workers have not been reported as ended.
func (s *Set) Len() int { return len(s.workers) }

// Add puts a worker in.
func (s *Set) Add(w *Worker) { s.workers[w.Rank] = w }

// Remove takes a worker out.
func (s *Set) Remove(w *Worker) {
	if s.workers[w.Rank] == w {
		delete(s.workers, w.Rank)
	}
}

// Stop begins to end the workers that match; kill skips the grace.
func (s *Set) Stop(match func(*Worker) bool, grace time.Duration, kill bool) {
	for _, w := range s.workers {
		if match(w) {
			w.stop(grace, kill)
		}
	}
}

// All matches every worker.
func All(*Worker) bool { return true }

// Of matches the workers of ranks; none: every worker.
func Of(ranks []int) func(*Worker) bool {
	return func(w *Worker) bool { return len(ranks) == 0 || slices.Contains(ranks, w.Rank) }
}

// At matches the workers at places on the host.
func At(locals []int) func(*Worker) bool {
	return func(w *Worker) bool { return slices.Contains(locals, w.Local) }
}

// Signal sends a signal to the leader of each rank.
func (s *Set) Signal(name string) {
	for _, w := range s.workers {
		_ = proc.Signal(w.Child.ID, unix.SignalNum(name))
	}
}

// Ending reports whether workers are being ended.
func (s *Set) Ending() bool {
	for _, w := range s.workers {
		if w.end.ladder != nil {
			return true
		}
	}
	return false
}

// Climb takes the next step of ending workers.
func (s *Set) Climb(now link.Instant) {
	ending := false
	for _, w := range s.workers {
		ending = ending || w.end.ladder != nil && !w.end.concluded
	}
	if !ending {
		return
	}
	others := s.Others(proc.All())
	for rank, w := range s.workers {
		if w.end.ladder != nil && !w.end.concluded && w.climb(now, others[rank]) {
			s.conclude(w, others[rank])
		}
	}
}

func (s *Set) conclude(w *Worker, left []proc.Stat) {
	w.end.concluded = true
	w.closeLog()
	s.Progress.Close(w.Rank, w.Socket)
	s.warnOfLog(w)
	_ = s.Keeper.Send(keeper.Message{ReleaseLog: w.Log.Path()})
	ended, at := w.outcome(left), link.Now()
	ended.Evidence = s.evidence(w, ended)
	s.Over(w, ended, at)
}

// CheckLogs warns once of each log that cannot be written.
func (s *Set) CheckLogs() {
	for _, w := range s.workers {
		s.warnOfLog(w)
	}
}

func (s *Set) warnOfLog(w *Worker) {
	_, failure := w.Log.Failure()
	if failure == nil && w.Log.Removed() {
		failure = fmt.Errorf("%s was removed", w.Log.Path())
	}
	if failure == nil || w.warned {
		return
	}
	w.warned = true
	s.Loop.Warn(w.Rank, "its output cannot be kept any more: %v; the worker goes on", failure)
}

// Owners are the ranks of processes, by pid.
func (s *Set) Owners(all []proc.Stat) map[int]sampling.Owner {
	found := map[int]sampling.Owner{}
	for rank, w := range s.workers {
		found[w.Child.ID.PID] = sampling.Owner{Rank: rank}
	}
	for rank, others := range s.Others(all) {
		for _, o := range others {
			found[o.PID] = sampling.Owner{Rank: rank, Child: true}
		}
	}
	return found
}

// Others sorts the processes below this one, beside the leaders, by their rank: those in a leader's process group, its
// descendants, and those that carry the rank's variables (a daemon that left both).
func (s *Set) Others(all []proc.Stat) map[int][]proc.Stat {
	parents := map[int]int{}
	for _, p := range all {
		parents[p.PID] = p.Parent
	}
	byLeader := map[int]*Worker{}
	for _, w := range s.workers {
		byLeader[w.Child.ID.PID] = w
	}
	owned := map[int][]proc.Stat{}
	for _, p := range proc.Below(os.Getpid(), all) {
		if byLeader[p.PID] != nil && byLeader[p.PID].Child.ID == p.ID {
			continue // the leader itself
		}
		if w := s.ownerOf(p, parents, byLeader); w != nil {
			owned[w.Rank] = append(owned[w.Rank], p)
		}
	}
	return owned
}

func (s *Set) ownerOf(p proc.Stat, parents map[int]int, byLeader map[int]*Worker) *Worker {
	if w := byLeader[p.Group]; w != nil {
		return w
	}
	for pid := p.Parent; pid > 1; pid = parents[pid] {
		if w := byLeader[pid]; w != nil && !w.end.leaderDone {
			return w
		}
	}
	attempt, _ := proc.EnvironOf(p.PID, "MUSTER_ATTEMPT")
	rank, _ := proc.EnvironOf(p.PID, "MUSTER_RANK")
	n, err := strconv.Atoi(rank)
	if err != nil {
		return nil
	}
	if w := s.workers[n]; w != nil && attempt == strconv.Itoa(w.Attempt) {
		return w
	}
	return nil
}
