//go:build linux

package progress

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe/hook"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// socketVariable is where a worker finds the path of its socket.
	socketVariable = "MUSTER_SOCKET"
	// pace is how often the coordinator gets what is new.
	pace = time.Second
	// unseenAfter is by when a worker has started its Python.
	unseenAfter = 30 * time.Second
)

// Reports passes on what the ranks of this host report. The loop owns it.
type Reports struct {
	place        rundir.Place
	loop         *loop.Loop
	sockets      map[int]*Socket // of ranks that run
	at           link.Instant    // of the last update
	unseenWarned bool            // that ranks of the attempt run without the hook
	hook         sync.Once       // it is written once: Python may be reading it
	hooked       bool            // it was written
}

// New returns reports without ranks.
func New(place rundir.Place, l *loop.Loop) *Reports {
	return &Reports{place: place, loop: l, sockets: map[int]*Socket{}}
}

// NewAttempt begins a new attempt of all ranks.
func (r *Reports) NewAttempt() { r.at, r.unseenWarned = 0, false }

// Open makes a rank's socket; nil where that is impossible, which is reported.
func (r *Reports) Open(attempt, rank int) *Socket {
	s, err := newSocket(filepath.Join(r.place.Sockets, rundir.ObserveSockets), attempt, rank)
	if err != nil {
		r.loop.Warn(rank, "the worker cannot tell of its progress (%s): %v", socketVariable, err)
		return nil
	}
	return s
}

// Follow passes on what comes from a rank's socket, which has begun to listen.
func (r *Reports) Follow(rank int, s *Socket) {
	if s != nil {
		r.sockets[rank] = s
	}
}

// Close ends a rank's socket.
func (r *Reports) Close(rank int, s *Socket) {
	s.Close()
	if r.sockets[rank] == s {
		delete(r.sockets, rank)
	}
}

// Tick sends what is new.
func (r *Reports) Tick(now link.Instant) {
	if now.Sub(r.at) < pace || len(r.sockets) == 0 {
		return
	}
	r.at = now
	update := message.Observed{Ranks: map[int]message.RankObserved{}}
	for rank, s := range r.sockets {
		if latest := s.unreported(); latest != nil {
			update.Ranks[rank] = message.RankObserved{Attempt: s.attempt, Latest: latest}
		}
	}
	if len(update.Ranks) > 0 {
		r.loop.Report(message.Update{Observed: &update})
	}
	r.warnOfUnseen(now)
}

// warnOfUnseen warns once of ranks that should report what torch does and run without the hook.
func (r *Reports) warnOfUnseen(now link.Instant) {
	if r.unseenWarned {
		return
	}
	var unseen []string
	for _, rank := range slices.Sorted(maps.Keys(r.sockets)) {
		if s := r.sockets[rank]; now.Sub(s.began) > unseenAfter && !s.hookSeen() {
			unseen = append(unseen, fmt.Sprint(rank))
		}
	}
	if len(unseen) == 0 {
		return
	}
	r.unseenWarned = true
	r.loop.Warn(loop.Host, "observe { torch = true } shows nothing of rank %s: no Python with muster's hook has started "+
		"there; python -S, -I and -E leave it out, and so does a PYTHONPATH that the command sets anew",
		strings.Join(unseen, ", "))
}

// Environ adds to a worker's own variables those by which it reports. base is the environment that it starts from.
func (r *Reports) Environ(
	own map[string]string, start *message.Start, rank message.RankStart, base map[string]string, s *Socket,
) {
	if s == nil {
		return
	}
	own[socketVariable] = s.Path
	if !start.Observe.Torch || !r.writeHook() {
		return
	}
	before := ""
	for _, layer := range []map[string]string{rank.Defaults, base, rank.Env} {
		if path, set := layer["PYTHONPATH"]; set {
			before = path
		}
	}
	own["PYTHONPATH"] = hook.PythonPath(filepath.Join(r.place.Sockets, rundir.Hook), before)
	if start.Observe.Snapshot {
		folder := filepath.Join(r.place.State, fmt.Sprintf("attempt-%d", start.Attempt))
		own[hook.SnapshotVariable] = filepath.Join(folder, fmt.Sprintf("rank-%d", rank.Rank))
	}
}

// writeHook puts the hook where workers find it; a run goes on without it.
func (r *Reports) writeHook() bool {
	r.hook.Do(func() {
		err := hook.Write(filepath.Join(r.place.Sockets, rundir.Hook))
		if r.hooked = err == nil; err != nil {
			r.loop.Warn(loop.Host, "observe { torch = true } has no effect: %v", err)
		}
	})
	return r.hooked
}
