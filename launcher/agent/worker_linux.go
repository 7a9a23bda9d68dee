package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

// openAfterDeath is how long output may stay open after the last known process of
// a rank is gone.
const openAfterDeath = 2 * time.Second

// worker is the process of a rank and what came of it.
type worker struct {
	rank    int
	local   int // its place on the host
	attempt int
	child   *proc.Child
	log     *ranklog.Writer
	pipes   []*os.File // read ends
	signal  unix.Signal
	began   link.Instant
	scene   *scenery // when it was started

	leaderDone bool
	endedAt    link.Instant // when the leader's end was seen
	concluded  bool         // all is over, but its end is kept back
	drained    bool
	ladder     *ladder // set once the rank is being ended, or its leader has ended
	sent       unix.Signal
	emptyAt    link.Instant // since when no process of the rank is known
	killedAt   link.Instant
	left       map[int]string // what outlived the leader, by pid
	warned     bool           // of a log that cannot be written
	observer   *observer      // nil where its socket could not be made
}

// startWorker starts a rank. The keeper gets copies of its pipes first, so that
// its output is safe whatever happens to this process.
func (a *agent) startWorker(order *message.Start, r message.RankStart) (*worker, error) {
	path := ranklog.Path(a.place.State, order.Attempt, r.Rank)
	log, err := ranklog.Create(path)
	if err != nil {
		return nil, err
	}
	w := &worker{rank: r.Rank, local: r.Local, attempt: order.Attempt, log: log, signal: unix.SignalNum(order.Signal), left: map[int]string{}}
	ends, err := a.openPipes(w)
	defer closeAll(ends)
	if err == nil {
		w.observer = a.openObserver(order, r.Rank)
		w.child, err = a.spawn(order, r, ends, w.observer)
	}
	if err != nil {
		w.observer.close()
		closeAll(w.pipes)
		log.Close()
		_ = a.keeper.Send(keeper.Message{ReleaseLog: path})
		return w, err
	}
	if why := w.child.MemoryPolicy; why != nil && !a.policySaid {
		a.policySaid = true
		a.loop.Warn(loop.Host, "ranks are bound to their CPUs, but the kernel does not let them %v", why)
	}
	w.began = link.Now()
	w.observer.begin(w, order.Observe.Torch)
	a.watch(w)
	return w, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// errNoKeeper: a worker is not started without somebody who would save its output.
var errNoKeeper = errors.New("hand pipe to keeper")

// openPipes makes a pipe per lane and returns the worker's ends.
func (a *agent) openPipes(w *worker) (ends []*os.File, err error) {
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
		if err := a.keeper.Send(keeper.Message{Output: &keeper.Output{Path: w.log.Path(), Lane: lane}}, read); err != nil {
			return ends, fmt.Errorf("%w: %w", errNoKeeper, err)
		}
	}
	return ends, nil
}

func (a *agent) spawn(order *message.Start, r message.RankStart, ends []*os.File, o *observer) (*proc.Child, error) {
	own := map[string]string{
		"PWD":                     a.workdir,
		"TORCHELASTIC_ERROR_FILE": filepath.Join(a.place.State, fmt.Sprintf("attempt-%d", order.Attempt), fmt.Sprintf("rank-%d.error.json", r.Rank)),
	}
	a.observeBy(own, order, r, o)
	env := environ.Layered(a.recorderEnv(order), r.Defaults, a.base, r.Env, own)
	path, err := lookPath(order.Command[0], env, a.workdir)
	if err != nil {
		return nil, err
	}
	return a.reaper.Start(proc.Spec{
		Path: path, Argv: order.Command, Env: env, Dir: a.workdir,
		Files: append([]*os.File{nil}, ends...),
		Group: true, DieWithParent: true,
		CPUs: r.CPUs, Node: r.Node,
	})
}

// lookPath finds a program as a shell would: by the PATH that the worker will see,
// relative to its work folder.
func lookPath(program string, env []string, workdir string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(workdir, program)
		}
		return program, executable(program)
	}
	path := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(workdir, dir)
		}
		if full := filepath.Join(dir, program); executable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("%w: %s in PATH=%s", exec.ErrNotFound, program, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	if info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable (chmod +x, or start it by its interpreter)", path)
	}
	return nil
}

// watch starts what follows a worker: a pump per lane, and the wait for its end.
func (a *agent) watch(w *worker) {
	var pumps sync.WaitGroup
	for lane, pipe := range w.pipes {
		pumps.Go(func() {
			_ = w.log.Pump(pipe, ranklog.Lane(lane)) // ends at the end, or when the pipe is closed under it
		})
	}
	go func() {
		pumps.Wait()
		a.loop.Post(func() { w.drained = true })
	}()
	go func() {
		<-w.child.Done
		a.loop.Post(func() { a.leaderEnded(w) })
	}()
}

func (a *agent) leaderEnded(w *worker) {
	w.leaderDone, w.endedAt = true, link.Now()
	if w.ladder == nil {
		w.ladder = &ladder{grace: a.grace, began: link.Now()}
	}
}

// stop begins to end a worker; kill skips the grace.
func (w *worker) stop(grace time.Duration, kill bool) {
	if w.ladder == nil {
		w.ladder = &ladder{grace: grace, began: link.Now()}
	}
	if kill {
		w.ladder.kill()
	}
}

