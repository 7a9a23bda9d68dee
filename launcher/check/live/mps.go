package live

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/plugins/gpu"
)

// sayClients tells of ranks that hold memory of a GPU that they should share by MPS and are
// no clients of its daemon. CUDA says nothing of that: a process that finds no daemon runs
// without. What holds memory has been a client before, so that a list that was got after is
// complete.
func (w *Watch) sayClients(h *watchedHost, s Sight, byRank [][]held) {
	if w.plan.Config.MPS == nil || s.Blind != "" {
		return
	}
	for _, d := range h.devices {
		at := slices.IndexFunc(s.MPS, func(m gpu.MPSClients) bool { return m.Device == d.UUID })
		switch {
		case at < 0:
		case s.MPS[at].Error != "":
			w.sayUnreachable(h, d, s.MPS[at].Error)
		default:
			w.sayNoClients(h, d, s.MPS[at], byRank, s.At)
		}
	}
}

func (w *Watch) sayUnreachable(h *watchedHost, d *watchedDevice, why string) {
	if !w.grew(h, codes.MPSUnreachable, d.UUID, 1) {
		return
	}
	f := rule.Finding{Code: codes.MPSUnreachable, Host: h.name, GPU: &d.Index}
	w.say(f, "", "if something cleans up folders of temporary files there, leave muster-run-* out of it; the daemon itself is ended with the run",
		"%sits MPS daemon does not answer (%s): clients that it has go on, and new processes run without MPS", f.Where(), why)
}

// sayNoClients believes what lasts: between the look at the GPU and that at the daemon a
// process may have ended.
func (w *Watch) sayNoClients(h *watchedHost, d *watchedDevice, m gpu.MPSClients, byRank [][]held, at float64) {
	var ranks []int
	for i, r := range h.ranks {
		if r.Device == nil || r.Device.UUID != d.UUID || r.ended {
			continue
		}
		for _, x := range byRank[i] {
			_, isClient := m.Clients[x.PID]
			isAlone := x.device == d && !isClient && h.lasts(x.PID, at)
			if isAlone && w.grew(h, codes.NotMPSClient, fmt.Sprint(r.Rank.Rank), 1) {
				ranks = append(ranks, r.Rank.Rank)
				break
			}
		}
	}
	if len(ranks) == 0 {
		return
	}
	f := rule.Finding{Code: codes.NotMPSClient, Host: h.name, GPU: &d.Index}
	if len(ranks) == 1 {
		f.Rank = &ranks[0]
	}
	verb := "are"
	if len(ranks) == 1 {
		verb = "is"
	}
	w.say(f, "", "see whether the script or a wrapper sets CUDA_MPS_PIPE_DIRECTORY anew or clears the environment (env -i, sudo, a container without the folder): leave it as muster sets it",
		"%s on %s %s on %s and no client of its MPS daemon: it takes turns with the others, and has none of the limits", w.describeRanks(ranks), h.name, verb, d.Device)
}

// lasts reports whether a process was seen without the daemon for a while.
func (h *watchedHost) lasts(pid int, at float64) bool {
	if h.alone == nil {
		h.alone = map[int]float64{}
	}
	since, seen := h.alone[pid]
	if !seen {
		h.alone[pid] = at
		return false
	}
	return at-since >= settle
}
