package remote

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// questions lets one question at a time onto the user's screen.
type questions struct {
	once sync.Once
	turn *semaphore.Weighted
}

// begin waits for the turn to ask.
func (q *questions) begin(ctx context.Context) error {
	q.once.Do(func() { q.turn = semaphore.NewWeighted(1) })
	return q.turn.Acquire(ctx, 1)
}

func (q *questions) end() { q.turn.Release(1) }

// ask has a question answered by someone who may take for ever. When ctx ends
// first, the question stays on screen, and none other comes, until it is answered;
// its goroutine ends then. The caller has begun; ask ends the turn.
func ask[T any](ctx context.Context, q *questions, question func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		defer q.end()
		value, err := question()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// secret asks for a passphrase.
func (d *Dialer) secret(ctx context.Context, question string) (string, error) {
	if err := d.asking.begin(ctx); err != nil {
		return "", err
	}
	return ask(ctx, &d.asking, func() (string, error) { return d.Prompter.Secret(question) })
}
