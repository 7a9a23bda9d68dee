package launcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
)

// endedUnseen tells the end of a run that has ended out of sight, and before that what ranks
// had written meanwhile. It says what cannot be shown.
func (w *watch) endedUnseen(ctx context.Context, s event.State) (int, error) {
	if s.Report != nil {
		w.view.Say("the run has ended out of sight; reading what was written meanwhile")
		w.showMissed(ctx, w.missed(s))
	}
	return w.known().ended(s)
}

// catchUp shows the rest of the output, from its files, where the run has ended without
// waiting for who reads it.
func (w *watch) catchUp(ctx context.Context) {
	missed := w.missed(w.snapshot())
	for host := range missed {
		if w.isSilent(host.Name) { // that its output may end early goes without saying
			delete(missed, host)
		}
	}
	if len(missed) > 0 {
		w.view.Say(fmt.Sprintf("run %s has ended before all of its output was read here; reading the rest from its files", w.page.ID))
		w.showMissed(ctx, missed)
	}
}

// isSilent reports whether nothing was heard from a host any more.
func (w *watch) isSilent(host string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.silent, host)
}

// output names what a rank has written in an attempt from a byte of its file on, for the
// command that prints it.
func output(attempt, rank int, from int64) string {
	return fmt.Sprintf("%d/%d@%d", attempt, rank, from)
}

// missed are the outputs that were not shown to their end, by host.
func (w *watch) missed(s event.State) map[history.Host][]string {
	found := map[history.Host][]string{}
	for _, rank := range w.known().ranksIn(w.show) {
		of, started := s.Ranks[rank]
		if !started {
			continue
		}
		if attempt, ended := w.through[rank]; ended && attempt >= of.Attempt {
			continue
		}
		host, _ := w.known().placeOf(s, rank)
		seen, any := w.shown[rank]
		if !any && w.tail { // somebody who has come to a run that goes on
			found[host] = append(found[host], output(of.Attempt, rank, message.FromTail))
			continue
		}
		from := int64(seen.next)
		for attempt := seen.attempt; attempt <= of.Attempt; attempt++ {
			found[host] = append(found[host], output(attempt, rank, from))
			from = 0
		}
	}
	return found
}

// showMissed shows outputs from their files, unless the user has had enough.
func (w *watch) showMissed(ctx context.Context, missed map[history.Host][]string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, e := range w.known().printHosts(ctx, missed) {
			w.view.Say(fmt.Sprintf("warning: what was written on %s meanwhile is not shown: %v; muster logs %s reads it", e.host, e.err, w.page.ID))
		}
	}()
	for {
		select {
		case <-done:
			return
		case wish := <-w.wishes:
			if wish.ends() || wish.Leave {
				cancel()
			}
			if wish.Leave { // a reader that takes nothing is not waited for
				return
			}
		}
	}
}
