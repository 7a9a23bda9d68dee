//go:build linux

// Package worker starts the processes of ranks, watches them, ends them step by step, and collects what a host knows of
// how they ended.
package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/progress"
	"github.com/muster-dev/muster/launcher/agent/stacks"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

// openAfterDeath is how long output may stay open after the last known process of a rank is gone.
const openAfterDeath = 2 * time.Second

const maxTail = 4 << 10

// Worker is the process of a rank and what came of it.
type Worker struct {
	Rank    int
	Local   int // its place on the host
	Attempt int
	Child   *proc.Child
	Log     *ranklog.Writer
	Socket  *progress.Socket // nil where it could not be made
	Began   link.Instant
	EndedAt link.Instant // when the leader's end was noticed

	pipes    []*os.File // read ends
	signal   unix.Signal
	baseline *baseline // of when it was started
	warned   bool      // of a log that cannot be written
	end      ending
}

type ending struct {
	leaderDone bool
	drained    bool
	ladder     *ladder // set once the rank is being ended, or its leader has ended
	sent       unix.Signal
	emptyAt    link.Instant // since when no process of the rank is known
	killedAt   link.Instant
	left       map[int]string // what outlived the leader, by pid
	concluded  bool           // all is over
}

// start starts a rank. The keeper gets copies of its pipes first, so that its output is safe whatever happens to this
// process.
func (s *Set) start(c *message.Start, r message.RankStart, b *baseline) (*Worker, error) {
	path := ranklog.Path(s.Place.State, c.Attempt, r.Rank)
	log, err := ranklog.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		Rank: r.Rank, Local: r.Local, Attempt: c.Attempt, Log: log, signal: unix.SignalNum(c.Signal),
		end: ending{left: map[int]string{}},
	}
	ends, err := s.openPipes(w)
	defer closeAll(ends)
	if err == nil {
		w.Socket = s.Progress.Open(c.Attempt, r.Rank)
		w.Child, err = s.spawn(c, r, w, ends)
	}
	if err != nil {
		w.Socket.Close()
		closeAll(w.pipes)
		log.Close()
		_ = s.Keeper.Send(keeper.Message{ReleaseLog: path})
		return w, err
	}
	if why := w.Child.MemoryPolicy; why != nil && !s.policyWarned {
		s.policyWarned = true
		s.Loop.Warn(loop.Host, "ranks are bound to their CPUs, but the kernel does not let them %v", why)
	}
	w.Began = link.Now()
	w.baseline = b
	b.workers++
	w.Socket.Begin(w.Child.ID.PID, w.Began, c.Observe.Torch)
	s.Progress.Follow(w.Rank, w.Socket)
	s.watch(w)
	return w, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// errNoKeeper: a worker is not started without somebody who would save its output.
var errNoKeeper = errors.New("hand pipe to keeper")

func (s *Set) openPipes(w *Worker) (ends []*os.File, err error) {
	for _, lane := range []ranklog.Lane{ranklog.Stdout, ranklog.Stderr} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return ends, fmt.Errorf("make pipe: %w", err)
		}
		if err := unix.SetNonblock(fds[0], true); err != nil {
			return ends, fmt.Errorf("make pipe: %w", err)
		}
		read, write := os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output")
		w.pipes, ends = append(w.pipes, read), append(ends, write)
		message := keeper.Message{Output: &keeper.Output{Path: w.Log.Path(), Lane: lane}}
		if err := s.Keeper.Send(message, read); err != nil {
			return ends, fmt.Errorf("%w: %w", errNoKeeper, err)
		}
	}
	return ends, nil
}

func (s *Set) spawn(c *message.Start, r message.RankStart, w *Worker, ends []*os.File) (*proc.Child, error) {
	folder := filepath.Join(s.Place.State, fmt.Sprintf("attempt-%d", c.Attempt))
	own := map[string]string{
		"PWD":                     s.Workdir,
		"TORCHELASTIC_ERROR_FILE": filepath.Join(folder, fmt.Sprintf("rank-%d.error.json", r.Rank)),
	}
	s.Progress.Environ(own, c, r, s.Base, w.Socket)
	env := environ.Layered(stacks.RecorderEnv(s.Place, c), r.Defaults, s.Base, r.Env, own)
	path, err := environ.LookPath(c.Command[0], env, s.Workdir)
	if err != nil {
		return nil, err
	}
	return s.Reaper.Start(proc.Spec{
		Path: path, Argv: c.Command, Env: env, Dir: s.Workdir,
		Files: append([]*os.File{nil}, ends...),
		Group: true, DieWithParent: true,
		CPUs: r.CPUs, Node: r.Node,
	})
}

// watch starts what follows a worker: a pump per lane, and the wait for its end.
func (s *Set) watch(w *Worker) {
	var pumps sync.WaitGroup
	for lane, pipe := range w.pipes {
		pumps.Go(func() {
			_ = w.Log.Pump(pipe, ranklog.Lane(lane)) // ends at the end, or when the pipe is closed under it
		})
	}
	go func() {
		pumps.Wait()
		s.Loop.Post(func() { w.end.drained = true })
	}()
	go func() {
		<-w.Child.Done
		s.Loop.Post(func() {
			w.end.leaderDone, w.EndedAt = true, link.Now()
			w.stop(s.Grace, false)
		})
	}()
}

