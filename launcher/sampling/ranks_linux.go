package sampling

import (
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// measureOnce takes a sample of each rank into the peaks and the file.
func (s *Sampler) measureOnce(now time.Time) {
	who, values := s.measureAll(now)
	s.File.keep(now, who, values)
}

// measureAll takes a sample of each rank, and returns them by slot.
func (s *Sampler) measureAll(now time.Time) (who []samples.Occupant, values []samples.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	who, values = slices.Repeat([]samples.Occupant{samples.Nobody}, s.slots), slices.Repeat([]samples.Values{samples.None()}, s.slots)
	for rank, r := range s.ranks {
		r.now = samples.None()
		did := lookAll(r.processes, now, s.turn+r.Slot, r.signs.still(now))
		if resident, lives := residentIn(r.processes); lives {
			r.now[samples.RSS] = resident
			s.ofDevice(&r.now, rank, r.Device, now)
			r.signs.look(now, did, r.now, s.sampledAt())
			phase := r.told(&r.now, samples.PhaseOf(now.Sub(r.began).Seconds()))
			r.peaks = samples.Raise(r.peaks, r.Attempt, phase, r.now)
		}
		if r.Slot < s.slots {
			who[r.Slot], values[r.Slot] = samples.Occupant{Rank: rank, Attempt: r.Attempt}, r.now
		}
	}
	return who, values
}

const (
	// toldStale is after how many seconds what a rank has told of torch's memory is not that
	// of now any more.
	toldStale = 60
	// mostPhases bounds of how many phases that a program names peaks are kept.
	mostPhases = 12
)

// told fills in what the rank tells of torch's memory of its device, all its processes
// together, and returns the phase that it names, or else this one.
func (r *sampledRank) told(v *samples.Values, phase string) string {
	latest := r.latest()
	if latest == nil {
		return phase
	}
	age := link.Now().Sub(r.Began).Seconds()
	if latest.Torch != nil {
		for _, d := range latest.Torch.Devices {
			if d.Device != r.Seen || r.Device == "" || age-d.At > toldStale {
				continue
			}
			plus(&v[samples.Allocated], float64(d.Allocated))
			plus(&v[samples.Reserved], float64(d.Reserved))
			if free := d.LargestFree; free != nil && !(v[samples.LargestFree] > float64(*free)) {
				v[samples.LargestFree] = float64(*free)
			}
		}
	}
	if latest.Phase == "" || len(r.peaks) >= mostPhases && !slices.ContainsFunc(r.peaks, func(p samples.Peak) bool { return p.Phase == latest.Phase }) {
		return phase
	}
	return latest.Phase
}

// plus adds to a value that may not be known yet.
func plus(into *float64, n float64) {
	if math.IsNaN(*into) {
		*into = 0
	}
	*into += n
}

// ofDevice fills in what the newest sample of devices tells of a rank's.
func (s *Sampler) ofDevice(v *samples.Values, rank int, uuid string, now time.Time) {
	if len(s.kept) == 0 || uuid == "" {
		return
	}
	newest := s.kept[len(s.kept)-1]
	if now.Sub(newest.taken) > s.every+staleAfter {
		return
	}
	if used, _ := newest.GPUs.Used(uuid); used != nil {
		v[samples.DeviceUsed] = float64(*used)
	}
	for _, g := range newest.GPUs.GPUs {
		if g.UUID == uuid {
			setPercent(&v[samples.GPU], g.Utilization.GPU)
			setPercent(&v[samples.Traffic], g.Utilization.Memory)
		}
	}
	if held, known := heldBy(newest, s.pids, rank, uuid); known {
		v[samples.Process] = held
	}
}

func setPercent(into *float64, percent *int) {
	if percent != nil {
		*into = float64(*percent)
	}
}

// heldBy is what the processes of a rank hold of its device. It is not known where the
// driver tells no amounts, or names processes by numbers that mean others here.
func heldBy(k Kept, pids map[int]Owner, rank int, uuid string) (bytes float64, known bool) {
	known = proc.InFirstNamespace()
	for i := range k.GPUs.GPUs {
		g := &k.GPUs.GPUs[i]
		if g.Processes == nil && (g.UUID == uuid || hasInstance(g, uuid)) {
			return 0, false
		}
		for _, p := range g.Processes {
			if who, is := pids[p.PID]; !is || who.Rank != rank || g.DeviceOf(p) != uuid {
				continue
			}
			if p.Memory == nil {
				return 0, false
			}
			known = true
			bytes += float64(*p.Memory)
		}
	}
	return bytes, known
}

func hasInstance(g *gpu.Sample, uuid string) bool {
	return slices.ContainsFunc(g.Instances, func(m gpu.MIGInstance) bool { return m.UUID == uuid })
}

// residentIn is the memory of those processes that live; lives is whether there are any.
func residentIn(all []*process) (bytes float64, lives bool) {
	for _, p := range all {
		if p.lives {
			bytes += p.used.resident
			lives = true
		}
	}
	return bytes, lives
}
