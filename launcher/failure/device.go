package failure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/plugins/gpu"
)

// failing is the GPU that a verdict is about: the one that the message numbers, else the
// worker's own, if it has one only.
func (e Evidence) failing(v verdict.Verdict) *GPU {
	if !strings.HasPrefix(v.Class, "oom.") || v.Class == class.OOMHost || v.Class == class.OOMShm {
		return nil
	}
	own := -1
	for i := range e.GPUs {
		g := &e.GPUs[i]
		if n, named := v.Numbers[verdict.NumGPU]; named && g.Seen == int(n) {
			return g
		}
		if g.Mine {
			if own >= 0 {
				return nil
			}
			own = i
		}
	}
	if _, named := v.Numbers[verdict.NumGPU]; named || own < 0 {
		return nil
	}
	return &e.GPUs[own]
}

// holding is who held a device's memory.
type holding struct {
	own, ranks, foreign float64
	names               []string // of ranks and foreign ones
}

func (u *Use) holding() holding {
	var h holding
	if u == nil {
		return h
	}
	for _, p := range u.Processes {
		bytes := float64(gpu.OrZero(p.Bytes))
		switch {
		case p.Own:
			h.own += bytes
			continue
		case p.Rank >= 0:
			h.ranks += bytes
			h.names = append(h.names, fmt.Sprintf("rank %d (pid %d) has %s", p.Rank, p.PID, text.Size(bytes, 2)))
		default:
			h.foreign += bytes
			h.names = append(h.names, fmt.Sprintf("%s has %s", p.text(), text.Size(bytes, 2)))
		}
	}
	return h
}

func (p Process) text() string {
	words := fmt.Sprintf("pid %d", p.PID)
	if p.Command != "" {
		words = fmt.Sprintf("%s (%s)", p.Command, words)
	}
	if p.User != "" {
		words += " of " + p.User
	}
	return words
}

// weighGPUMemory: what NVML saw before the death says who held what, which a message can
// only guess at.
func (e Evidence) weighGPUMemory(v *verdict.Verdict) {
	g := e.failing(*v)
	if g == nil {
		return
	}
	held, since := g.Before.holding(), ""
	switch {
	case g.Before != nil:
		v.AddEvidence(fmt.Sprintf("NVML saw %s of %s in use on GPU %d before it died",
			text.Size(g.Before.Used, 2), text.Size(g.Before.Total, 2), g.Index))
	case g.After != nil: // it died before anybody looked; the others are still there
		held, since = g.After.holding(), " since it ended"
		held.own = 0
	}
	for _, holder := range held.names {
		v.AddEvidence(fmt.Sprintf("on GPU %d %s%s", g.Index, holder, since))
	}
	if held.ranks+held.foreign > 0 {
		v.Numbers[verdict.NumOthers] = held.ranks + held.foreign
	}
	requested, total := v.Numbers[verdict.NumRequested], v.Numbers[verdict.NumTotal]
	if total > 0 && requested > total { // it never fits, whoever else is there
		return
	}
	switch {
	case overMPSLimit(e, g, *v):
		v.Become(class.OOMMPSLimit, verdict.Likely, fmt.Sprintf("the rank's share of GPU %d under MPS (%s) is used up, though the GPU itself is not", g.Index, text.Size(e.MPSLimit, 2)))
	case onAnothers(e, g):
		v.Become(class.OOMImbalance, verdict.Certain, fmt.Sprintf("the program filled GPU %d, which the plan gave to another rank: it makes tensors on the wrong device", g.Index))
	case g.Ranks <= 1 && held.ranks > output.Slack && held.ranks >= held.own/4:
		v.Become(class.OOMImbalance, verdict.Likely, fmt.Sprintf("several ranks of the run use GPU %d: %s of it are not this rank's", g.Index, text.Size(held.ranks, 2)))
	case foreignDecides(g, held, *v):
		v.Become(class.OOMForeign, verdict.Certain, fmt.Sprintf("GPU %d is used by somebody else too: %s", g.Index, strings.Join(held.names, ", ")))
	case (v.Class == class.OOMCapacity || v.Class == class.OOMForeign && held.own > 0 && held.foreign == 0) &&
		othersIdle(e, g):
		v.Become(class.OOMImbalance, verdict.Likely, fmt.Sprintf("GPU %d is full while the other GPUs of the plan are not half full: tensors on the wrong device, or an uneven split", g.Index))
	case v.Class == class.OOMForeign && g.Before != nil && held.own > 0 && held.foreign == 0:
		v.Become(class.OOMCapacity, verdict.Likely, fmt.Sprintf("GPU %d is too small for the program: nobody else held memory on it", g.Index))
	case v.Class == class.OOMUnknown && g.Before != nil && held.own > 0.8*float64(g.Before.Total):
		v.Become(class.OOMCapacity, verdict.Likely, fmt.Sprintf("GPU %d was full of the program's own memory", g.Index))
	}
}

// overMPSLimit: under a limit the driver says how much is free of the limit, and how much
// the whole card has.
func overMPSLimit(e Evidence, g *GPU, v verdict.Verdict) bool {
	if e.MPSLimit == 0 || v.Class == class.OOMFragmentation {
		return false
	}
	limit, requested := float64(e.MPSLimit), v.Numbers[verdict.NumRequested]
	own := max(v.Numbers[verdict.NumSelf], v.Numbers[verdict.NumReserved])
	if own+requested >= 0.95*limit {
		return true
	}
	return g.Before != nil && requested > 0 && float64(g.Before.Total-min(g.Before.Used, g.Before.Total)) >= requested
}

// onAnothers is whether the device is not the worker's own, though it has one.
func onAnothers(e Evidence, g *GPU) bool {
	return !g.Mine && g.Ranks > 0 && slices.ContainsFunc(e.GPUs, func(g GPU) bool { return g.Mine })
}

// foreignDecides is whether the request would have fitted without somebody else.
func foreignDecides(g *GPU, held holding, v verdict.Verdict) bool {
	if g.Before == nil && g.After == nil || held.foreign <= output.Slack {
		return false
	}
	if v.Class != class.OOMCapacity && v.Class != class.OOMUnknown && v.Class != class.OOMForeign {
		return false
	}
	requested, asked := v.Numbers[verdict.NumRequested]
	free, told := v.Numbers[verdict.NumFree]
	switch {
	case !told && g.Before == nil: // what it held itself is free by now
		return held.foreign >= float64(g.After.Total)/2
	case !told:
		free = float64(g.Before.Total) - float64(min(g.Before.Used, g.Before.Total))
	}
	if !asked {
		return held.foreign >= float64(cmp.Or(g.Before, g.After).Total)/2
	}
	return held.foreign+free+output.Slack >= requested
}

// othersIdle is whether the plan's other GPUs on the host are less than half full, and
// there are such.
func othersIdle(e Evidence, full *GPU) bool {
	others := 0
	for i := range e.GPUs {
		g := &e.GPUs[i]
		if g.Ranks == 0 || g == full || g.Before == nil || g.Before.Total == 0 {
			continue
		}
		if g.Before.Used*2 >= g.Before.Total {
			return false
		}
		others++
	}
	return others > 0 && full.Before != nil && full.Before.Used*2 > full.Before.Total
}
