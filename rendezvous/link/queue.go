package link

import "sync"

// queue hands values from a producer that must not wait to a consumer that may
// be slow. Its length is bounded by what the producers have to say, not by a
// number: they are heartbeat loops, which would lapse if they waited.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
	out   chan T
}

// newQueue starts the goroutine that feeds out, until stop.
func newQueue[T any](stop <-chan struct{}) *queue[T] {
	q := &queue[T]{wake: make(chan struct{}, 1), out: make(chan T)}
	go q.run(stop)
	return q
}

func (q *queue[T]) put(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	q.poke()
}

func (q *queue[T]) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue[T]) run(stop <-chan struct{}) {
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
