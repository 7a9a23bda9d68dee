package coordinator

import (
	"time"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// watching is what is known of who holds the devices of an attempt.
type watching struct {
	*check.Watch
	last   map[int]*lastSight // by host
	proven bool
}

type lastSight struct {
	sight *gpu.Usage
	taken link.Instant // when it was judged last
}

// judgeAgain is after how long a sight that has not changed is judged again: some things
// are only wrong when they last.
const judgeAgain = 2 * time.Second

// beginWatching begins to watch an attempt whose ranks have devices.
func (b *brain) beginWatching() {
	b.watch = nil
	for _, h := range b.plan.Hosts {
		if len(h.Devices) > 0 && b.job.Check.AfterStart {
			b.watch = &watching{Watch: check.NewWatch(b.plan), last: map[int]*lastSight{}}
			return
		}
	}
}

// seen takes in who holds the devices of a host.
func (b *brain) seen(host int, s *message.DeviceUsage) {
	b.takeMPS(host, s)
	switch {
	case s.Asked != 0:
		b.emptySeen(host, s)
	case b.watch != nil && s.Attempt == b.attempt && b.phase == running:
		b.watch.last[host] = &lastSight{sight: &s.Usage}
		b.judgeSight(host)
	}
}

// judgeSights looks again at what has not changed.
func (b *brain) judgeSights() {
	if b.watch == nil || b.phase != running {
		return
	}
	for host := range b.hosts {
		if last := b.watch.last[host]; last != nil && b.now.Sub(last.taken) >= judgeAgain {
			b.judgeSight(host)
		}
	}
}

func (b *brain) judgeSight(host int) {
	last := b.watch.last[host]
	last.taken = b.now
	for _, f := range check.Apply(b.watch.See(b.sightFor(host, last.sight)), b.job.Check) {
		found := f
		if found.Rank != nil && b.places != nil { // the watch knows places
			found.Rank = b.unitAt(*found.Rank)
		}
		b.find(found)
		if found.Severity != codes.Fail {
			continue
		}
		cause := &report.Cause{Class: class.WrongGPU, Message: found.Words(), Host: found.Host, Rank: found.Rank, Attempt: b.attempt}
		switch {
		case b.places != nil && found.Rank != nil:
			b.sendHome(*found.Rank, cause)
		case b.lost == nil:
			b.lost, b.lostAt = cause, b.now
			b.stopAll(found.Message, false)
			return
		}
	}
	if !b.watch.proven && b.watch.Proven() {
		b.watch.proven = true
		b.say(event.Event{Kind: event.Proven, Message: "every rank was seen on its GPU"})
	}
}

// sendHome ends an independent rank that is not where it is to be: the others have nothing to
// do with it.
func (b *brain) sendHome(rank int, cause *report.Cause) {
	r := b.ranks[rank]
	if r.alone.astray != nil || r.alone.over {
		return
	}
	cause.Attempt = r.attempt
	r.alone.astray = cause
	b.send(r.host, message.Command{Stop: &message.Stop{Reason: "it is on another GPU than planned", Ranks: []int{rank}}})
}

// unitAt is the independent rank that has a place; nil: none.
func (b *brain) unitAt(place int) *int {
	if rank := b.places.all[place].rank; rank != nowhere {
		return &rank
	}
	return nil
}

// sightFor is what a host saw as the watch wants it: by places.
func (b *brain) sightFor(host int, s *gpu.Usage) check.Sight {
	seen := check.Sight{Host: host, At: b.now.Sub(b.begun).Seconds(), Usage: *s}
	seen.Holders = nil
	for _, h := range s.Holders {
		if h.Rank >= 0 {
			if b.hasLeft(h.Rank) {
				continue // the snapshot is of before
			}
			h.Rank = b.ranks[h.Rank].place
		}
		seen.Holders = append(seen.Holders, h)
	}
	return seen
}

// hasLeft reports whether an independent rank's worker has ended since it was seen.
func (b *brain) hasLeft(rank int) bool {
	r := b.ranks[rank]
	if b.places == nil {
		return false
	}
	return r.place == nowhere || b.places.all[r.place].rank != rank || !b.places.all[r.place].runs
}

// placement says whether ranks were seen on their devices.
func (b *brain) placement() string {
	switch {
	case b.watch == nil:
		return ""
	case b.watch.proven:
		return report.PlacementProven
	}
	return report.PlacementUnproven
}
