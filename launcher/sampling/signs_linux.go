package sampling

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/samples"
)

// signs are a rank's signs of life: when each was last seen. Times are those of the clock
// that stands still while the machine is suspended.
type Signs struct {
	rank  Rank
	began time.Time

	written              int64
	output, device       time.Time
	cpu, files           time.Time
	looked               time.Time
	sampled              time.Time     // when the newest sample of its device was taken
	rests                int           // of how many samples in a row its device did nothing
	busy                 time.Duration // for how long its device has worked in all
	known, worked, spins bool          // of its device
	toldAge              float64
	excused              atomic.Int64 // nanoseconds after began until which muster has it write
}

const (
	// mostUnseen is how long may lie between two looks. Of what passes beyond that nobody
	// knows: this process was stopped.
	mostUnseen = 5 * time.Second
	// stillAfter is for how long a rank shows no sign of life before it is looked at closely.
	stillAfter = 2 * time.Second
	// restsNeeded is of how many samples in a row a device does nothing before it is at rest:
	// where one is taken each half minute, one tells little of the time between.
	restsNeeded = 5
	// workedAfter is for how long a device has to work before its rank counts as past its
	// start: moving a model there is part of that, and compiling may follow.
	workedAfter = 30 * time.Second
)

func newSigns(r Rank) *Signs {
	now := time.Now()
	return &Signs{rank: r, began: now, output: now, device: now, cpu: now, files: now, looked: now}
}

// latest is what a rank has told last; nil: nothing.
func (r *Rank) latest() *observe.Latest {
	if r.Told == nil {
		return nil
	}
	return r.Told()
}

// Excuse has what a rank does for so long not count as signs of life: muster makes it write
// where it is.
func (s *Signs) Excuse(length time.Duration) {
	if s != nil {
		s.excused.Store(int64(time.Since(s.began) + length))
	}
}

// look looks for signs of life since the last look. did is what the rank's processes have
// done, and sampled is when the values of its device were taken.
func (s *Signs) look(now time.Time, did work, v samples.Values, sampled time.Time) {
	if unseen := now.Sub(s.looked) - mostUnseen; unseen > 0 {
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
	s.lookAtDevice(now, v, sampled)
	if told := s.rank.latest(); told != nil {
		s.toldAge = max(told.ProgressAt, told.FurthestAt, told.PhaseAt, told.CheckpointAt)
		s.worked = s.worked || told.FurthestAt > 0 // that it names a phase may mean that it compiles
	}
	s.looked = now
}

// still reports whether the rank has shown no sign of life for a while. What takes effort to
// find out is then to be found out.
func (s *Signs) still(now time.Time) bool { return s.pulse(now, 0, 0).Still() >= stillAfter.Seconds() }

// lookAtDevice looks at a device. As long as nothing is known of it, it is not at rest. What
// only waits in a collective does so for another rank: who talks to none computes.
func (s *Signs) lookAtDevice(now time.Time, v samples.Values, sampled time.Time) {
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
		s.busy += min(now.Sub(s.looked), mostUnseen)
		s.worked = s.worked || s.busy >= workedAfter
	case sampled != s.sampled:
		s.rests++
	}
	s.sampled = sampled
}

// pulses are those of all ranks that run.
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

// pulse is what the coordinator is told of a rank.
func (s *Signs) pulse(now time.Time, rank, attempt int) hang.Pulse {
	ago := func(t time.Time) float64 { return now.Sub(t).Seconds() }
	p := hang.Pulse{Rank: rank, Attempt: attempt, Age: ago(s.began), Output: ago(s.output), CPU: ago(s.cpu), Files: ago(s.files), Worked: s.worked, Spins: s.spins}
	p.Told = max(0, p.Age-s.toldAge)
	if s.known {
		device := ago(s.device)
		if s.rests < restsNeeded {
			device = 0
		}
		p.Device = &device
	}
	return p
}
