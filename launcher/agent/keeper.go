//go:build linux

package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

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

// isSilent reports whether the keeper is stopped or hangs.
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
