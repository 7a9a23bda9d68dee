package remote

import "sync"

// crew is a set of goroutines that can be closed and awaited while others still
// try to add to it.
type crew struct {
	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// start runs work in a goroutine; false: the crew is closed and it does not run.
func (c *crew) start(work func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(work)
	return true
}

// end closes the crew and waits for the goroutines.
func (c *crew) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}
