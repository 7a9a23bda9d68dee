package lint

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plan/place"
)

// sharing says what MPS does not do for the job's ranks together, and which daemons ranks become clients of though nobody
// has asked for that.
func sharing(p *plan.Plan) []plan.Problem {
	m := p.Config.MPS
	var all []plan.Problem
	for i, h := range p.Hosts {
		if m == nil {
			all = append(all, unaskedDaemon(&p.Facts[i], h)...)
			continue
		}
		for _, limit := range []struct {
			variable, name string
			set            bool
		}{
			{mps.ActiveThreads, "active_thread_percentage", len(m.Threads) > 0},
			{mps.PinnedMemory, "pinned_memory_limit", len(m.Memory) > 0},
		} {
			if value, found := p.Facts[i].Environ[limit.variable]; found && !limit.set {
				all = append(all, problem("mps_found", h.Name,
					"%s: %s=%s is set there, not by the job file, and limits ranks; the mps block has %s for that",
					h.Name, limit.variable, value, limit.name))
			}
		}
		if p.Backend != "nccl" || len(h.Devices) < 2 || m.Existing {
			continue
		}
		verdict, _, _ := environ.OnDevices(p, i, plan.Meeting{})
		if verdict != nccl.Unknown && verdict != nccl.Refuses { // else that is said with what NCCL makes of its other settings
			all = append(all, problem("mps_daemons", h.Name, "%s: its %s have an MPS daemon each, and clients of different ones "+
				"do not reach each other's memory directly: NCCL between them is slow, if it works. "+
				"For collectives over GPUs leave the mps block out, and give each rank a GPU", h.Name, place.Counted(h.Devices)))
		}
	}
	if m == nil {
		return all
	}
	for _, g := range p.Groups {
		if a, b, shared := sharedIn(p, g); shared {
			host := p.Hosts[p.Ranks[a].Host].Name
			return append(all, problem("mps_group", host, "%s: the %s group of ranks %d-%d has ranks %d and %d on one GPU: "+
				"a group is split over GPUs to have more of them, and NCCL refuses two ranks on one",
				host, g.Name, g.First, g.First+g.Size-1, a, b))
		}
	}
	return all
}

// sharedIn finds two ranks of a group on one device.
func sharedIn(p *plan.Plan, g plan.Group) (a, b int, shared bool) {
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

// unaskedDaemon reports a daemon where CUDA looks for one by itself: every rank becomes its client. Where none answers
// there, ranks run without MPS, though the host's variables name it.
func unaskedDaemon(f *facts.Host, h plan.Host) []plan.Problem {
	if f.MPS == nil || len(h.Devices) == 0 {
		return nil
	}
	asked, set := f.Environ[mps.PipeDirectory]
	pipe := cmp.Or(asked, mps.DefaultPipeDirectory)
	for _, d := range f.MPS.Daemons {
		if d.Told && d.Pipe == pipe && !d.Lost {
			return []plan.Problem{problem("mps_found", h.Name, "%s: ranks will be clients of the MPS daemon of %s in %s (pid %d), "+
				"where CUDA looks by itself: a fault of one client ends all of them; "+
				"say that it is meant with mps { daemon = \"existing\" }, or end it", h.Name, d.User, pipe, d.PID)}
		}
	}
	if set && !slices.ContainsFunc(f.MPS.Daemons, func(d facts.MPSDaemon) bool { return !d.Told }) {
		return []plan.Problem{problem("mps_found", h.Name, "%s: %s=%s is set there, and no MPS daemon runs there: "+
			"ranks run without MPS, and nothing will say so. Write mps { ranks_per_gpu = N } to have one, or unset it there",
			h.Name, mps.PipeDirectory, asked)}
	}
	return nil
}
