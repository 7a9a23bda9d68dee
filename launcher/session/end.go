package session

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/report"
)

// finish ends the session with the run: it waits until nothing is left on the hosts.
func (s *session) finish() state {
	for _, h := range s.fleet.Hosts {
		if s.seen.isSilent(h.Name) { // the end of its keeper will not be heard; the report names it
			h.Disconnect()
		}
	}
	left := s.dismiss(fleet.EndWait)
	run := s.seen.snapshot()
	r := run.Report
	for _, host := range left {
		r.Left = append(r.Left, host+": its keeper has not ended yet")
	}
	s.Run.Outcome, s.Run.Exit, s.Run.Attempt = r.Outcome, r.Exit, run.Attempt
	if err := s.History.Write(s.Run); err != nil {
		s.Observer.Say("warning: " + err.Error())
	}
	trouble, committed := s.seen.complaints(), s.seen.isCommitted()
	isOwnStop := r.Outcome == report.Stopped && r.Exit == report.ExitUnreachable
	switch {
	case !committed && len(trouble) > 0 && isOwnStop:
		s.err = trouble.Failure(len(s.Run.Hosts))
		return nil
	case !committed && s.lost != nil && r.Exit == report.ExitHangup:
		return s.failBeforeStart()
	}
	s.end = End{r, r.Exit}
	return nil
}

// failBeforeStart: the coordinator took the lost connection for the launcher's leaving.
func (s *session) failBeforeStart() state {
	return s.fail(report.ExitUnreachable, "lost the connection to %s before the start: %v; nothing was started",
		s.fleet.Hosts[0].Name, s.lost)
}

// dismiss waits for the keepers to end, unless the user does not.
func (s *session) dismiss(patience time.Duration) (left []string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		left = s.fleet.Dismiss(patience)
	}()
	for {
		select {
		case <-done:
			return left
		case r := <-s.Requests:
			if r.Kill || r.Leave {
				return s.fleet.Alive()
			}
		}
	}
}

// endMissed ends the session with a run that has ended while there was no connection.
func (s *session) endMissed(ctx context.Context, live *Live) state {
	defer s.fleet.Leave()
	defer live.Close()
	if r := live.State.Report; r != nil && len(r.Attempts) == 0 {
		return s.failBeforeStart()
	}
	return s.showMissedEnd(ctx, live.State)
}

// showMissedEnd shows what ranks wrote while there was no connection, and then the end.
func (s *session) showMissedEnd(ctx context.Context, run event.State) state {
	if run.Report == nil {
		s.err = LostRun(s.Run, run)
		return nil
	}
	s.Observer.Say("the run has ended out of sight; reading what was written meanwhile")
	s.output.read(ctx, s.output.missed(run))
	s.end = End{run.Report, run.Report.Exit}
	return nil
}

// LostRun is the end of a run that has left no report.
func LostRun(run history.Run, s event.State) error {
	return report.Errorf(report.ExitUnreachable, "run %s is lost: %s", run.ID, s.Message)
}

// endMute ends the session with a coordinator that hangs and that nothing ends.
func (s *session) endMute(mute *MuteError) state {
	s.fleet.Hosts[0].Disconnect() // nothing more comes from it, so it is not waited for
	left := s.waitForHosts("waiting for the hosts to end their workers")
	return s.fail(report.ExitUnreachable, "%v\n%s", mute, s.fleet.DescribeEnds(left))
}

func (s *session) waitForHosts(phase string) (left []string) {
	s.Observer.Phase(phase)
	left = s.dismiss(s.Patience)
	s.Observer.Phase("")
	return left
}

// giveUp is the state after a coordinator that answers no more. What can still be seen is
// whether the hosts that this launcher is connected to have ended.
func (s *session) giveUp(ctx context.Context) state {
	head := s.fleet.Hosts[0]
	committed, away := s.seen.isCommitted(), s.isAway(head)
	unreachable := fmt.Sprintf("%s, the head host of run %s, cannot be reached any more: %v", head.Name, s.Run.ID, s.lost)
	if committed && away && len(s.fleet.Hosts) == 1 {
		s.fleet.Leave()
		return s.fail(report.ExitUnreachable, "%s\nThe run may go on there; muster attach %s comes back to it.", unreachable, s.Run.ID)
	}
	if away {
		head.Disconnect() // nothing more comes from it, so it is not waited for
	}
	left := s.waitForHosts("the coordinator is gone; waiting for the hosts to end their workers")
	if !committed {
		return s.failEarly(away)
	}
	if away {
		return s.fail(report.ExitUnreachable, "%s\n%s", unreachable, s.fleet.DescribeEnds(left))
	}
	// It may have ended well while this process was stopped, and its last events be lost.
	if run, err := s.Reach.State(context.Background()); err == nil && run.Report != nil {
		return s.showMissedEnd(ctx, run)
	}
	why := "its agent and coordinator have ended"
	if trouble := s.seen.complaints(); len(trouble) > 0 {
		why = trouble[len(trouble)-1].Err.Error()
	}
	return s.fail(report.ExitInternal, "run %s has lost its coordinator on %s: %s\n%s", s.Run.ID, head.Name, why, s.fleet.DescribeEnds(left))
}

// failEarly says why a run that was not seen to start will not.
func (s *session) failEarly(away bool) state {
	head, trouble := s.fleet.Hosts[0].Name, s.seen.complaints()
	switch {
	case s.stopped != nil && !away: // what hosts made of it since is no trouble of theirs
		return s.fail(s.stopped.Exit, "%s before the start; nothing was started", s.stopped.Reason)
	case len(trouble) > 0:
		s.err = trouble.Failure(len(s.Run.Hosts))
		return nil
	case away:
		return s.fail(report.ExitUnreachable, "%s cannot be reached any more: %v\nThe hosts end what was begun within the lease, unless all of them had joined by then: muster status %s tells.",
			head, s.lost, s.Run.ID)
	}
	return s.fail(report.ExitUnreachable, "%s: its agent and coordinator have ended; nothing was started", head)
}
