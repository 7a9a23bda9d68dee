package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/fleet"
)

// How often, and with what pauses, a session looks for a run whose connection was lost. A run
// that was not seen to begin ends without its launcher, so that there is less to come back to.
const (
	maxReturns      = 5
	maxEarlyReturns = 2
	returnPause     = 2 * time.Second
)

// reconnect is the state without a connection: it looks for the run, which goes on or is over.
func (s *session) reconnect(ctx context.Context) state {
	head := s.fleet.Hosts[0]
	if !s.isAway(head) {
		return s.giveUp
	}
	goesOn := "the run goes on there"
	if !s.seen.isCommitted() { // as far as was heard
		goesOn = "the run may have begun there"
	}
	s.Observer.Say(fmt.Sprintf("lost the connection to %s (%v); %s; connecting again", head.Name, s.lost, goesOn))
	live, mute := s.searchUnlessLeft(ctx)
	switch {
	case mute != nil:
		return s.endMute(mute)
	case live == nil && s.leaving != nil:
		return s.leave(*s.leaving)
	case live == nil:
		return s.giveUp
	case live.Control == nil:
		return s.endMissed(ctx, live)
	}
	s.control.Close()
	head.Reconnect(live.Host)
	s.control, s.isFresh, s.isFirst = live.Control, false, false
	if s.pending != nil {
		s.stop(ctx, *s.pending)
		s.pending = nil
	}
	return s.follow
}

// isAway reports whether the connection to a host was lost, or its coordinator hangs: one that
// has ended takes its keeper along, for which it waits a moment.
func (s *session) isAway(h *fleet.Host) bool {
	var silent *SilentError
	if h.IsAttached() || errors.As(s.lost, &silent) {
		return true
	}
	select {
	case <-h.Gone():
		return h.IsLost()
	case <-time.After(time.Second):
		return false
	}
}

// searchUnlessLeft searches until the user has had enough. nil and nil: the run was not found.
func (s *session) searchUnlessLeft(ctx context.Context) (live *Live, mute *MuteError) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	searched := make(chan struct{})
	go func() {
		defer close(searched)
		live, mute = s.search(ctx)
	}()
	for {
		select {
		case <-searched:
			return live, mute
		case r := <-s.Requests:
			switch {
			case r.Detach && (s.seen.isCommitted() || r.Exit != 0):
				s.leaving = &r
				cancel()
			case r.Stop && !r.Kill:
				s.Observer.Say("the run is stopped once the connection stands again (Ctrl-C gives that up)")
				s.pending = &r
			case r.Ends():
				cancel()
			}
		}
	}
}

// search tries several times, but only once more when the run is known to be over.
func (s *session) search(ctx context.Context) (live *Live, mute *MuteError) {
	over := make(chan struct{})
	go func() {
		if s.fleet.OthersHaveEnded(ctx) {
			close(over)
		}
	}()
	tries := maxReturns
	if !s.seen.isCommitted() {
		tries = maxEarlyReturns
	}
	for range tries {
		live, err := s.Reach.Open(ctx)
		if err == nil || errors.As(err, &mute) {
			return live, mute
		}
		select {
		case <-time.After(returnPause):
		case <-over:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
	return nil, nil
}
