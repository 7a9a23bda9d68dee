package session

import (
	"maps"
	"slices"
	"sync"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/report"
)

// observed is what a session has seen of its run: by events, and by what agents complain of.
type observed struct {
	committed chan struct{} // closed once the run belongs to the hosts

	mu      sync.Mutex
	state   event.State
	last    uint64          // number of the newest event
	isBegun bool            // committed is closed
	linked  map[string]bool // hosts that have joined
	silent  []string        // hosts from which nothing is heard any more
	trouble fleet.HostErrors
}

func newObserved() *observed {
	return &observed{committed: make(chan struct{}), linked: map[string]bool{}}
}

func (o *observed) take(e event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Take(e)
	o.last = e.Seq
	switch {
	case e.Kind == event.Linked:
		o.linked[e.Host] = true
	case e.Kind == event.Lost && e.Silent:
		o.silent = append(o.silent, e.Host)
	case e.Kind == event.Committed && !o.isBegun:
		o.isBegun = true
		close(o.committed)
	}
}

// complain notes why a host cannot take part. What came first from it says why.
func (o *observed) complain(host string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.ContainsFunc(o.trouble, func(e fleet.HostError) bool { return e.Host == host }) {
		o.trouble = append(o.trouble, fleet.HostError{Host: host, Err: err})
	}
}

func (o *observed) snapshot() event.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state
	s.Ranks = maps.Clone(s.Ranks)
	return s
}

func (o *observed) report() *report.Report { return o.snapshot().Report }

func (o *observed) isOver() bool { return o.report() != nil }

func (o *observed) next() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last + 1
}

func (o *observed) isCommitted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isBegun
}

// hasLinked reports whether a host has joined its coordinator, and needs this launcher no more.
func (o *observed) hasLinked(host string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.linked[host]
}

func (o *observed) isSilent(host string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.silent, host)
}

func (o *observed) complaints() fleet.HostErrors {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.trouble)
}
