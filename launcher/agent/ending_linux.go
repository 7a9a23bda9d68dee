package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// fail ends the workers because this host lost what it needs to go on.
func (a *agent) fail(reason string) {
	if a.failing != "" {
		return
	}
	a.failing = reason
	a.loop.Report(message.Update{Failing: &message.Failing{Reason: reason}})
	for _, w := range a.workers {
		w.stop(min(a.grace, a.lease), false)
	}
}

func (a *agent) climb(now link.Instant) {
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
	_ = a.keeper.Send(keeper.Message{ReleaseLog: w.log.Path()})
	ended, at := w.outcome(cut, left), link.Now()
	ended.Evidence = a.evidence(w, ended)
	if a.fromDevice(ended) {
		a.lookAfterwards(w, ended, at)
		return
	}
	a.bury(w, ended, at)
}

// bury tells of a worker's end, after which it is no worker any more.
func (a *agent) bury(w *worker, ended *message.Ended, at link.Instant) {
	if a.workers[w.rank] == w {
		delete(a.workers, w.rank)
	}
	if len(a.workers) == 0 {
		a.sight.end()
		a.endSampling()
	}
	a.mps.Check(w.local)
	if len(a.workers) == 0 {
		a.mps.Unwatch()
	}
	ended.Peaks = a.sampler.Leave(w.rank, w.attempt)
	w.scene.leave()
	a.loop.ReportAt(message.Update{Ended: ended}, at)
}

// checkLease ends the workers when the coordinator is not heard: the stop signal at
// two thirds of the lease, SIGKILL at its end. It counts from when the last answered
// heartbeat was sent, so that the coordinator, which counts from later, never takes
// for dead what still lives.
func (a *agent) checkLease(now link.Instant) {
	if a.loop.Member() == nil {
		return
	}
	silent := now.Sub(a.loop.Member().Answered())
	switch {
	case silent >= a.lease:
		for _, w := range a.workers {
			w.stop(0, true)
		}
		a.fail("no answer from the coordinator within the lease")
	case silent >= a.lease*2/3 && a.failing == "":
		a.grace = min(a.grace, a.lease/3)
		a.fail(fmt.Sprintf("no answer from the coordinator for %v", silent.Round(time.Second)))
	case a.failing == "" && a.loop.Member().Gone() != nil:
		a.fail("the coordinator is gone: " + a.loop.Member().Gone().Error())
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

// clear ends what is left but for the daemons of MPS, and tells what cannot be ended.
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

// leave says goodbye: to the keeper, and to the coordinator once it has taken in everything.
func (a *agent) leave() error {
	if a.noKeeper > a.lease || !a.isReleased() {
		a.replaceKeeper()
	}
	if a.loop.Member() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), min(5*time.Second, a.lease))
		defer cancel()
		a.loop.Member().Leave(ctx)
	}
	return nil
}

// isReleased tells the keeper that nothing is left, and reports whether it has taken that
// in. One that is dead or stopped does not.
func (a *agent) isReleased() bool {
	_ = a.keeper.Send(keeper.Message{Done: true})
	limit := time.After(a.lease)
	for !a.released {
		if proc.Parent() != a.keeperID {
			return false
		}
		select {
		case f := <-a.loop.Calls():
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
	_ = proc.Signal(a.keeperID, unix.SIGKILL)
	answered := link.Now()
	for proc.Lives(a.beside) {
		if a.loop.Member() != nil {
			answered = max(answered, a.loop.Member().Answered())
		}
		silent := link.Now().Sub(answered)
		if silent >= a.lease {
			_ = proc.Signal(a.beside, unix.SIGKILL)
		}
		if silent >= a.lease+proc.KillWait {
			break // state D
		}
		time.Sleep(endPoll)
	}
	rundir.Remove(a.place.Sockets)
}

const endPoll = 50 * time.Millisecond
