package lint

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plan/place"
)

// mpsSettings tells what MPS does not do for the job's ranks together, and of daemons that ranks become clients of
// though nobody has asked for that.
func mpsSettings(in *rule.Input) (found rule.Findings) {
	for i := range in.Hosts {
		h := &in.Hosts[i]
		if in.Job.MPS == nil {
			found = append(found, unaskedMPS(h)...)
			continue
		}
		found = append(found, hostLimits(h)...)
		found = append(found, manyDaemons(h)...)
	}
	if in.Job.MPS == nil {
		return found
	}
	for _, g := range in.Plan.Groups {
		if a, b, shared := sharedIn(in.Plan, g); shared {
			return append(found, in.Hosts[in.Plan.Ranks[a].Host].Find("", "the %s group of ranks %d-%d has ranks %d and %d on one GPU: a group is split over GPUs to have more of them, and NCCL refuses two ranks on one",
				g.Name, g.First, g.First+g.Size-1, a, b).Of("mps_group")...)
		}
	}
	return found
}

// hostLimits are about limits that the host sets and the mps block does not.
func hostLimits(h *rule.Host) (found rule.Findings) {
	block := h.In.Job.MPS
	for _, limit := range []struct {
		variable, name string
		set            bool
	}{
		{mps.ActiveThreads, "active_thread_percentage", len(block.Threads) > 0},
		{mps.PinnedMemory, "pinned_memory_limit", len(block.Memory) > 0},
	} {
		if value, is := h.Facts.Environ[limit.variable]; is && !limit.set {
			found = append(found, h.Find("", "%s=%s is set there, not by the job file, and limits ranks; the mps block has %s for that", limit.variable, value, limit.name)...)
		}
	}
	return found.Of("mps_found")
}

// manyDaemons is about NCCL over GPUs that have a daemon each. What it makes of shared GPUs is said with its other
// settings.
func manyDaemons(h *rule.Host) rule.Findings {
	p := h.In.Plan
	if p.Backend != "nccl" || len(h.Part.Devices) < 2 || h.In.Job.MPS.Existing {
		return nil
	}
	if verdict, _, _ := environ.OnDevices(p, h.At, plan.Meeting{}); verdict == nccl.Unknown || verdict == nccl.Refuses {
		return nil
	}
	return h.Find("", "its %s have an MPS daemon each, and clients of different ones do not reach each other's memory directly: NCCL between them is slow, if it works. For collectives over GPUs leave the mps block out, and give each rank a GPU",
		place.Counted(h.Part.Devices)).Of("mps_daemons")
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

// unaskedMPS tells of a daemon where CUDA looks for one by itself: every rank becomes its client. Where none answers
// there, ranks run without MPS, though the host's variables speak of it.
func unaskedMPS(h *rule.Host) rule.Findings {
	known := h.Facts.MPS
	if known == nil || len(h.Part.Devices) == 0 {
		return nil
	}
	asked, set := h.Facts.Environ[mps.PipeDirectory]
	pipe := cmp.Or(asked, mps.DefaultPipeDirectory)
	at := slices.IndexFunc(known.Daemons, func(d facts.MPSDaemon) bool { return d.Told && d.Pipe == pipe && !d.Lost })
	switch {
	case at >= 0:
		d := known.Daemons[at]
		return h.Find("", "ranks will be clients of the MPS daemon of %s in %s (pid %d), where CUDA looks by itself: a fault of one client ends all of them; say that it is meant with mps { daemon = \"existing\" }, or end it",
			d.User, pipe, d.PID).Of("mps_found")
	case set && !slices.ContainsFunc(known.Daemons, func(d facts.MPSDaemon) bool { return !d.Told }):
		return h.Find("", "%s=%s is set there, and no MPS daemon runs there: ranks run without MPS, and nothing will say so. Write mps { ranks_per_gpu = N } to have one, or unset it there",
			mps.PipeDirectory, asked).Of("mps_found")
	}
	return nil
}
