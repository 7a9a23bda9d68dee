package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plan/place"
)

// MPSFolders are where a daemon of MPS has its sockets, and its logs.
type MPSFolders struct{ Pipe, Log string }

// MPSGPU is a device whose ranks are clients of one daemon of MPS.
type MPSGPU struct {
	Device Device
	Ranks  []int
	// Threads and Memory are the most that one of the ranks may have: what the daemon is told,
	// as a client can only lower it. 0: no limit.
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
	h := p.Hosts[host]
	for _, r := range p.Ranks[h.FirstRank : h.FirstRank+h.Ranks] {
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

// MPSBlock is the job's; nil without one.
func (p *Plan) MPSBlock() *config.MPS { return p.Config.MPS }

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

// ExistingPipe is where the daemon is that a host's ranks are to be clients of, where it is
// one that is there already.
func (p *Plan) ExistingPipe(host int) string {
	if p.Config.MPS == nil || !p.Config.MPS.Existing {
		return ""
	}
	return place.ExistingPipe(p.Config.MPS, &p.Facts[host])
}

// mpsShares are a rank's shares of its GPU.
func (p *Plan) mpsShares(r Rank) []Var {
	m := p.Config.MPS
	if m == nil || r.Device == nil {
		return nil
	}
	place := p.placeOnGPU(r)
	var vars []Var
	if threads := m.ThreadsOf(place); threads > 0 {
		vars = append(vars, Var{Name: mps.ActiveThreads, Value: mps.Percentage(threads), Source: m.ThreadsAt})
	}
	if memory := m.MemoryOf(place); memory > 0 {
		number, _ := p.daemonNumber(r.Host, *r.Device)
		vars = append(vars, Var{Name: mps.PinnedMemory, Value: mps.Limit(number, memory),
			Source: fmt.Sprintf("%s; %d is what the MPS daemon calls %s", m.MemoryAt, number, r.Device)})
	}
	return vars
}

// mpsFolders tell a rank where its daemon is.
func (p *Plan) mpsFolders(r Rank, m Meeting) []Var {
	switch {
	case p.Config.MPS == nil || r.Device == nil:
		return nil
	case p.Config.MPS.Existing:
		return []Var{{Name: mps.PipeDirectory, Value: p.ExistingPipe(r.Host), Source: "the MPS daemon that is there already (daemon = \"existing\")"}}
	}
	folders := MPSFolders{}
	if r.Host < len(m.MPS) {
		folders = m.MPS[r.Host][r.Device.UUID]
	}
	why := fmt.Sprintf("the run's own MPS daemon for %s of %s", r.Device, p.Hosts[r.Host].Name)
	return []Var{{Name: mps.PipeDirectory, Value: folders.Pipe, Source: why}, {Name: mps.LogDirectory, Value: folders.Log, Source: why}}
}

// daemonNumber is the number by which a daemon of MPS knows a device. One of the run's own
// has that device only; one that was there counts those that it was started with.
func (p *Plan) daemonNumber(host int, d Device) (number int, known bool) {
	return place.DaemonNumber(p.Config.MPS, &p.Facts[host], d)
}

// mpsProblems tells what MPS does not do for the job's ranks together, and of daemons that
// ranks become clients of though nobody has asked for that.
func (p *Plan) mpsProblems() []Problem {
	if p.Config.MPS == nil {
		return p.unaskedMPS()
	}
	var all []Problem
	say := func(code, host, format string, args ...any) {
		all = append(all, Problem{Code: code, Host: host, Message: fmt.Sprintf(format, args...)})
	}
	for i, h := range p.Hosts {
		for _, limit := range p.limitNames() {
			if value, found := p.Facts[i].Environ[limit.variable]; found && !limit.set {
				say("mps_found", h.Name, "%s: %s=%s is set there, not by the job file, and limits ranks; the mps block has %s for that", h.Name, limit.variable, value, limit.name)
			}
		}
		if p.Backend != "nccl" || len(h.Devices) == 0 {
			continue
		}
		if verdict, _, _ := p.OnDevices(i, Meeting{}); verdict == nccl.Unknown || verdict == nccl.Refuses {
			continue // which is said with what NCCL makes of its other settings
		}
		if len(h.Devices) > 1 && !p.Config.MPS.Existing {
			say("mps_daemons", h.Name, "%s: its %s have an MPS daemon each, and clients of different ones do not reach each other's memory directly: NCCL between them is slow, if it works. For collectives over GPUs leave the mps block out, and give each rank a GPU", h.Name, place.Counted(h.Devices))
		}
	}
	for _, g := range p.Groups {
		if a, b, shared := p.sharedIn(g); shared {
			host := p.Hosts[p.Ranks[a].Host].Name
			say("mps_group", host, "%s: the %s group of ranks %d-%d has ranks %d and %d on one GPU: a group is split over GPUs to have more of them, and NCCL refuses two ranks on one", host, g.Name, g.First, g.First+g.Size-1, a, b)
			break
		}
	}
	return all
}

// limitName is a limit of the mps block.
type limitName struct {
	variable, name string
	set            bool
}

func (p *Plan) limitNames() []limitName {
	return []limitName{
		{mps.ActiveThreads, "active_thread_percentage", len(p.Config.MPS.Threads) > 0},
		{mps.PinnedMemory, "pinned_memory_limit", len(p.Config.MPS.Memory) > 0},
	}
}

// sharedIn finds two ranks of a group on one device.
func (p *Plan) sharedIn(g Group) (a, b int, shared bool) {
	for b := g.First; b < g.First+g.Size; b++ {
		for a := g.First; a < b; a++ {
			one, other := p.Ranks[a], p.Ranks[b]
			if one.Host == other.Host && one.Device != nil && other.Device != nil && one.Device.Same(*other.Device) {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// unaskedMPS tells of a daemon where CUDA looks for one by itself: every rank becomes its
// client. Where none answers there, ranks run without MPS, though the host's variables speak
// of it.
func (p *Plan) unaskedMPS() []Problem {
	var all []Problem
	for i, h := range p.Hosts {
		f := p.Facts[i]
		if f.MPS == nil || len(h.Devices) == 0 {
			continue
		}
		asked, set := f.Environ[mps.PipeDirectory]
		pipe := cmp.Or(asked, mps.DefaultPipeDirectory)
		at := slices.IndexFunc(f.MPS.Daemons, func(d facts.MPSDaemon) bool { return d.Told && d.Pipe == pipe && !d.Lost })
		switch {
		case at >= 0:
			d := f.MPS.Daemons[at]
			all = append(all, Problem{Code: "mps_found", Host: h.Name, Message: fmt.Sprintf(
				"%s: ranks will be clients of the MPS daemon of %s in %s (pid %d), where CUDA looks by itself: a fault of one client ends all of them; say that it is meant with mps { daemon = \"existing\" }, or end it", h.Name, d.User, pipe, d.PID)})
		case set && !slices.ContainsFunc(f.MPS.Daemons, func(d facts.MPSDaemon) bool { return !d.Told }):
			all = append(all, Problem{Code: "mps_found", Host: h.Name, Message: fmt.Sprintf(
				"%s: %s=%s is set there, and no MPS daemon runs there: ranks run without MPS, and nothing will say so. Write mps { ranks_per_gpu = N } to have one, or unset it there", h.Name, mps.PipeDirectory, asked)})
		}
	}
	return all
}
