//go:build linux

package sampling

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// reportStale is after how many seconds what a rank has reported of torch's memory is too old.
	reportStale = 60
	// maxPhases bounds of how many phases that a program names peaks are kept.
	maxPhases = 12
	// maxOthers is how many processes of others a digest names.
	maxOthers = 16
)

// Kept is a sample of devices and the owners of their processes.
type Kept struct {
	GPUs   *gpu.Samples
	Owners map[int]Owner
	at     link.Instant // when it was complete
	taken  time.Time
}

// sampleDevices samples devices until ctx ends. A driver that hangs keeps nobody else waiting.
func (s *Sampler) sampleDevices(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		pause := s.take(s.Devices(ctx))
		if pause < 0 {
			return
		}
		select {
		case <-time.After(pause - min(pause, time.Since(began))):
		case <-ctx.Done():
		}
	}
}

// take keeps a sample, and returns how long to wait for the next; negative: there is none.
func (s *Sampler) take(found *gpu.Samples, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.why = err.Error()
		var of *external.Error
		if errors.As(err, &of) && (of.Kind == external.KindUnsupported || of.Kind == external.KindClosed) {
			return -1
		}
		return sampleRetry
	}
	s.why, s.every = "", max(Pace, time.Duration(found.Every*float64(time.Second)))
	s.kept = append(s.kept, Kept{found, s.pids, link.Now(), time.Now()})
	s.kept = slices.Delete(s.kept, 0, max(0, len(s.kept)-samplesKept))
	select {
	case s.fresh <- struct{}{}:
	default: // the one before was not measured yet
	}
	return s.every
}

func (s *Sampler) newest() *Kept {
	if len(s.kept) == 0 {
		return nil
	}
	return &s.kept[len(s.kept)-1]
}

func (s *Sampler) sampledAt() (at time.Time) {
	if k := s.newest(); k != nil {
		at = k.taken
	}
	return at
}

// Before is the newest sample of devices that was complete at an instant and in which the rank still held memory: the
// driver frees it before anybody learns of an end. Where it held none in any, it is the newest; nil: there is none.
func (s *Sampler) Before(rank int, at link.Instant) *Kept {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *Kept
	for _, k := range slices.Backward(s.kept) {
		if k.at > at {
			continue
		}
		if newest == nil {
			newest = &k
		}
		for _, g := range k.GPUs.GPUs {
			for _, p := range g.Processes {
				if owner, is := k.Owners[p.PID]; is && owner.Rank == rank {
					return &k
				}
			}
		}
	}
	return newest
}

// measureAll takes a sample of each rank, and returns them by slot.
func (s *Sampler) measureAll(now time.Time) (who []samples.Occupant, values []samples.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	who = slices.Repeat([]samples.Occupant{samples.Nobody}, s.slots)
	values = slices.Repeat([]samples.Values{samples.None()}, s.slots)
	for rank, r := range s.ranks {
		r.now = samples.None()
		did := readAll(r.processes, now, s.turn+r.Slot, r.signs.still(now))
		if resident, lives := residentIn(r.processes); lives {
			r.now[samples.RSS] = resident
			s.fillDevice(&r.now, rank, r.Device, now)
			r.signs.update(now, did, r.now, s.sampledAt())
			phase := r.fillTorch(&r.now, samples.PhaseOf(now.Sub(r.began).Seconds()))
			r.peaks = samples.Raise(r.peaks, r.Attempt, phase, r.now)
		}
		if r.Slot < s.slots {
			who[r.Slot], values[r.Slot] = samples.Occupant{Rank: rank, Attempt: r.Attempt}, r.now
		}
	}
	return who, values
}

// fillTorch fills in what the rank reports of torch's memory of its device, all its processes together, and returns the
// phase that it names, or else this one.
func (r *sampledRank) fillTorch(v *samples.Values, phase string) string {
	latest := r.latest()
	if latest == nil {
		return phase
	}
	age := link.Now().Sub(r.Began).Seconds()
	if latest.Torch != nil {
		for _, d := range latest.Torch.Devices {
			if d.Device != r.Seen || r.Device == "" || age-d.At > reportStale {
				continue
			}
			plus(&v[samples.Allocated], float64(d.Allocated))
			plus(&v[samples.Reserved], float64(d.Reserved))
			if free := d.LargestFree; free != nil && !(v[samples.LargestFree] > float64(*free)) {
				v[samples.LargestFree] = float64(*free)
			}
		}
	}
	known := slices.ContainsFunc(r.peaks, func(p samples.Peak) bool { return p.Phase == latest.Phase })
	if latest.Phase == "" || len(r.peaks) >= maxPhases && !known {
		return phase
	}
	return latest.Phase
}

