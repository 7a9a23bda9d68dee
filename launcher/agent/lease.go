//go:build linux

package agent

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// beat sends a heartbeat and checks those that owe one. Silence is counted in own heartbeats: after a suspend, our own
// sleep must not look like a silent peer.
func (a *agent) beat(beat time.Duration) {
	_ = a.keeper.Send(keeper.Message{}) // a keeper that is gone shows as the end of the connection
	if a.keeper.silent += beat; a.keeper.isSilent() {
		a.fail("its keeper is stopped or hangs")
	}
	a.workers.CheckLogs()
	if a.silent += beat; a.silent > a.lease && !a.joining {
		// It is stopped or hangs, and nothing has begun. Should it go on, it must know.
		a.refuse(fmt.Sprintf("its agent has heard nothing from here for %v and has ended", a.lease))
	}
}

// checkLease ends the workers when the coordinator is silent: the stop signal at two thirds of the lease, SIGKILL at
// its end. It counts from when the last answered heartbeat was sent, so that the coordinator, which counts from later,
// never takes for dead what still lives.
func (a *agent) checkLease(now link.Instant) {
	m := a.loop.Member()
	if m == nil {
		return
	}
	silent := now.Sub(m.Answered())
	switch {
	case silent >= a.lease:
		a.workers.Stop(worker.All, 0, true)
		a.fail("no answer from the coordinator within the lease")
	case silent >= a.lease*2/3 && a.failing == "":
		a.workers.Grace = min(a.workers.Grace, a.lease/3)
		a.fail(fmt.Sprintf("no answer from the coordinator for %v", silent.Round(time.Second)))
	case a.failing == "" && m.Gone() != nil:
		a.fail("the coordinator is gone: " + m.Gone().Error())
	}
}

// fail ends the workers because this host lost what it needs to go on.
func (a *agent) fail(reason string) {
	if a.failing != "" {
		return
	}
	a.failing = reason
	a.loop.Report(message.Update{Failing: &message.Failing{Reason: reason}})
	a.workers.Stop(worker.All, min(a.workers.Grace, a.lease), false)
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
	return proc.KillBelow(proc.KillWait, nil)
}

// keeperLink is the agent's side of its keeper.
type keeperLink struct {
	*keeper.Conn
	loop        *loop.Loop
	lease       time.Duration
	id          proc.ID
	coordinator proc.ID       // on the head host
	silent      time.Duration // since the keeper was heard from, counted in own heartbeats
	released    bool
}

func (a *agent) receiveKeeper() {
	for {
		m, _, err := a.keeper.Receive()
		if err != nil {
			a.supervisor.KeeperGone()
			a.loop.Post(func() { a.fail("its keeper died") })
			return
		}
		a.loop.Post(func() { a.handleKeeper(m) })
	}
}

func (a *agent) handleKeeper(m keeper.Message) {
	a.keeper.silent = 0
	switch {
	case m.DoneAck:
		a.keeper.released = true
	case m.Process != nil:
		a.supervisor.Handle(m)
	case m.Coordinator != nil:
		a.keeper.coordinator = *m.Coordinator
	case m.Ready != nil && m.Ready.Error != "":
		a.refuse("coordinator: " + m.Ready.Error)
	case m.Ready != nil:
		a.launcher.send(message.FromAgent{Coordinator: m.Ready})
	case m.CoordinatorEnded != "" && a.finished:
	case m.CoordinatorEnded != "":
		a.launcher.send(message.FromAgent{Error: "the coordinator " + m.CoordinatorEnded})
		a.fail("the coordinator " + m.CoordinatorEnded)
	}
}

func (k *keeperLink) isSilent() bool { return k.silent > k.lease }

// release tells the keeper that nothing is left, and reports whether it has received that. One that is dead or stopped
// has not.
func (k *keeperLink) release() bool {
	_ = k.Send(keeper.Message{Done: true})
	limit := time.After(k.lease)
	for !k.released {
		if proc.Parent() != k.id {
			return false
		}
		select {
		case f := <-k.loop.Calls():
			f()
		case <-limit:
			return false
		}
	}
	return true
}

const endPoll = 50 * time.Millisecond

// replace does what is left to do of a keeper that died or is stopped: nobody else would end the latter, and it must
// not wake up to a run that is over; and on the head host nobody else would notice that the coordinator hangs.
func (k *keeperLink) replace(sockets string) {
	_ = proc.Signal(k.id, unix.SIGKILL)
	answered := link.Now()
	for proc.Lives(k.coordinator) {
		if m := k.loop.Member(); m != nil {
			answered = max(answered, m.Answered())
		}
		silent := link.Now().Sub(answered)
		if silent >= k.lease {
			_ = proc.Signal(k.coordinator, unix.SIGKILL)
		}
		if silent >= k.lease+proc.KillWait {
			break // state D
		}
		time.Sleep(endPoll)
	}
	rundir.Remove(sockets)
}
