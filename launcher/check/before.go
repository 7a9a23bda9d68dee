package check

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Before judges what is known before the start. Of each GPU that the plan uses everything
// counts; of the others it is good to know what is broken.
func Before(in Input) []Finding {
	j := &judge{in: in, fastest: activePorts(in.Hosts)}
	for i := range in.Hosts {
		h := j.host(i)
		h.devices()
		h.counts()
		h.limits()
		h.space()
		h.infiniband()
		h.interfaces()
	}
	j.versions()
	j.sisterHosts()
	j.unread()
	j.sharing()
	j.clocks()
	j.reach()
	j.visits()
	j.ownName()
	sortWorstFirst(j.found)
	return j.found
}

// judge collects findings.
type judge struct {
	in      Input
	fastest map[portName]portSeen // of all hosts
	found   []Finding
}

// add takes a finding about what where says; severity "" is the code's own.
func (j *judge) add(where Finding, severity Severity, fix, format string, args ...any) {
	if severity == "" {
		code, _ := codes.Find(where.Code)
		severity = code.Severity
	}
	where.Severity, where.Fix = severity, fix
	where.Message = where.Where() + fmt.Sprintf(format, args...)
	j.found = append(j.found, where)
}

// several takes a finding about several hosts.
func (j *judge) several(code string, severity Severity, fix, format string, args ...any) {
	j.add(Finding{Code: code}, severity, fix, format, args...)
}

// hostJudge judges one host.
type hostJudge struct {
	*judge
	Host
	at   int
	part plan.Host
	used []usedGPU
}

func (j *judge) host(at int) *hostJudge {
	h := &hostJudge{judge: j, Host: j.in.Hosts[at], at: at, part: j.in.Plan.Hosts[at]}
	h.used = h.findUsed()
	return h
}

func (h *hostJudge) say(code string, severity Severity, fix, format string, args ...any) {
	h.add(Finding{Code: code, Host: h.Name}, severity, fix, format, args...)
}

// usedGPU is a GPU of a host, with the plan's devices on it and their ranks.
type usedGPU struct {
	gpu.GPU
	at      int // its position in the facts
	devices []plan.Device
	ranks   []int
}

func (g usedGPU) isUsed() bool { return len(g.devices) > 0 }

// sayOf takes a finding about a GPU.
func (h *hostJudge) sayOf(g usedGPU, code string, severity Severity, fix, format string, args ...any) {
	f := Finding{Code: code, Host: h.Name, GPU: &g.Index}
	if len(g.ranks) == 1 {
		f.Rank = &g.ranks[0]
	}
	if !g.isUsed() {
		severity = Info
		fix = ""
		format = "(no rank uses it) " + format
	}
	h.add(f, severity, fix, format, args...)
}

// findUsed brings the GPUs of the facts and the plan's devices together.
func (h *hostJudge) findUsed() []usedGPU {
	d := h.Facts.Devices
	if d == nil || d.Inventory == nil {
		return nil
	}
	all := make([]usedGPU, len(d.Inventory.GPUs))
	for i, g := range d.Inventory.GPUs {
		all[i] = usedGPU{GPU: g, at: i}
		for _, device := range h.part.Devices {
			if !holds(g, device) || slices.Contains(all[i].devices, device) {
				continue
			}
			all[i].devices = append(all[i].devices, device)
			all[i].ranks = append(all[i].ranks, ranksOf(h.in.Plan, h.at, device)...)
		}
	}
	return all
}

// holds reports whether a device of the plan is a GPU or a part of it. A lost GPU may not
// tell its UUID, but where it is.
func holds(g gpu.GPU, d plan.Device) bool {
	if d.IsInstance() || g.UUID == "" || d.UUID == "" {
		return d.PCI != "" && g.PCI == d.PCI
	}
	return g.UUID == d.UUID
}

// ranksOf are the ranks of a host that have a device.
func ranksOf(p *plan.Plan, host int, d plan.Device) []int {
	var ranks []int
	h := p.Hosts[host]
	for _, r := range p.Ranks[h.FirstRank : h.FirstRank+h.Ranks] {
		if r.Device != nil && *r.Device == d {
			ranks = append(ranks, r.Rank)
		}
	}
	return ranks
}

// inContainer chooses the advice that fits where the host is a container.
func (h *hostJudge) inContainer(there, elsewhere string) string {
	if h.Facts.Container != "" {
		return there
	}
	return elsewhere
}

// byNetwork reports whether the ranks' data crosses hosts by NCCL, which takes InfiniBand
// where it finds some.
func (j *judge) byNetwork() bool { return len(j.in.Hosts) > 1 && j.in.Plan.Backend == "nccl" }

// lowered is a severity unless there is a reason that it should be less.
func lowered(severity Severity, unless bool, to Severity) Severity {
	if unless {
		return to
	}
	return severity
}

// mostNamed is how many hosts are named one by one.
const mostNamed = 8
