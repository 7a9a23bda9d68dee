package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous"
)

// place is where a keeper and its agent keep things and how they start themselves.
type place struct {
	run       string // "": of none
	stateDir  string
	socketDir string
	prefix    []string // words between this program and its subcommand, such as "agent"
}

// self is the command line that runs a subcommand of this program, also after its
// file was replaced or removed.
func (p place) self(words ...string) []string {
	argv := append([]string{fmt.Sprintf("/proc/%d/exe", os.Getpid())}, p.prefix...)
	return append(argv, words...)
}

// agent starts and watches the workers of its host. Its loop owns all state; what
// runs beside it posts functions to it.
type agent struct {
	place
	look     *look
	plugins  *pluginDesk
	mps      mpsHost
	clearing bool // what is left is being ended
	leash    *leash
	reaper   *proc.Reaper
	words    *words
	facts    facts.Host
	identity *rendezvous.Identity
	inbox    chan func()

	member   *rendezvous.Member // nil before the Join
	joining  bool
	name     string
	lease    time.Duration
	workdir  string
	base     map[string]string
	attempt  int
	grace    time.Duration
	workers  map[int]*worker // by rank; those that ended are taken out
	hold     *portHold
	door     *rendezvous.Door   // for visits of other hosts; nil: not opened
	portSeen rendezvous.Instant // when it was last looked whether rank 0 listens
	keeper   proc.ID
	beside   proc.ID            // the coordinator, on the head host
	beaten   rendezvous.Instant // when the last own beat was
	noKeeper time.Duration      // since the keeper was heard, counted in own beats
	noWords  time.Duration      // since the launcher was, before the Join
	failing  string             // why this host ends its workers by itself
	finished bool
	released bool // by the keeper
	// policySaid is set once it was told that memory policies do not work here.
	policySaid bool
	sight      sight
	samples    *sampleFile  // nil before the first attempt
	sampling   *sampling    // of the attempt
	digestPace atomic.Int64 // nanoseconds between two digests of samples
	observed   observed
	after      []*afterwards            // that are kept back
	pushes     map[string]chan struct{} // by subscription: as many values as outputs that are pushed to it
	follows    context.Context
	unfollow   context.CancelFunc
	turns      map[turn]chan struct{}
}

// run is the agent's life.
func (a *agent) run() error {
	a.inbox = make(chan func(), 64)
	a.workers, a.pushes = map[int]*worker{}, map[string]chan struct{}{}
	a.plugins = newPluginDesk(a.leash)
	a.digestPace.Store(int64(digestPace))
	a.turns = map[turn]chan struct{}{}
	a.follows, a.unfollow = context.WithCancel(context.Background())
	defer a.unfollow()
	go a.words.listen(func(m *orders.ToAgent, err error) { a.post(func() { a.hear(m, err) }) })
	go a.listenToKeeper()
	go a.introduce()
	for !a.finished {
		select {
		case f := <-a.inbox:
			f()
		case m, ok := <-a.orders():
			if ok {
				a.obey(m)
			}
		case <-time.After(a.pace()):
		}
		a.tick(rendezvous.Now())
	}
	return a.leave()
}

func (a *agent) post(f func()) { a.inbox <- f }

func (a *agent) orders() <-chan []byte {
	if a.member == nil {
		return nil
	}
	return a.member.Messages()
}

// pace is how long the loop may sleep: short while ranks are being ended or a port
// waits to be taken.
func (a *agent) pace() time.Duration {
	for _, w := range a.workers {
		if w.ladder != nil {
			return 10 * time.Millisecond
		}
	}
	beat := rendezvous.HeartbeatOf(a.lease)
	if a.hold != nil && len(a.hold.sockets) > 0 {
		return min(beat, a.hold.pace(rendezvous.Now()))
	}
	return beat
}

// hear takes in what the launcher says. It matters until the Join; then the
// coordinator decides, and the launcher may leave.
func (a *agent) hear(m *orders.ToAgent, err error) {
	if err != nil {
		if !a.joining {
			a.finished = true
		}
		return
	}
	a.noWords = 0
	if m.Join != nil && !a.joining {
		a.join(m.Join)
	}
}