// stop begins to end a worker; kill skips the grace.
func (w *Worker) stop(grace time.Duration, kill bool) {
	if w.end.ladder == nil {
		w.end.ladder = &ladder{grace: grace, began: link.Now()}
	}
	if kill {
		w.end.ladder.kill()
	}
}

// climb takes the next step of ending a worker, and reports whether nothing more will come of it. others are the rank's
// processes beside the leader.
func (w *Worker) climb(now link.Instant, others []proc.Stat) (over bool) {
	p := processes{leaderAlive: !w.end.leaderDone, othersAlive: len(others) > 0}
	p.leaderCatches = p.leaderAlive && proc.Catches(w.Child.ID.PID, int(w.signal))
	switch w.end.ladder.next(now, p) {
	case stepSignalLeader:
		w.signalLeader()
	case stepSignalGroup:
		w.signalAll(others, w.signal)
	case stepKill:
		w.signalAll(others, unix.SIGKILL)
		if w.end.killedAt == 0 {
			w.end.killedAt = now
		}
	}
	return w.isOver(now, p)
}

func (w *Worker) isOver(now link.Instant, p processes) bool {
	e := &w.end
	if p.leaderAlive || p.othersAlive {
		e.emptyAt = 0
		return e.killedAt != 0 && now.Sub(e.killedAt) > proc.KillWait
	}
	if e.emptyAt == 0 {
		e.emptyAt = now
	}
	return e.drained || now.Sub(e.emptyAt) > openAfterDeath
}

func (w *Worker) signalLeader() {
	if w.end.leaderDone {
		return
	}
	if err := proc.Signal(w.Child.ID, w.signal); err == nil {
		w.end.sent = w.signal
	}
}

// signalAll signals everything of the rank: by its process group, which also reaches what is forked meanwhile, and one
// by one what has left the group.
func (w *Worker) signalAll(others []proc.Stat, signal unix.Signal) {
	leader, err := proc.StatOf(w.Child.ID.PID)
	groupLives := err == nil && leader.ID == w.Child.ID
	if groupLives {
		w.end.sent = signal
	}
	for _, o := range others {
		if w.end.leaderDone && w.end.sent == 0 { // the leader ended by itself and left this behind
			w.end.left[o.PID] = fmt.Sprintf("%s (pid %d)", o.Command, o.PID)
		}
		if o.Group == w.Child.ID.PID {
			groupLives = true
			continue
		}
		_ = proc.Signal(o.ID, signal) // what survives is found in the next round
	}
	if groupLives { // a member of it was just seen, so the number is nobody else's
		_ = unix.Kill(-w.Child.ID.PID, signal)
	}
}

func (w *Worker) outcome(left []proc.Stat) *message.Ended {
	e := &message.Ended{Attempt: w.Attempt, Rank: w.Rank, Log: w.Log.Path(), Cut: !w.end.drained && w.end.emptyAt != 0}
	if w.end.leaderDone {
		exit := w.Child.Exit()
		e.Code = exit.Code
		if exit.Signal != 0 {
			e.Signal = unix.SignalName(exit.Signal)
		}
	} else {
		e.Error = fmt.Sprintf("cannot be killed (pid %d, state D: it waits for a device or a file system)", w.Child.ID.PID)
	}
	if w.end.sent != 0 {
		e.Sent = unix.SignalName(w.end.sent)
	}
	for _, s := range left {
		e.Left = append(e.Left, fmt.Sprintf("%s (pid %d, state %c) is still there", s.Command, s.PID, s.State))
	}
	for _, what := range w.end.left {
		e.Left = append(e.Left, what+" outlived the rank and was ended")
	}
	e.Tail = fromDisk(&w.baseline.runDisk, func() []byte { return lastOutput(w.Log.Path()) })
	return e
}

// lastOutput is the end of what a worker wrote: of stderr, where tracebacks go, or of stdout where stderr is empty.
func lastOutput(path string) []byte {
	for _, lane := range []ranklog.Lane{ranklog.Stderr, ranklog.Stdout} {
		tail, err := ranklog.Tail(path, lane, maxTail)
		if err == nil && len(tail) > 0 {
			return tail
		}
	}
	return nil
}

// closeLog closes the log and the pipes. Closing waits for pumps that still write: where the disk hangs, other workers
// must not wait for that.
func (w *Worker) closeLog() {
	fromDisk(&w.baseline.runDisk, func() error {
		closeAll(w.pipes)
		return w.Log.Close()
	})
	if w.baseline.runDisk.hangs {
		go w.Log.Close() // so that whoever follows it learns of the end
	}
}

// Leave is called once a worker's end was reported: nothing compares with its beginning any more.
func (w *Worker) Leave() {
	w.baseline.workers--
	w.baseline.closeUnused()
}
