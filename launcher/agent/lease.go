//go:build linux

package agent

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
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
