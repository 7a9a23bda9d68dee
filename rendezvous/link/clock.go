package link

import (
	"sync"
	"time"
)

// Instant is a reading of a machine's boot clock: time since it booted, suspend
// included (CLOCK_BOOTTIME on Linux). Instants of two machines are compared only
// through an Offset.
type Instant time.Duration

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from u to i.
func (i Instant) Sub(u Instant) time.Duration { return time.Duration(i - u) }

// Offset maps a peer's instants to the own clock. Each message that arrives gives
// a bound (own time at arrival less peer's time at sending: the true difference
// plus the way); the smallest is the best. Two boot clocks drift by a few parts in
// a million, so old bounds are let go after a while.
type Offset struct {
	mu      sync.Mutex
	current bound
	next    bound // collected meanwhile, takes over when current is old
}

type bound struct {
	diff  time.Duration
	since Instant // zero: nothing collected yet
}

const offsetLife = 10 * time.Minute

// Observe takes in a message that a peer sent at its instant sent and that came at
// the own instant now.
func (o *Offset) Observe(sent, now Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	diff := now.Sub(sent)
	o.current.take(diff, now)
	o.next.take(diff, now)
	if now.Sub(o.next.since) > offsetLife {
		o.current, o.next = o.next, bound{}
	}
}

func (b *bound) take(diff time.Duration, now Instant) {
	if b.since == 0 {
		*b = bound{diff: diff, since: now}
	}
	b.diff = min(b.diff, diff)
}

// Own returns the peer's instant on the own clock, and false before the first
// observation.
func (o *Offset) Own(peer Instant) (Instant, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return peer.Add(o.current.diff), o.current.since != 0
}
