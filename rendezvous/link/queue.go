package link

import "sync"

// Queue hands values from a producer that must not wait to a consumer that may be slow. It has no limit: its
// producers are loops that would miss their heartbeats if they waited.
type Queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
	out   chan T
}

// NewQueue starts the goroutine that feeds Out, until stop.
func NewQueue[T any](stop <-chan struct{}) *Queue[T] {
	q := &Queue[T]{wake: make(chan struct{}, 1), out: make(chan T)}
	go q.run(stop)
	return q
}

// Out delivers the values. It is closed after stop.
func (q *Queue[T]) Out() <-chan T { return q.out }

// Put adds a value.
func (q *Queue[T]) Put(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	poke(q.wake)
}

// poke wakes whoever waits for a channel of one value.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (q *Queue[T]) run(stop <-chan struct{}) {
	defer close(q.out)
	for {
		q.mu.Lock()
		items := q.items
		q.items = nil
		q.mu.Unlock()
		for _, item := range items {
			select {
			case q.out <- item:
			case <-stop:
				return
			}
		}
		if len(items) > 0 {
			continue
		}
		select {
		case <-q.wake:
		case <-stop:
			return
		}
	}
}
