//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/agent/devices"
	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/mps"
	"github.com/muster-dev/muster/launcher/agent/prepare"
	"github.com/muster-dev/muster/launcher/agent/progress"
	"github.com/muster-dev/muster/launcher/agent/stacks"
	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/rendezvous/link"
)

// agent starts and watches the workers of its host. Its loop owns its state and that of its components.
type agent struct {
	place    rundir.Place
	lease    time.Duration
	probe    *devices.Flags
	facts    facts.Host
	identity *link.Identity
	reaper   *proc.Reaper
	keeper   *keeperLink
	launcher *launcherConn
	components

	joining  bool // the launcher has sent the Join
	attempt  int
	silent   time.Duration // since the launcher was heard from, before the Join; counted in own heartbeats
	beaten   link.Instant  // when our last heartbeat was
	hold     *heldPort
	failing  string // why this host ends its workers by itself
	clearing bool   // what is left is being ended
	finished bool
}

// components of an agent, each with its own state.
type components struct {
	loop       *loop.Loop
	supervisor *keeper.Supervisor
	peers      *peers
	progress   *progress.Reports
	workers    *worker.Set
	mps        *mps.Daemons
	devices    *devices.Watcher
	sampler    *sampler
	followers  *followers
}

func (a *agent) assemble() {
	a.loop = loop.New()
	a.supervisor = keeper.NewSupervisor(a.keeper.Conn)
	a.keeper.loop = a.loop
	a.peers = &peers{identity: a.identity, loop: a.loop}
	a.progress = progress.New(a.place, a.loop)
	a.workers = worker.New(worker.Config{
		Place: a.place, Home: a.facts.Home, Loop: a.loop, Reaper: a.reaper, Keeper: a.keeper.Conn, Progress: a.progress,
		KeeperLost: func() { a.fail("its keeper died") },
		Devices:    func(w *worker.Worker) *evidence.Devices { return a.devices.Evidence(w) },
		Over: func(w *worker.Worker, ended *message.Ended, at link.Instant) {
			if !a.devices.HoldBack(w, ended, at) {
				a.reportExit(w, ended, at)
			}
		},
	})
	a.mps = mps.New(mps.Config{
		Place: a.place, Loop: a.loop, Reaper: a.reaper, Supervisor: a.supervisor, Lost: a.loseMPS,
	})
	a.sampler = newSampler(a.place.State, a.loop, a.workers)
	a.devices = devices.New(devices.Config{
		Flags: a.probe, Place: a.place, Loop: a.loop, Starter: a.supervisor, Workers: a.workers, Clients: a.mps.Clients,
		Sampled: func(rank int, end link.Instant) *sampling.Kept { return a.sampler.current.Before(rank, end) },
		Release: func(w *worker.Worker, ended *message.Ended, at link.Instant) {
			ended.Evidence.Kernel = w.KernelLines() // the kernel's log too may be behind
			a.reportExit(w, ended, at)
		},
	})
	a.followers = newFollowers(a.loop, a.place.State)
}

func (a *agent) run() error {
	a.assemble()
	defer a.followers.cancel()
	go a.launcher.receive(func(m *message.ToAgent, err error) { a.loop.Post(func() { a.handleLauncher(m, err) }) })
	go a.receiveKeeper()
	go a.introduce()
	for !a.finished {
		select {
		case f := <-a.loop.Calls():
			f()
		case m, ok := <-a.loop.Commands():
			if ok {
				a.handleCommand(m)
			}
		case <-time.After(a.pace()):
		}
		a.tick(link.Now())
	}
	return a.leave()
}

// pace is how long the loop may sleep: short while ranks are being ended or a port waits to be taken.
func (a *agent) pace() time.Duration {
	if a.workers.Ending() {
		return 10 * time.Millisecond
	}
	beat := link.HeartbeatOf(a.lease)
	if a.hold != nil && len(a.hold.sockets) > 0 {
		return min(beat, a.hold.pace(link.Now()))
	}
	return beat
}

func (a *agent) tick(now link.Instant) {
	if beat := link.HeartbeatOf(a.lease); now.Sub(a.beaten) >= beat {
		a.beaten = now
		a.beat(beat)
	}
	a.progress.Tick(now)
	a.workers.Climb(now)
	a.devices.Tick(now)
	if a.hold != nil {
		a.hold.tick(now)
	}
	a.checkLease(now)
	if a.failing != "" && a.workers.Len() == 0 {
		a.finish()
	}
}

