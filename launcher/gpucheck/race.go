package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// secondWait is how long the slower of two launches may take to be refused. A launch waits
// for another that is choosing.
const secondWait = 20 * time.Second

// checkRace starts two launches at once that cannot both have what they ask for, more than
// half of the GPUs. One gets it; the other is refused, or waits until the first has ended.
func checkRace(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	n := len(s.usable)/2 + 1
	pair, err := s.pair(ctx, "race", n)
	if err != nil {
		return err
	}
	winner, loser, err := first(ctx, pair, n)
	if err != nil {
		return errors.Join(err, pair[0].end(ctx), pair[1].end(ctx))
	}
	select {
	case w, is := <-loser.workers:
		if is {
			return errors.Join(fmt.Errorf("both launches run: the second has a rank on %s", w.UUID), winner.end(ctx), loser.end(ctx))
		}
		return errors.Join(loser.mustBeRefused(ctx), winner.end(ctx))
	case <-time.After(secondWait):
		s.note("the other was not refused: it has waited")
		return errors.Join(winner.end(ctx), loser.end(ctx))
	}
}

// mustBeRefused waits for the end of a launch that has no worker.
func (l *launch) mustBeRefused(ctx context.Context) error {
	_ = l.end(ctx) // what counts is with which status
	l.s.note("the other: %s", l.said().last())
	if l.status() != refused {
		return fmt.Errorf("the other launch ends with status %d, not %d", l.status(), refused)
	}
	return nil
}

// pair starts two launches at once, each of n GPUs by number.
func (s *session) pair(ctx context.Context, what string, n int) ([2]*launch, error) {
	var pair [2]*launch
	for i := range pair {
		l, err := s.run(ctx, s.write(fmt.Sprintf("%s-%d", what, i), fmt.Sprintf("devices = %d", n)))
		if err != nil {
			if i > 0 {
				err = errors.Join(err, pair[0].end(ctx))
			}
			return pair, err
		}
		pair[i] = l
	}
	return pair, nil
}

// first waits for the launch that has its n workers first.
func first(ctx context.Context, pair [2]*launch, n int) (winner, loser *launch, err error) {
	var w worker
	is := false
	winner, loser = pair[0], pair[1]
	select {
	case w, is = <-pair[0].workers:
	case w, is = <-pair[1].workers:
		winner, loser = pair[1], pair[0]
	case <-ctx.Done():
		return nil, nil, errors.New("neither launch has a worker within the time")
	}
	if !is { // refused: then it is the other's turn
		winner, loser = loser, winner
		_, err := winner.await(ctx, n)
		return winner, loser, err
	}
	winner.s.pids[w.PID] = true
	_, err = winner.await(ctx, n-1)
	return winner, loser, err
}

// checkSideBySide starts two launches at once that can both have what they ask for.
func checkSideBySide(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	if len(s.usable) < 2 {
		return impossible("there is one GPU only")
	}
	pair, err := s.pair(ctx, "side-by-side", 1)
	if err != nil {
		return err
	}
	var got [2]string
	for i, l := range pair {
		workers, awaited := l.await(ctx, 1)
		err = errors.Join(err, awaited)
		for _, w := range workers {
			got[i] = w.UUID
		}
	}
	err = errors.Join(err, pair[0].end(ctx), pair[1].end(ctx))
	if err == nil && got[0] == got[1] {
		err = fmt.Errorf("both launches have a rank on %s", got[0])
	}
	return err
}