func (a *agent) listenToKeeper() {
	for {
		m, _, err := a.leash.receive()
		if err != nil {
			a.plugins.end()
			a.post(func() { a.fail("its keeper died") })
			return
		}
		a.post(func() { a.heed(m) })
	}
}

func (a *agent) heed(m tug) {
	a.noKeeper = 0
	switch {
	case m.Bye:
		a.released = true
	case m.PluginIs != nil:
		a.plugins.hear(*m.PluginIs)
	case m.Beside != nil:
		a.beside = *m.Beside
	case m.Ready != nil && m.Ready.Error != "":
		a.words.say(orders.FromAgent{Error: "coordinator: " + m.Ready.Error})
		a.finished = true
	case m.Ready != nil:
		a.words.say(orders.FromAgent{Coordinator: m.Ready})
	case m.CoordinatorEnded != "" && a.finished:
	case m.CoordinatorEnded != "":
		a.words.say(orders.FromAgent{Error: "the coordinator " + m.CoordinatorEnded})
		a.fail("the coordinator " + m.CoordinatorEnded)
	}
}

func (a *agent) tell(n orders.News) { a.tellAt(n, rendezvous.Now()) }

// tellAt tells what happened earlier.
func (a *agent) tellAt(n orders.News, at rendezvous.Instant) {
	if a.member == nil {
		return
	}
	n.At = at
	a.member.Send(orders.Encode(n))
}

// obey carries out an order of the coordinator.
func (a *agent) obey(payload []byte) {
	var o orders.Order
	if err := json.Unmarshal(payload, &o); err != nil {
		a.fail(fmt.Sprintf("the coordinator said %.80q", payload))
		return
	}
	switch {
	case o.Prepare != nil:
		go func() {
			p := a.prepare(o.Prepare)
			a.post(func() {
				a.workdir, a.base = p.workdir, p.base
				a.tell(orders.News{Prepared: &p.news})
			})
		}()
	case o.HoldPort != nil:
		a.takePort(o.HoldPort)
	case o.Serve != nil:
		go func() {
			news := a.serve(o.Serve)
			a.post(func() { a.tell(orders.News{Served: news}) })
		}()
	case o.Start != nil:
		a.start(o.Start)
	case o.Stop != nil:
		for rank, w := range a.workers {
			if len(o.Stop.Ranks) == 0 || slices.Contains(o.Stop.Ranks, rank) {
				w.stop(a.grace, o.Stop.Kill)
			}
		}
	case o.Signal != nil:
		for _, w := range a.workers {
			_ = proc.Signal(w.child.ID, unix.SignalNum(o.Signal.Name))
		}
	case o.Follow != nil:
		a.startFollowing(o.Follow)
	case o.Stacks != nil:
		a.takeStacks(o.Stacks)
	case o.Open != nil:
		a.open(o.Open)
	case o.Visit != nil:
		a.visit(o.Visit)
	case o.Look != nil:
		a.lookOnce(o.Look)
	case o.Pace != nil:
		a.digestPace.Store(int64(o.Pace.Every))
	case o.Finish != nil:
		a.finish()
	}
}

func (a *agent) takePort(o *orders.HoldPort) {
	if a.hold != nil {
		a.hold.release()
	}
	if a.door != nil {
		a.door.Close()
	}
	news := &orders.PortHeld{Attempt: o.Attempt}
	hold, err := holdPort(o.First, o.Last, a.facts.EphemeralPorts)
	if err != nil {
		news.Error = err.Error()
	} else {
		a.hold, news.Port = hold, hold.port
	}
	a.tell(orders.News{PortHeld: news})
}

func (a *agent) start(o *orders.Start) {
	a.grace = o.Grace
	if !o.Alone {
		a.attempt = o.Attempt
		a.observed.newAttempt()
	}
	scene := newScenery(a.checkpointFolder(o.Checkpoints))
	defer scene.endUnlessShown()
	defer a.watchDevices(o)
	defer a.watchMPS()
	for _, r := range o.Ranks {
		w, err := a.startWorker(o, r)
		if err != nil {
			ended := &orders.Ended{Attempt: o.Attempt, Rank: r.Rank, Error: err.Error()}
			if w != nil {
				ended.Log = w.log.Path()
			}
			if errors.Is(err, errNoKeeper) { // that came first
				a.fail("its keeper died")
			}
			a.tell(orders.News{Ended: ended})
			continue
		}
		w.show(scene)
		a.workers[r.Rank] = w
		a.tell(orders.News{Started: &orders.Started{Attempt: o.Attempt, Rank: r.Rank, PID: w.child.ID.PID, Log: w.log.Path()}})
	}
}

