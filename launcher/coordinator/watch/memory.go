package watch

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Memory watches how much memory ranks use: its growth, and whether one uses far more than the others.
type Memory struct {
	run     *run.Run
	digests map[int]digest         // the newest of each host
	peaks   map[int][]samples.Peak // of each rank, of all attempts
}

type digest struct {
	*samples.Digest
	at link.Instant
}

// NewMemory is a watch that knows nothing yet.
func NewMemory(r *run.Run) *Memory {
	return &Memory{run: r, digests: map[int]digest{}, peaks: map[int][]samples.Peak{}}
}

// Take takes in the digest of a host's samples.
func (m *Memory) Take(host int, d *samples.Digest) {
	if !m.isOf(d) || m.run.Phase != run.Running && m.run.Phase != run.Stopping {
		return
	}
	m.digests[host] = digest{d, m.run.Now}
	for _, r := range d.Ranks {
		if r.Rank < 0 || r.Rank >= len(m.run.Ranks) {
			continue
		}
		if k := m.run.Ranks[r.Rank]; k.Host != host || k.Attempt != r.Attempt {
			continue
		}
		m.Raise(r.Rank, r.Peaks)
		for _, g := range r.Growth {
			message, fix := g.Words()
			f := check.RankMemory(codes.MemoryGrowth, m.run.Hosts[host].Name, g.Rank, message, fix)
			m.run.FindOnce(fmt.Sprintf("growth %d %s", g.Rank, g.Kind), f)
		}
	}
	if d.Age >= samples.WarmUp {
		m.Balance()
	}
}

// isOf is whether a digest is of the attempt in progress; independent ranks have attempts of their own.
func (m *Memory) isOf(d *samples.Digest) bool {
	return m.run.Plan.Independent || d.Attempt == m.run.Attempt
}

// Raise takes in the peaks of a rank.
func (m *Memory) Raise(rank int, peaks []samples.Peak) {
	for _, p := range peaks {
		m.peaks[rank] = samples.Raise(m.peaks[rank], p.Attempt, p.Phase, p.Max)
	}
}

// Peaks is the most that a rank has used, by attempt and phase.
func (m *Memory) Peaks(rank int) []samples.Peak { return m.peaks[rank] }

// loaded is what a rank holds at least of its device, in bytes, once it has loaded its model: an attempt that ends
// early ends others before they have.
const loaded = 1 << 30

// Balance looks whether a rank of those that share a model has held far more memory in the attempt than the others.
func (m *Memory) Balance() {
	if m.run.Plan.Backend == "none" || m.run.Plan.Independent {
		return
	}
	peaks := map[int]samples.Values{}
	for rank, all := range m.peaks {
		var own []samples.Peak
		for _, p := range all {
			if p.Attempt == m.run.Attempt {
				own = append(own, p)
			}
		}
		most := samples.Highest(own)
		if n, known := most.Held(); known && n >= loaded || m.run.Now.Sub(m.run.Begun).Seconds() >= samples.WarmUp {
			peaks[rank] = most
		}
	}
	for _, u := range samples.Imbalance(peaks) {
		message, fix := u.Words()
		f := check.RankMemory(codes.MemoryImbalance, m.run.HostOf(u.Rank), u.Rank, message, fix)
		m.run.FindOnce(fmt.Sprintf("imbalance %d", u.Rank), f)
	}
}

// DeviceUse is how much of a rank's device is in use, and its size, in bytes; ok is false where that is not known.
func (m *Memory) DeviceUse(rank int) (used, total float64, ok bool) {
	d, known := m.digests[m.run.Ranks[rank].Host]
	if !known {
		return 0, 0, false
	}
	for _, one := range d.Ranks {
		if n := one.Now.Number(samples.DeviceUsed); one.Rank == rank && n != nil && one.Total != 0 {
			return *n, one.Total, true
		}
	}
	return 0, 0, false
}

// Overview is what is known now of all ranks.
func (m *Memory) Overview() samples.Overview {
	o := samples.Overview{Attempt: m.run.Attempt, Hosts: []samples.HostDigest{}}
	for host, h := range m.run.Hosts {
		if d, known := m.digests[host]; known && m.isOf(d.Digest) {
			ago := max(0, m.run.Now.Sub(d.at).Seconds())
			o.Hosts = append(o.Hosts, samples.HostDigest{Host: h.Name, Ago: ago, Digest: *d.Digest})
		}
	}
	return o
}
