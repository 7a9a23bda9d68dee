package launcher

import (
	"context"
	"fmt"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/notebook"
	"github.com/muster-dev/muster/launcher/orders"
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

// output names what a rank has written in an attempt from a byte of its file on, for the
// command that prints it.
func output(attempt, rank int, from int64) string {
	return fmt.Sprintf("%d/%d@%d", attempt, rank, from)
}

// missed are the outputs that were not shown to their end, by host.
func (w *watch) missed(s event.State) map[notebook.Host][]string {
	found := map[notebook.Host][]string{}
	for _, rank := range w.known().ranksIn(w.show) {
		of, started := s.Ranks[rank]
		if !started {
			continue
		}
		host, _ := w.known().placeOf(s, rank)
		seen, any := w.shown[rank]
		if !any && w.tail { // somebody who has come to a run that goes on
			found[host] = append(found[host], output(of.Attempt, rank, orders.FromTail))
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
func (w *watch) showMissed(ctx context.Context, missed map[notebook.Host][]string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, e := range w.known().printHosts(ctx, missed) {
			w.view.Say(fmt.Sprintf("warning: what was written on %s meanwhile is not shown: %v; muster logs %s reads it", e.host, e.err, w.page.Run))
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
		}
	}
}
