package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Coming back to a run whose connection was lost: how often, and how long in between.
// Where the run was not seen to begin it ends without its launcher, so that there is less
// to come back to.
const (
	returns      = 5
	earlyReturns = 2
	returnWait   = 2 * time.Second
)

// comeBack looks for a run whose connection was lost: it goes on, or is over by now. nil
// says that there is nothing to come back to: the keeper on the head host was seen to end,
// or the head host does not answer, or the user is tired of waiting; the error that its
// coordinator will not answer any more.
func (w *watch) comeBack(ctx context.Context, lost error) (*live, *muteError) {
	head := w.fleet.hosts[0]
	if !w.isAway(head, lost) {
		return nil, nil
	}
	goesOn := "the run goes on there"
	if !w.isCommitted() { // as far as was heard
		goesOn = "the run may have begun there"
	}
	w.view.Say(fmt.Sprintf("lost the connection to %s (%v); %s; connecting again", head.name, lost, goesOn))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var l *live
	var mute *muteError
	found := make(chan struct{})
	go func() {
		defer close(found)
		l, mute = w.lookAgain(ctx)
	}()
	for {
		select {
		case <-found:
			return l, mute
		case wish := <-w.wishes:
			if wish.Detach && (w.isCommitted() || wish.Exit != 0) {
				w.leaving = &wish
				cancel()
			} else if wish.Stop && !wish.Kill {
				w.view.Say("the run is stopped once the connection stands again (Ctrl-C gives that up)")
				w.pending = &wish
			} else if wish.ends() {
				cancel()
			}
		}
	}
}

// isAway reports whether it is a host that was lost sight of, and not its coordinator that
// has ended.
func (w *watch) isAway(h *fleetHost, lost error) bool {
	var silent *silentError
	return h.process == nil || errors.As(lost, &silent) || w.connectionLost(h)
}

