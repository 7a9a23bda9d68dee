//go:build linux

// Package loop is the agent's event loop: one goroutine owns the state of the agent and of its components, and what
// runs beside it posts functions to it.
package loop

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Loop takes functions to run, and the updates of components for the coordinator.
type Loop struct {
	calls  chan func()
	member *link.Member // nil before the agent has joined
}

// New makes a loop that nobody runs yet.
func New() *Loop { return &Loop{calls: make(chan func(), 64)} }

// Calls are the functions to run, one after the other.
func (l *Loop) Calls() <-chan func() { return l.calls }

// Post has the loop run f.
func (l *Loop) Post(f func()) { l.calls <- f }

// PostUntil posts f, unless ctx ends before there is room.
func (l *Loop) PostUntil(ctx context.Context, f func()) {
	select {
	case l.calls <- f:
	case <-ctx.Done():
	}
}

// Join sends updates to the coordinator from now on; before, they are dropped.
func (l *Loop) Join(m *link.Member) { l.member = m }

// Member is the link to the coordinator, nil before Join.
func (l *Loop) Member() *link.Member { return l.member }

// Commands are the coordinator's.
func (l *Loop) Commands() <-chan []byte {
	if l.member == nil {
		return nil
	}
	return l.member.Messages()
}

// Report sends an update to the coordinator.
func (l *Loop) Report(u message.Update) { l.ReportAt(u, link.Now()) }

// ReportAt sends an update of something that happened earlier.
func (l *Loop) ReportAt(u message.Update, at link.Instant) {
	if l.member == nil {
		return
	}
	u.At = at
	l.member.Send(message.Encode(u))
}

// ReportLater sends an update that takes a while to make. It is made beside the loop.
func (l *Loop) ReportLater(f func() message.Update) {
	go func() {
		u := f()
		l.Post(func() { l.Report(u) })
	}()
}

// Host is the rank of a warning that concerns the host.
const Host = -1

// Warn reports something that the user should know and that ends nothing.
func (l *Loop) Warn(rank int, format string, args ...any) {
	l.Report(message.Update{Warning: &message.Warning{Rank: rank, Message: fmt.Sprintf(format, args...)}})
}

// Within returns what f finds; ok is false, and f left alone, where that takes too long: a disk that hangs must not
// hold up the loop.
func Within[T any](limit time.Duration, f func() T) (found T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case found = <-done:
		return found, true
	case <-time.After(limit):
		return found, false
	}
}

// DiskWait is how long something on a disk may take. It may be that of a file server that hangs, and the loop has
// others to watch meanwhile.
const DiskWait = 2 * time.Second