func plus(into *float64, n float64) {
	if math.IsNaN(*into) {
		*into = 0
	}
	*into += n
}

func (s *Sampler) fillDevice(v *samples.Values, rank int, uuid string, now time.Time) {
	newest := s.newest()
	if newest == nil || uuid == "" || now.Sub(newest.taken) > s.every+staleAfter {
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
	if held, known := heldBy(*newest, s.pids, rank, uuid); known {
		v[samples.Process] = held
	}
}

func setPercent(into *float64, percent *int) {
	if percent != nil {
		*into = float64(*percent)
	}
}

// heldBy is what the processes of a rank hold of its device. It is not known where the driver gives no amounts, or
// knows processes by other numbers than this host.
func heldBy(k Kept, pids map[int]Owner, rank int, uuid string) (bytes float64, known bool) {
	known = proc.InFirstNamespace()
	for i := range k.GPUs.GPUs {
		g := &k.GPUs.GPUs[i]
		if g.Processes == nil && isDevice(g, uuid) {
			return 0, false
		}
		for _, p := range g.Processes {
			if owner, is := pids[p.PID]; !is || owner.Rank != rank || g.DeviceOf(p) != uuid {
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

func isDevice(g *gpu.Sample, uuid string) bool {
	return g.UUID == uuid || slices.ContainsFunc(g.Instances, func(m gpu.MIGInstance) bool { return m.UUID == uuid })
}

// judge searches what was kept of the attempt for growth.
func (s *Sampler) judge() {
	s.File.read(func(series *samples.Series) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for rank, r := range s.ranks {
			r.growth = series.Growing(r.Attempt, rank, s.totalOf(r.Device))
		}
	})
}

func (s *Sampler) totalOf(uuid string) float64 {
	if k := s.newest(); k != nil {
		if _, total := k.GPUs.Used(uuid); total != nil {
			return float64(*total)
		}
	}
	return 0
}

func (s *Sampler) digest(now time.Time) *samples.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &samples.Digest{Attempt: s.attempt, Age: now.Sub(s.began).Seconds(), Every: s.every.Seconds(), Why: s.why}
	count := map[int]int{}
	for _, owner := range s.pids {
		count[owner.Rank]++
	}
	newest := s.newest()
	for _, rank := range slices.Sorted(maps.Keys(s.ranks)) {
		r := s.ranks[rank]
		if math.IsNaN(r.now[samples.RSS]) {
			continue // it has ended
		}
		one := samples.Rank{
			Rank: rank, Attempt: r.Attempt, Processes: count[rank], Total: s.totalOf(r.Device),
			Now: r.now, Peaks: slices.Clone(r.peaks), Growth: r.growth,
		}
		if newest != nil && r.Device != "" {
			gpus := newest.GPUs.GPUs
			if i := slices.IndexFunc(gpus, func(g gpu.Sample) bool { return isDevice(&g, r.Device) }); i >= 0 {
				one.GPU = &gpus[i].Index
			}
		}
		d.Ranks = append(d.Ranks, one)
	}
	if newest != nil {
		d.Others = s.others(newest)
	}
	return d
}

// others are the processes on the ranks' devices that belong to no rank.
func (s *Sampler) others(k *Kept) (found []samples.Holder) {
	ours := map[string]bool{}
	for _, r := range s.ranks {
		ours[r.Device] = true
	}
	var users map[int]string
	for i := range k.GPUs.GPUs {
		g := &k.GPUs.GPUs[i]
		for _, p := range g.Processes {
			uuid := g.DeviceOf(p)
			if _, known := s.pids[p.PID]; known || !ours[uuid] || len(found) == maxOthers {
				continue
			}
			if users == nil {
				users = facts.Owners("", k.GPUs.Probed().GPUs)
			}
			found = append(found, samples.Holder{
				Device: uuid, Rank: gpu.Nobody, PID: p.PID, User: users[p.PID], Name: p.Name, Bytes: p.Memory,
			})
		}
	}
	return found
}
