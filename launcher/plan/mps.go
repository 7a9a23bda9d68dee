package plan

import (
	"github.com/muster-dev/muster/launcher/plan/place"
)

// MPSFolders are where a daemon of MPS has its sockets, and its logs.
type MPSFolders struct{ Pipe, Log string }

// MPSGPU is a device whose ranks are clients of one daemon of MPS.
type MPSGPU struct {
	Device Device
	Ranks  []int
	// Threads and Memory are the most that one of the ranks may have: the daemon's limits, as a client can only lower
	// them. 0: no limit.
	Threads float64
	Memory  uint64
}

// MPS are the devices of a host that its ranks share by MPS; none without an mps block.
func (p *Plan) MPS(host int) []MPSGPU {
	m := p.Config.MPS
	if m == nil {
		return nil
	}
	var all []MPSGPU
	for _, r := range p.RanksOf(host) {
		if r.Device == nil {
			continue
		}
		if n := len(all); n == 0 || !all[n-1].Device.Same(*r.Device) {
			all = append(all, MPSGPU{Device: *r.Device})
		}
		g := &all[len(all)-1]
		place := len(g.Ranks)
		g.Ranks = append(g.Ranks, r.Rank)
		g.Threads, g.Memory = max(g.Threads, m.ThreadsOf(place)), max(g.Memory, m.MemoryOf(place))
	}
	return all
}

// MPSMemory is how much device memory a rank may take under MPS; 0: no limit.
func (p *Plan) MPSMemory(rank int) uint64 {
	if p.Config.MPS == nil {
		return 0
	}
	return p.Config.MPS.MemoryOf(p.placeOnGPU(p.Ranks[rank]))
}

// MPSThreads is how many per cent of a GPU's threads a rank may use under MPS; 0: no limit.
func (p *Plan) MPSThreads(rank int) float64 {
	if p.Config.MPS == nil {
		return 0
	}
	return p.Config.MPS.ThreadsOf(p.placeOnGPU(p.Ranks[rank]))
}

// placeOnGPU is a rank's number among those of its device.
func (p *Plan) placeOnGPU(r Rank) int {
	place := 0
	for _, other := range p.Ranks[p.Hosts[r.Host].FirstRank:r.Rank] {
		if r.Device != nil && other.Device != nil && other.Device.Same(*r.Device) {
			place++
		}
	}
	return place
}

// ExistingPipe is the pipe directory of the daemon that a host's ranks become clients of, where it runs already.
func (p *Plan) ExistingPipe(host int) string {
	if p.Config.MPS == nil || !p.Config.MPS.Existing {
		return ""
	}
	return place.ExistingPipe(p.Config.MPS, &p.Facts[host])
}
