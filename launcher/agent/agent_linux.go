package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/mps"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/rendezvous/link"
)

// agent starts and watches the workers of its host. Its loop owns all state; what
// runs beside it posts functions to it.
type agent struct {
	place    rundir.Place
	loop     *loop.Loop
	look     *look
	plugins  *keeper.Supervisor
	mps      *mps.Daemons
	clearing bool // what is left is being ended
	keeper   *keeper.Conn
	reaper   *proc.Reaper
	words    *words
	facts    facts.Host
	identity *link.Identity

	joining  bool
	name     string
	lease    time.Duration
	workdir  string
	base     map[string]string
	attempt  int
	grace    time.Duration
	workers  map[int]*worker // by rank; those that ended are taken out
	hold     *portHold
	door     *link.Door   // for visits of other hosts; nil: not opened
	portSeen link.Instant // when it was last looked whether rank 0 listens
	keeperID proc.ID
	beside   proc.ID       // the coordinator, on the head host
	beaten   link.Instant  // when the last own beat was
	noKeeper time.Duration // since the keeper was heard, counted in own beats
	noWords  time.Duration // since the launcher was, before the Join
	failing  string        // why this host ends its workers by itself
	finished bool
	released bool // by the keeper
	// policySaid is set once it was told that memory policies do not work here.
	policySaid bool
	sight      sight
	samples    *sampling.File    // nil before the first attempt
	sampler    *sampling.Sampler // of the newest attempt that was measured
	measures   bool              // it has not been ended
	digestPace atomic.Int64      // nanoseconds between two digests of samples
	observed   observed
	after      []*afterwards            // that are kept back
	pushes     map[string]chan struct{} // by subscription: as many values as outputs that are pushed to it
	follows    context.Context
	unfollow   context.CancelFunc
	turns      map[turn]chan struct{}
}

// run is the agent's life.
func (a *agent) run() error {
	a.loop = loop.New()
	a.workers, a.pushes = map[int]*worker{}, map[string]chan struct{}{}
	a.plugins = keeper.NewSupervisor(a.keeper)
	a.mps = mps.New(mps.Config{Place: a.place, Loop: a.loop, Reaper: a.reaper, Supervisor: a.plugins, Lost: a.loseMPS})
	a.digestPace.Store(int64(sampling.QuietPace))
	a.turns = map[turn]chan struct{}{}
	a.follows, a.unfollow = context.WithCancel(context.Background())
	defer a.unfollow()
	go a.words.listen(func(m *message.ToAgent, err error) { a.loop.Post(func() { a.hear(m, err) }) })
	go a.listenToKeeper()
	go a.introduce()
	for !a.finished {
		select {
		case f := <-a.loop.Calls():
			f()
		case m, ok := <-a.loop.Commands():
			if ok {
				a.obey(m)
			}
		case <-time.After(a.pace()):
		}
		a.tick(link.Now())
	}
	return a.leave()
}

// pace is how long the loop may sleep: short while ranks are being ended or a port
// waits to be taken.
func (a *agent) pace() time.Duration {
	for _, w := range a.workers {
		if w.ladder != nil {
			return 10 * time.Millisecond
		}
	}
	beat := link.HeartbeatOf(a.lease)
	if a.hold != nil && len(a.hold.sockets) > 0 {
		return min(beat, a.hold.pace(link.Now()))
	}
	return beat
}

// hear takes in what the launcher says. It matters until the Join; then the
// coordinator decides, and the launcher may leave.
func (a *agent) hear(m *message.ToAgent, err error) {
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
		m, _, err := a.keeper.Receive()
		if err != nil {
			a.plugins.KeeperGone()
			a.loop.Post(func() { a.fail("its keeper died") })
			return
		}
		a.loop.Post(func() { a.handle(m) })
	}
}

func (a *agent) handle(m keeper.Message) {
	a.noKeeper = 0
	switch {
	case m.DoneAck:
		a.released = true
	case m.Process != nil:
		a.plugins.Handle(m)
	case m.Coordinator != nil:
		a.beside = *m.Coordinator
	case m.Ready != nil && m.Ready.Error != "":
		a.words.say(message.FromAgent{Error: "coordinator: " + m.Ready.Error})
		a.finished = true
	case m.Ready != nil:
		a.words.say(message.FromAgent{Coordinator: m.Ready})
	case m.CoordinatorEnded != "" && a.finished:
	case m.CoordinatorEnded != "":
		a.words.say(message.FromAgent{Error: "the coordinator " + m.CoordinatorEnded})
		a.fail("the coordinator " + m.CoordinatorEnded)
	}
}