// climb takes the next step of ending a worker, and reports whether nothing more
// will come of it. others are the rank's processes beside the leader.
func (w *worker) climb(now link.Instant, others []proc.Stat) (ended bool) {
	s := scene{leaderAlive: !w.leaderDone, othersAlive: len(others) > 0}
	s.leaderCatches = s.leaderAlive && proc.Catches(w.child.ID.PID, int(w.signal))
	switch w.ladder.next(now, s) {
	case stepSignalLeader:
		w.signalLeader(w.signal)
	case stepSignalGroup:
		w.signalAll(others, w.signal)
	case stepKill:
		w.signalAll(others, unix.SIGKILL)
		if w.killedAt == 0 {
			w.killedAt = now
		}
	}
	return w.isOver(now, s)
}

func (w *worker) isOver(now link.Instant, s scene) bool {
	if s.leaderAlive || s.othersAlive {
		w.emptyAt = 0
		return w.killedAt != 0 && now.Sub(w.killedAt) > proc.KillWait
	}
	if w.emptyAt == 0 {
		w.emptyAt = now
	}
	return w.drained || now.Sub(w.emptyAt) > openAfterDeath
}

func (w *worker) signalLeader(signal unix.Signal) {
	if w.leaderDone {
		return
	}
	if err := proc.Signal(w.child.ID, signal); err == nil {
		w.sent = signal
	}
}

// signalAll signals everything of the rank: by its process group, which reaches
// also those that are forked meanwhile, and one by one what has left the group.
func (w *worker) signalAll(others []proc.Stat, signal unix.Signal) {
	leader, err := proc.StatOf(w.child.ID.PID)
	groupLives := err == nil && leader.ID == w.child.ID
	if groupLives {
		w.sent = signal
	}
	for _, s := range others {
		if w.leaderDone && w.sent == 0 { // the leader ended by itself and left this behind
			w.left[s.PID] = fmt.Sprintf("%s (pid %d)", s.Command, s.PID)
		}
		if s.Group == w.child.ID.PID {
			groupLives = true
			continue
		}
		_ = proc.Signal(s.ID, signal) // what resists shows in the next round
	}
	if groupLives { // a member of it was just seen, so the number is nobody else's
		_ = unix.Kill(-w.child.ID.PID, signal)
	}
}

// outcome is the news of a worker's end.
func (w *worker) outcome(cut bool, left []proc.Stat) *message.Ended {
	e := &message.Ended{Attempt: w.attempt, Rank: w.rank, Log: w.log.Path(), Cut: cut}
	if w.leaderDone {
		exit := w.child.Exit()
		e.Code = exit.Code
		if exit.Signal != 0 {
			e.Signal = unix.SignalName(exit.Signal)
		}
	} else {
		e.Error = fmt.Sprintf("cannot be killed (pid %d, state D: it waits for a device or a file system)", w.child.ID.PID)
	}
	if w.sent != 0 {
		e.Sent = unix.SignalName(w.sent)
	}
	for _, s := range left {
		e.Left = append(e.Left, fmt.Sprintf("%s (pid %d, state %c) is still there", s.Command, s.PID, s.State))
	}
	for _, what := range w.left {
		e.Left = append(e.Left, what+" outlived the rank and was ended")
	}
	e.Tail = fromDisk(&w.scene.run, func() []byte { return lastLines(w.log.Path()) })
	return e
}

// closeLog closes the log and the pipes. Closing waits for who still writes: where the disk
// hangs the others must not wait for that.
func (w *worker) closeLog() {
	fromDisk(&w.scene.run, func() error {
		closeAll(w.pipes)
		return w.log.Close()
	})
	if w.scene.run.hangs {
		go w.log.Close() // so that whoever follows it hears of the end
	}
}

const tailSize = 4 << 10

// lastLines is the end of what a worker wrote; of stderr, where tracebacks go, or of
// stdout where stderr is empty.
func lastLines(path string) []byte {
	for _, lane := range []ranklog.Lane{ranklog.Stderr, ranklog.Stdout} {
		tail, err := ranklog.Tail(path, lane, tailSize)
		if err == nil && len(tail) > 0 {
			return tail
		}
	}
	return nil
}

// ranksOf sorts the processes below this one by the rank that they belong to:
// those in a leader's process group, its descendants, and those that carry the
// rank's variables (a daemon that left both).
func (a *agent) ranksOf(all []proc.Stat) map[int][]proc.Stat {
	parents := map[int]int{}
	for _, s := range all {
		parents[s.PID] = s.Parent
	}
	byLeader := map[int]*worker{}
	for _, w := range a.workers {
		byLeader[w.child.ID.PID] = w
	}
	owned := map[int][]proc.Stat{}
	for _, s := range proc.Below(os.Getpid(), all) {
		if byLeader[s.PID] != nil && byLeader[s.PID].child.ID == s.ID {
			continue // the leader itself
		}
		if w := a.ownerOf(s, parents, byLeader); w != nil {
			owned[w.rank] = append(owned[w.rank], s)
		}
	}
	return owned
}

func (a *agent) ownerOf(s proc.Stat, parents map[int]int, byLeader map[int]*worker) *worker {
	if w := byLeader[s.Group]; w != nil {
		return w
	}
	for pid := s.Parent; pid > 1; pid = parents[pid] {
		if w := byLeader[pid]; w != nil && !w.leaderDone {
			return w
		}
	}
	attempt, _ := proc.EnvironOf(s.PID, "MUSTER_ATTEMPT")
	rank, _ := proc.EnvironOf(s.PID, "MUSTER_RANK")
	n, err := strconv.Atoi(rank)
	if err != nil {
		return nil
	}
	if w := a.workers[n]; w != nil && attempt == strconv.Itoa(w.attempt) {
		return w
	}
	return nil
}
