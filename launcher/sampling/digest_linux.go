package sampling

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
)

// judge looks for growth in what was kept of the attempt.
func (s *Sampler) judge() {
	s.File.read(func(series *samples.Series) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for rank, r := range s.ranks {
			total := 0.0
			if n := len(s.kept); n > 0 {
				total = number(second(s.kept[n-1].GPUs.Used(r.Device)))
			}
			r.growth = series.Growing(r.Attempt, rank, total)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }

func number(n *uint64) float64 {
	if n == nil {
		return 0
	}
	return float64(*n)
}

// digest is what the coordinator is told.
func (s *Sampler) digest(now time.Time) *samples.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &samples.Digest{Attempt: s.attempt, Age: now.Sub(s.began).Seconds(), Every: s.every.Seconds(), Why: s.why}
	count := map[int]int{}
	for _, who := range s.pids {
		count[who.Rank]++
	}
	for _, rank := range slices.Sorted(maps.Keys(s.ranks)) {
		r := s.ranks[rank]
		if math.IsNaN(r.now[samples.RSS]) {
			continue // it has ended
		}
		one := samples.Rank{Rank: rank, Attempt: r.Attempt, Processes: count[rank], Now: r.now, Peaks: slices.Clone(r.peaks), Growth: r.growth}
		if len(s.kept) > 0 {
			newest := s.kept[len(s.kept)-1].GPUs
			one.Total, one.GPU = number(second(newest.Used(r.Device))), indexOf(newest, r.Device)
		}
		d.Ranks = append(d.Ranks, one)
	}
	if len(s.kept) > 0 {
		d.Others = s.others(s.kept[len(s.kept)-1])
	}
	return d
}

// indexOf is the number of the GPU that has this UUID, or a MIG instance with it.
func indexOf(s *gpu.Samples, uuid string) *int {
	for i := range s.GPUs {
		if g := &s.GPUs[i]; uuid != "" && (g.UUID == uuid || hasInstance(g, uuid)) {
			return &g.Index
		}
	}
	return nil
}

// mostOthers is how many processes of others a digest names.
const mostOthers = 16

// others are the processes on the ranks' devices that are of no rank.
func (s *Sampler) others(k Kept) []samples.Holder {
	ours := map[string]bool{}
	for _, r := range s.ranks {
		ours[r.Device] = true
	}
	var found []samples.Holder
	var users map[int]string
	for i := range k.GPUs.GPUs {
		g := &k.GPUs.GPUs[i]
		for _, p := range g.Processes {
			uuid := g.DeviceOf(p)
			if _, known := s.pids[p.PID]; known || !ours[uuid] || len(found) == mostOthers {
				continue
			}
			if users == nil {
				users = facts.Owners("", k.GPUs.Probed().GPUs)
			}
			found = append(found, samples.Holder{Device: uuid, Rank: gpu.Nobody, PID: p.PID, User: users[p.PID], Name: p.Name, Bytes: p.Memory})
		}
	}
	return found
}
