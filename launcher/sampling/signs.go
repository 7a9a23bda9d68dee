//go:build linux

package sampling

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/samples"
)

// Signs are a rank's signs of life: when each was last seen. Times are of the clock that stops during a suspend.
type Signs struct {
	rank  Rank
	began time.Time

	written              int64
	output, device       time.Time
	cpu, files           time.Time
	updated              time.Time
	sampled              time.Time     // when the newest sample of its device was taken
	rests                int           // of how many samples in a row its device did nothing
	busy                 time.Duration // for how long its device has worked in all
	known, worked, spins bool          // of its device
	reportAge            float64
	excused              atomic.Int64 // nanoseconds after began until which muster has it write
}

const (
	// maxUnseen is how long may lie between two updates. What passes beyond that is not known: this process was
	// stopped.
	maxUnseen = 5 * time.Second
	// stillAfter is for how long a rank shows no sign of life before it is examined closely.
	stillAfter = 2 * time.Second
	// restsNeeded is how many samples in a row show an idle device before it is at rest: where one is taken each half
	// minute, one says little of the time between.
	restsNeeded = 5
	// workedAfter is for how long a device has to work before its rank counts as past its start: moving a model there
	// is part of that, and compiling may follow.
	workedAfter = 30 * time.Second
)

func newSigns(r Rank) *Signs {
	now := time.Now()
	return &Signs{rank: r, began: now, output: now, device: now, cpu: now, files: now, updated: now}
}

// Excuse does not count what a rank does for so long as signs of life: muster makes it write where it is.
func (s *Signs) Excuse(length time.Duration) {
	if s != nil {
		s.excused.Store(int64(time.Since(s.began) + length))
	}
}

// update takes in signs of life since the last update. did is what the rank's processes have done, and sampled is when
// the values of its device were taken.
func (s *Signs) update(now time.Time, did work, v samples.Values, sampled time.Time) {
	if unseen := now.Sub(s.updated) - maxUnseen; unseen > 0 {
		for _, at := range []*time.Time{&s.output, &s.device, &s.cpu, &s.files} {
			*at = at.Add(unseen)
		}
	}
	excused := int64(now.Sub(s.began)) < s.excused.Load()
	if s.rank.Written != nil {
		if written := s.rank.Written(); written != s.written {
			s.written = written
			if !excused {
				s.output = now
			}
		}
	}
	if !excused && did.cpu > hang.BusyCPU {
		s.cpu = now
	}
	if !excused && did.bytes > hang.BusyFiles {
		s.files = now
	}
	s.updateDevice(now, v, sampled)
	if latest := s.rank.latest(); latest != nil {
		s.reportAge = max(latest.ProgressAt, latest.FurthestAt, latest.PhaseAt, latest.CheckpointAt)
		s.worked = s.worked || latest.FurthestAt > 0 // that it names a phase may mean that it compiles
	}
	s.updated = now
}

// still reports whether the rank has shown no sign of life for a while, so that more effort is worth it.
func (s *Signs) still(now time.Time) bool { return s.pulse(now, 0, 0).Still() >= stillAfter.Seconds() }

// updateDevice takes in what a device does. As long as nothing is known of it, it is not at rest. A busy device without
// traffic waits in a collective, unless its rank talks to no other.
func (s *Signs) updateDevice(now time.Time, v samples.Values, sampled time.Time) {
	busy, known := v.Get(samples.GPU)
	traffic, both := v.Get(samples.Traffic)
	if s.known = known && both; !s.known {
		s.device, s.rests, s.spins = now, 0, false
		return
	}
	s.spins = !s.rank.Alone && busy >= hang.BusyGPU && traffic <= hang.IdleTraffic
	switch {
	case busy > 0 && !s.spins:
		s.device, s.rests = now, 0
		s.busy += min(now.Sub(s.updated), maxUnseen)
		s.worked = s.worked || s.busy >= workedAfter
	case sampled != s.sampled:
		s.rests++
	}
	s.sampled = sampled
}

func (s *Sampler) pulses(now time.Time) *message.Pulses {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &message.Pulses{}
	for rank, r := range s.ranks {
		if !math.IsNaN(r.now[samples.RSS]) { // else it has ended
			all.Ranks = append(all.Ranks, r.signs.pulse(now, rank, r.Attempt))
		}
	}
	return all
}

func (s *Signs) pulse(now time.Time, rank, attempt int) hang.Pulse {
	ago := func(t time.Time) float64 { return now.Sub(t).Seconds() }
	p := hang.Pulse{
		Rank: rank, Attempt: attempt, Age: ago(s.began), Output: ago(s.output), CPU: ago(s.cpu), Files: ago(s.files),
		Worked: s.worked, Spins: s.spins,
	}
	p.Told = max(0, p.Age-s.reportAge)
	if s.known {
		device := ago(s.device)
		if s.rests < restsNeeded {
			device = 0
		}
		p.Device = &device
	}
	return p
}