// lookAgain tries several times, but only once more when the run is known to be over.
func (w *watch) lookAgain(ctx context.Context) (l *live, mute *muteError) {
	over := make(chan struct{})
	go func() {
		if w.othersEnd(ctx) {
			close(over)
		}
	}()
	known := w.known()
	tries := returns
	if !w.isCommitted() {
		tries = earlyReturns
	}
	for range tries {
		l, err := known.open(ctx)
		if err == nil {
			return l, nil
		}
		if errors.As(err, &mute) {
			return nil, mute
		}
		select {
		case <-time.After(returnWait):
		case <-over:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
	return nil, nil
}

// othersEnd waits until the keepers on all hosts but the head host have ended, and reports
// whether that was seen: the run is over then, whatever became of its head host.
func (w *watch) othersEnd(ctx context.Context) bool {
	others := w.fleet.hosts[1:]
	for _, h := range others {
		select {
		case <-h.gone:
		case <-ctx.Done():
			return false
		}
		var lost *remote.LostError
		if errors.As(h.goneErr, &lost) {
			return false
		}
	}
	return len(others) > 0
}

// takeOver goes on with a new connection to the head host, and passes on what the user has
// wanted meanwhile.
func (w *watch) takeOver(ctx context.Context, l *live) {
	w.control.close()
	_ = w.fleet.hosts[0].remote.Close() // it is broken
	w.fleet.hosts[0].remote, w.control = l.host, l.control
	if w.pending != nil {
		wish, c := *w.pending, w.control
		w.pending = nil
		go func() { _ = c.stop(ctx, wish.stopRequest()) }() // a dead coordinator shows where events are watched
	}
}

// ended tells the end of a run that has ended out of sight.
func (w *watch) ended(ctx context.Context, l *live, lost error) (int, error) {
	defer w.fleet.leave()
	defer l.close()
	if r := l.state.Report; r != nil && len(r.Attempts) == 0 {
		return 0, w.lostBeforeStart(lost)
	}
	return w.endedUnseen(ctx, l.state)
}

func (w *watch) known() *Known {
	return &Known{Page: w.page, Connect: w.connect, View: w.view, Notebook: w.notebook}
}

// lostBeforeStart: the coordinator took the lost connection for the launcher's leaving.
func (w *watch) lostBeforeStart(lost error) error {
	return failure(report.ExitUnreachable, "lost the connection to %s before the start: %v; nothing was started", w.fleet.hosts[0].name, lost)
}

// lostSight is for a coordinator that answers no more. What can be known is whether the
// hosts that this launcher is connected to have ended.
func (w *watch) lostSight(ctx context.Context, err error) (int, error) {
	head := w.fleet.hosts[0]
	committed, others := w.isCommitted(), len(w.fleet.hosts) > 1
	away := w.isAway(head, err)
	if committed && away && !others {
		w.fleet.leave()
		return 0, failure(report.ExitUnreachable, "%s, the head host of run %s, cannot be reached any more: %v\nThe run may go on there; muster attach %s comes back to it.",
			head.name, w.page.ID, err, w.page.ID)
	}
	if away {
		_ = head.remote.Close() // nothing more comes from it, which need not be waited for
	}
	w.view.Phase("the coordinator is gone; waiting for the hosts to end their workers")
	left := w.dismiss(w.patience)
	w.view.Phase("")
	if !committed {
		return 0, w.lostEarly(away, err)
	}
	if !away { // it may have ended well while this process was stopped, and its last words be lost
		if s, err := w.known().State(context.Background()); err == nil && s.Report != nil {
			return w.endedUnseen(ctx, s)
		}
	}
	exit, message := report.ExitInternal, fmt.Sprintf("run %s has lost its coordinator on %s: %s", w.page.ID, head.name, w.lastWords())
	if away {
		exit, message = report.ExitUnreachable, fmt.Sprintf("%s, the head host of run %s, cannot be reached any more: %v", head.name, w.page.ID, err)
	}
	return 0, failure(exit, "%s\n%s", message, w.ends(left))
}

// givenUp is for a coordinator that nobody hears from and nothing ends.
func (w *watch) givenUp(mute *muteError) (int, error) {
	_ = w.fleet.hosts[0].remote.Close() // nothing more comes from it, which need not be waited for
	w.view.Phase("waiting for the hosts to end their workers")
	left := w.dismiss(w.patience)
	w.view.Phase("")
	return 0, failure(report.ExitUnreachable, "%v\n%s", mute, w.ends(left))
}

// lostEarly says why a run that was not seen to start will not.
func (w *watch) lostEarly(away bool, err error) error {
	head := w.fleet.hosts[0].name
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.asked != nil && !away: // what hosts made of it since is no trouble of theirs
		return failure(w.asked.Exit, "%s before the start; nothing was started", w.asked.Reason)
	case len(w.trouble) > 0:
		return w.trouble.failure(len(w.page.Hosts))
	case away:
		return failure(report.ExitUnreachable, "%s cannot be reached any more: %v\nThe hosts end what was begun within the lease, unless all of them had joined by then: muster status %s tells.",
			head, err, w.page.ID)
	}
	return failure(report.ExitUnreachable, "%s: its agent and coordinator have ended; nothing was started", head)
}

// lastWords is what an agent said of why it cannot go on.
func (w *watch) lastWords() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.trouble) > 0 {
		return w.trouble[len(w.trouble)-1].err.Error()
	}
	return "its agent and coordinator have ended"
}

// ends says which hosts were seen to end their workers.
func (w *watch) ends(left []string) string {
	var ended []string
	for _, h := range w.fleet.hosts {
		var lost *remote.LostError
		if !slices.Contains(left, h.name) && !errors.As(h.goneErr, &lost) {
			ended = append(ended, h.name)
		}
	}
	text := "no host was seen to end its workers"
	if len(ended) > 0 {
		text = "workers have ended on " + strings.Join(ended, ", ")
	}
	if len(left) > 0 {
		text += "; not seen to end on " + strings.Join(left, ", ")
	}
	return text
}

// connectionLost waits a moment for a host's keeper to end, and reports whether the
// connection to it is what was lost.
func (w *watch) connectionLost(h *fleetHost) bool {
	if h.process == nil {
		return false
	}
	select {
	case <-h.gone:
		var lost *remote.LostError
		return errors.As(h.goneErr, &lost)
	case <-time.After(time.Second):
		return false
	}
}
