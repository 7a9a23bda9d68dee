// Package watch has the observers of a run's devices: who holds them, whether they are empty again, how much
// memory ranks use, who shares them by MPS, and what their drivers report. Each keeps its own state.
package watch

import (
	"time"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Placement watches whether each rank is on its own device.
type Placement struct {
	run    *run.Run
	judge  *check.Watch // nil: nothing is watched
	last   map[int]*snapshot
	proven bool
}

// snapshot is the newest of a host.
type snapshot struct {
	*gpu.Usage
	judged link.Instant
}

// judgeAgain is after how long a snapshot is judged again: some things are only wrong when they last.
const judgeAgain = 2 * time.Second

// NewPlacement is a watch that has not begun.
func NewPlacement(r *run.Run) *Placement { return &Placement{run: r} }

// Begin begins to watch an attempt, if its ranks have devices.
func (p *Placement) Begin() {
	p.judge = nil
	for _, h := range p.run.Plan.Hosts {
		if len(h.Devices) > 0 && p.run.Job.Check.AfterStart {
			p.judge, p.last, p.proven = check.NewWatch(p.run.Plan), map[int]*snapshot{}, false
			return
		}
	}
}

// Started notes that a rank was started at a place.
func (p *Placement) Started(place, rank int) {
	if p.judge != nil {
		p.judge.Began(place, rank, p.run.Since(p.run.Now))
	}
}

// Ended notes that the worker at a place has ended.
func (p *Placement) Ended(place int) {
	if p.judge != nil {
		p.judge.Ended(place)
	}
}

// Take takes in who holds the devices of a host.
func (p *Placement) Take(host int, s *message.DeviceUsage) (found []report.Finding, judged bool) {
	if p.judge == nil || s.Attempt != p.run.Attempt || p.run.Phase != run.Running {
		return nil, false
	}
	p.last[host] = &snapshot{Usage: &s.Usage}
	return p.find(host), true
}

// Again judges what has not changed.
func (p *Placement) Again(host int) (found []report.Finding, judged bool) {
	if p.judge == nil || p.run.Phase != run.Running {
		return nil, false
	}
	if last := p.last[host]; last == nil || p.run.Now.Sub(last.judged) < judgeAgain {
		return nil, false
	}
	return p.find(host), true
}

// find returns the findings of a host's newest snapshot, with the ranks that have the places.
func (p *Placement) find(host int) []report.Finding {
	last := p.last[host]
	last.judged = p.run.Now
	found := check.Apply(p.judge.See(p.sightOf(host, last.Usage)), p.run.Job.Check)
	for i, f := range found {
		if f.Rank == nil {
			continue
		}
		if rank := p.run.At[*f.Rank]; rank != run.Nowhere {
			found[i].Rank = &rank
		} else {
			found[i].Rank = nil
		}
	}
	return found
}

// SayProven reports once that every rank was seen on its device.
func (p *Placement) SayProven() {
	if p.judge != nil && !p.proven && p.judge.Proven() {
		p.proven = true
		p.run.Say(event.Event{Kind: event.Proven, Message: "every rank was seen on its GPU"})
	}
}

// sightOf is what a host saw as the check wants it: by places.
func (p *Placement) sightOf(host int, u *gpu.Usage) check.Sight {
	seen := check.Sight{Host: host, At: p.run.Now.Sub(p.run.Begun).Seconds(), Usage: *u}
	seen.Holders = nil
	for _, h := range u.Holders {
		if h.Rank >= 0 {
			k := p.run.Ranks[h.Rank]
			if k.Place == run.Nowhere || p.run.At[k.Place] != h.Rank || !k.Started {
				continue // its worker has ended since
			}
			h.Rank = k.Place
		}
		seen.Holders = append(seen.Holders, h)
	}
	return seen
}

// Last is the newest snapshot of a host in the attempt; nil: none.
func (p *Placement) Last(host int) *gpu.Usage {
	if p.judge == nil || p.last[host] == nil {
		return nil
	}
	return p.last[host].Usage
}

// Result is a report's placement.
func (p *Placement) Result() string {
	switch {
	case p.judge == nil:
		return ""
	case p.proven:
		return report.PlacementProven
	}
	return report.PlacementUnproven
}