func (a *agent) startFollowing(o *orders.Follow) {
	for rank := range o.Ranks {
		var writer *ranklog.Writer
		if w := a.workers[rank]; w != nil && w.attempt == o.Attempt {
			writer = w.log
		}
		begin, end := a.takeTurn(turn{o.Subscription, rank})
		pushes := a.pushesTo(o.Subscription)
		go func() {
			defer end()
			begin()
			a.followInTurn(pushes, o, rank, writer)
		}()
	}
}

// fail ends the workers because this host lost what it needs to go on.
func (a *agent) fail(reason string) {
	if a.failing != "" {
		return
	}
	a.failing = reason
	a.tell(orders.News{Failing: &orders.Failing{Reason: reason}})
	for _, w := range a.workers {
		w.stop(min(a.grace, a.lease), false)
	}
}

// tick looks at what time changes: ranks that are being ended, the lease, the port.
func (a *agent) tick(now rendezvous.Instant) {
	if beat := rendezvous.HeartbeatOf(a.lease); now.Sub(a.beaten) >= beat {
		a.beaten = now
		a.beat(beat)
	}
	a.tellObserved(now)
	a.climb(now)
	a.endAfterwards(now)
	if a.hold != nil && now.Sub(a.portSeen) >= a.hold.pace(now) {
		a.portSeen = now
		a.hold.letGoOnceTaken()
	}
	a.checkLease(now)
	if a.failing != "" && len(a.workers) == 0 {
		a.finish()
	}
}

// beat gives a sign of life and looks after those that owe one. Silence is counted in
// own beats: a machine that slept takes its sleep for nobody's silence.
func (a *agent) beat(beat time.Duration) {
	_ = a.leash.send(tug{}, nil) // a keeper that is gone shows as the leash's end
	if a.noKeeper += beat; a.noKeeper > a.lease {
		a.fail("its keeper is stopped or hangs")
	}
	for _, w := range a.workers {
		a.warnOfLog(w)
	}
	if a.noWords += beat; a.noWords > a.lease && !a.joining {
		// It is stopped or hangs, and nothing has begun. Should it wake up it is to know.
		a.words.say(orders.FromAgent{Error: fmt.Sprintf("its agent has heard nothing from here for %v and has ended", a.lease)})
		a.finished = true
	}
}

func (a *agent) climb(now rendezvous.Instant) {
	ending := false
	for _, w := range a.workers {
		ending = ending || w.ladder != nil && !w.concluded
	}
	if !ending {
		return
	}
	others := a.ranksOf(proc.All())
	for rank, w := range a.workers {
		if w.ladder == nil || w.concluded || !w.climb(now, others[rank]) {
			continue
		}
		a.conclude(w, others[rank])
	}
}

func (a *agent) conclude(w *worker, left []proc.Stat) {
	cut := !w.drained && w.emptyAt != 0
	w.closeLog()
	w.observer.close()
	a.warnOfLog(w)
	_ = a.leash.send(tug{Let: w.log.Path()}, nil)
	ended, at := w.outcome(cut, left), rendezvous.Now()
	ended.Evidence = a.evidence(w, ended)
	if a.fromDevice(ended) {
		a.lookAfterwards(w, ended, at)
		return
	}
	a.bury(w, ended, at)
}

// bury tells of a worker's end, after which it is no worker any more.
func (a *agent) bury(w *worker, ended *orders.Ended, at rendezvous.Instant) {
	if a.workers[w.rank] == w {
		delete(a.workers, w.rank)
	}
	if len(a.workers) == 0 {
		a.sight.end()
		a.endSampling()
	}
	a.checkMPS(w)
	if len(a.workers) == 0 {
		a.mps.unwatch()
	}
	ended.Peaks = a.sampling.leave(w)
	w.scene.leave()
	a.tellAt(orders.News{Ended: ended}, at)
}