func (a *agent) handleCommand(payload []byte) {
	var c message.Command
	if err := json.Unmarshal(payload, &c); err != nil {
		a.fail(fmt.Sprintf("the coordinator said %.80q", payload))
		return
	}
	switch {
	case c.Prepare != nil:
		go a.prepare(c.Prepare)
	case c.HoldPort != nil:
		a.holdPort(c.HoldPort)
	case c.Serve != nil:
		a.loop.ReportLater(func() message.Update { return message.Update{Served: a.mps.Serve(c.Serve)} })
	case c.Start != nil:
		a.start(c.Start)
	case c.Stop != nil:
		a.workers.Stop(worker.Of(c.Stop.Ranks), a.workers.Grace, c.Stop.Kill)
	case c.Signal != nil:
		a.workers.Signal(c.Signal.Name)
	case c.Follow != nil:
		for rank := range c.Follow.Ranks {
			var log *ranklog.Writer
			if w := a.workers.Get(rank); w != nil && w.Attempt == c.Follow.Attempt {
				log = w.Log
			}
			a.followers.follow(c.Follow, rank, log)
		}
	case c.Stacks != nil:
		a.takeStacks(c.Stacks)
	case c.Open != nil:
		a.peers.listen(c.Open)
	case c.Visit != nil:
		a.loop.ReportLater(func() message.Update { return message.Update{Visited: a.peers.check(c.Visit)} })
	case c.Look != nil:
		a.devices.Look(c.Look, a.attempt)
	case c.Pace != nil:
		a.sampler.pace.Store(int64(c.Pace.Every))
	case c.Finish != nil:
		a.finish()
	}
}

// prepare runs beside the loop.
func (a *agent) prepare(c *message.Prepare) {
	h := prepare.Host{
		Place: a.place, Home: a.facts.Home, Reaper: a.reaper, Keeper: a.keeper.Conn, Claimed: a.probe.Claimed,
		Warn: func(text string) { a.loop.Post(func() { a.loop.Warn(loop.Host, "%s", text) }) },
	}
	r := h.Run(c)
	a.loop.Post(func() {
		a.workers.Workdir, a.workers.Base = r.Workdir, r.Base
		a.loop.Report(message.Update{Prepared: &r.Prepared})
	})
}

func (a *agent) start(c *message.Start) {
	if !c.Alone {
		a.attempt = c.Attempt
		a.progress.NewAttempt()
	}
	a.workers.Start(c)
	a.mps.Watch()
	a.sampler.begin(c, a.attempt, a.devices.Watch(c, a.attempt))
}

func (a *agent) takeStacks(c *message.Stacks) {
	var subjects []stacks.Subject
	others := a.workers.Others(proc.All())
	for _, rank := range c.Ranks {
		if w := a.workers.Get(rank); w != nil {
			s := stacks.Subject{Rank: rank, Log: w.Log, Signs: a.sampler.current.SignsOf(rank)}
			s.Find(w.Child.ID.PID, others[rank])
			subjects = append(subjects, s)
		}
	}
	env, workdir := environ.Layered(a.workers.Base), a.workers.Workdir
	t := stacks.Taker{Reaper: a.reaper, Env: env, LookPath: func(program string) (string, error) {
		return environ.LookPath(program, env, workdir)
	}}
	a.loop.ReportLater(func() message.Update { return message.Update{Stacks: t.Take(c, subjects)} })
}

// loseMPS kills the ranks of an MPS daemon that is lost, at once.
func (a *agent) loseMPS(lost *message.MPSLost) {
	if a.failing != "" || a.clearing {
		return
	}
	a.workers.Stop(worker.At(lost.Locals), 0, true)
	lost.Attempt = a.attempt
	a.loop.Report(message.Update{MPSLost: lost})
}

// reportExit reports a worker's end, after which it is no worker any more.
func (a *agent) reportExit(w *worker.Worker, ended *message.Ended, at link.Instant) {
	a.workers.Remove(w)
	if a.workers.Len() == 0 {
		a.devices.End()
		a.sampler.end()
	}
	a.mps.Check(w.Local)
	if a.workers.Len() == 0 {
		a.mps.Unwatch()
	}
	ended.Peaks = a.sampler.current.Leave(w.Rank, w.Attempt)
	w.Leave()
	a.loop.ReportAt(message.Update{Ended: ended}, at)
}

// finish ends what is left on this host: daemons that setup has started, say, and then those of MPS, which may take a
// moment.
func (a *agent) finish() {
	if a.finished || a.clearing {
		return
	}
	a.clearing = true
	a.devices.End()
	a.sampler.close()
	a.mps.Unwatch()
	if a.mps.Unused() {
		a.clear(nil)
		return
	}
	go func() {
		left := a.mps.End()
		a.loop.Post(func() { a.clear(left) })
	}()
}

// clear ends what is left but the daemons of MPS, and reports what cannot be ended.
func (a *agent) clear(left []string) {
	a.finished = true
	for _, s := range endBelow() {
		left = append(left, fmt.Sprintf("%s (pid %d, state %c)", s.Command, s.PID, s.State))
	}
	if a.hold != nil {
		a.hold.release()
	}
	a.loop.Report(message.Update{Finished: &message.Finished{Left: left}})
}

// leave says goodbye: to the keeper, and to the coordinator once it has received everything.
func (a *agent) leave() error {
	if a.keeper.isSilent() || !a.keeper.release() {
		a.keeper.replace(a.place.Sockets)
	}
	if m := a.loop.Member(); m != nil {
		ctx, cancel := context.WithTimeout(context.Background(), min(5*time.Second, a.lease))
		defer cancel()
		m.Leave(ctx)
	}
	return nil
}