// obey carries out an order of the coordinator.
func (a *agent) obey(payload []byte) {
	var o message.Command
	if err := json.Unmarshal(payload, &o); err != nil {
		a.fail(fmt.Sprintf("the coordinator said %.80q", payload))
		return
	}
	switch {
	case o.Prepare != nil:
		go func() {
			p := a.prepare(o.Prepare)
			a.loop.Post(func() {
				a.workdir, a.base = p.workdir, p.base
				a.loop.Report(message.Update{Prepared: &p.news})
			})
		}()
	case o.HoldPort != nil:
		a.takePort(o.HoldPort)
	case o.Serve != nil:
		go func() {
			news := a.mps.Serve(o.Serve)
			a.loop.Post(func() { a.loop.Report(message.Update{Served: news}) })
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

func (a *agent) takePort(o *message.HoldPort) {
	if a.hold != nil {
		a.hold.release()
	}
	if a.door != nil {
		a.door.Close()
	}
	news := &message.PortHeld{Attempt: o.Attempt}
	hold, err := holdPort(o.First, o.Last, a.facts.EphemeralPorts)
	if err != nil {
		news.Error = err.Error()
	} else {
		a.hold, news.Port = hold, hold.port
	}
	a.loop.Report(message.Update{PortHeld: news})
}

func (a *agent) start(o *message.Start) {
	a.grace = o.Grace
	if !o.Alone {
		a.attempt = o.Attempt
		a.observed.newAttempt()
	}
	scene := newScenery(a.checkpointFolder(o.Checkpoints))
	defer scene.endUnlessShown()
	defer a.watchDevices(o)
	defer a.mps.Watch()
	for _, r := range o.Ranks {
		w, err := a.startWorker(o, r)
		if err != nil {
			ended := &message.Ended{Attempt: o.Attempt, Rank: r.Rank, Error: err.Error()}
			if w != nil {
				ended.Log = w.log.Path()
			}
			if errors.Is(err, errNoKeeper) { // that came first
				a.fail("its keeper died")
			}
			a.loop.Report(message.Update{Ended: ended})
			continue
		}
		w.show(scene)
		a.workers[r.Rank] = w
		a.loop.Report(message.Update{Started: &message.Started{Attempt: o.Attempt, Rank: r.Rank, PID: w.child.ID.PID, Log: w.log.Path()}})
	}
}

func (a *agent) startFollowing(o *message.Follow) {
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

// tick looks at what time changes: ranks that are being ended, the lease, the port.
func (a *agent) tick(now link.Instant) {
	if beat := link.HeartbeatOf(a.lease); now.Sub(a.beaten) >= beat {
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
	_ = a.keeper.Send(keeper.Message{}) // a keeper that is gone shows as the end of the connection
	if a.noKeeper += beat; a.noKeeper > a.lease {
		a.fail("its keeper is stopped or hangs")
	}
	for _, w := range a.workers {
		a.warnOfLog(w)
	}
	if a.noWords += beat; a.noWords > a.lease && !a.joining {
		// It is stopped or hangs, and nothing has begun. Should it wake up it is to know.
		a.words.say(message.FromAgent{Error: fmt.Sprintf("its agent has heard nothing from here for %v and has ended", a.lease)})
		a.finished = true
	}
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
	a.loop.Report(message.Update{Warning: &message.Warning{Rank: w.rank,
		Message: fmt.Sprintf("its output cannot be kept any more: %v; the worker goes on", failure)}})
}

// loseMPS kills the ranks of a daemon that is lost, at once.
func (a *agent) loseMPS(lost *message.MPSLost) {
	if a.failing != "" || a.clearing {
		return
	}
	for _, w := range a.workers {
		if slices.Contains(lost.Locals, w.local) {
			w.stop(0, true)
		}
	}
	lost.Attempt = a.attempt
	a.loop.Report(message.Update{MPSLost: lost})
}