func (a *agent) warnOfLog(w *worker) {
	_, failure := w.log.Failure()
	if failure == nil && w.log.Removed() {
		failure = fmt.Errorf("%s was removed", w.log.Path())
	}
	if failure == nil || w.warned {
		return
	}
	w.warned = true
	a.tell(orders.News{Warning: &orders.Warning{Rank: w.rank,
		Message: fmt.Sprintf("its output cannot be kept any more: %v; the worker goes on", failure)}})
}

// checkLease ends the workers when the coordinator is not heard: the stop signal at
// two thirds of the lease, SIGKILL at its end. It counts from when the last answered
// heartbeat was sent, so that the coordinator, which counts from later, never takes
// for dead what still lives.
func (a *agent) checkLease(now rendezvous.Instant) {
	if a.member == nil {
		return
	}
	silent := now.Sub(a.member.Answered())
	switch {
	case silent >= a.lease:
		for _, w := range a.workers {
			w.stop(0, true)
		}
		a.fail("no answer from the coordinator within the lease")
	case silent >= a.lease*2/3 && a.failing == "":
		a.grace = min(a.grace, a.lease/3)
		a.fail(fmt.Sprintf("no answer from the coordinator for %v", silent.Round(time.Second)))
	case a.failing == "" && a.member.Gone() != nil:
		a.fail("the coordinator is gone: " + a.member.Gone().Error())
	}
}

// finish ends what is left on this host: daemons that setup has started, say, and then those
// of MPS, which may take a moment.
func (a *agent) finish() {
	if a.finished || a.clearing {
		return
	}
	a.clearing = true
	a.sight.end()
	a.closeSamples()
	a.mps.unwatch()
	if a.mps.isUnused() {
		a.clear(nil)
		return
	}
	go func() {
		left := a.mps.end(a.reaper, a.place.run)
		a.post(func() { a.clear(left) })
	}()
}

// clear ends what is left but for the daemons of MPS, and tells what cannot be ended.
func (a *agent) clear(left []string) {
	a.finished = true
	for _, s := range endBelow() {
		left = append(left, fmt.Sprintf("%s (pid %d, state %c)", s.Command, s.PID, s.State))
	}
	if a.hold != nil {
		a.hold.release()
	}
	a.tell(orders.News{Finished: &orders.Finished{Left: left}})
}

// politeWait is how long what setup has started may take to end after SIGTERM.
const politeWait = 2 * time.Second

func endBelow() []proc.Stat {
	for _, s := range proc.Below(os.Getpid(), proc.All()) {
		_ = proc.Signal(s.ID, unix.SIGTERM)
	}
	deadline := time.Now().Add(politeWait)
	for len(proc.Below(os.Getpid(), proc.All())) > 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	return proc.KillBelow(killWait, nil)
}

// leave says goodbye: to the keeper, and to the coordinator once it has taken in everything.
func (a *agent) leave() error {
	if a.noKeeper > a.lease || !a.isReleased() {
		a.replaceKeeper()
	}
	if a.member != nil {
		ctx, cancel := context.WithTimeout(context.Background(), min(5*time.Second, a.lease))
		defer cancel()
		a.member.Leave(ctx)
	}
	return nil
}

// isReleased tells the keeper that nothing is left, and reports whether it has taken that
// in. One that is dead or stopped does not.
func (a *agent) isReleased() bool {
	_ = a.leash.send(tug{Done: true}, nil)
	limit := time.After(a.lease)
	for !a.released {
		if proc.Parent() != a.keeper {
			return false
		}
		select {
		case f := <-a.inbox:
			f()
		case <-limit:
			return false
		}
	}
	return true
}

// replaceKeeper does what is left to do of a keeper that died or is stopped: nobody else
// would end the latter, and it must not wake up to a run that is over; and on the head
// host nobody else would notice that the coordinator hangs.
func (a *agent) replaceKeeper() {
	_ = proc.Signal(a.keeper, unix.SIGKILL)
	answered := rendezvous.Now()
	for proc.Lives(a.beside) {
		if a.member != nil {
			answered = max(answered, a.member.Answered())
		}
		silent := rendezvous.Now().Sub(answered)
		if silent >= a.lease {
			_ = proc.Signal(a.beside, unix.SIGKILL)
		}
		if silent >= a.lease+killWait {
			break // state D
		}
		time.Sleep(endPoll)
	}
	rundir.Remove(a.socketDir)
}

const endPoll = 50 * time.Millisecond
