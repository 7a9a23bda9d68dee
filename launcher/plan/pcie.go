package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// PCIe are the ways by PCIe over which NCCL may have GPUs of a host's ranks reach into each
// other's memory, in words, the nearest first; none where settings keep it from that. nvlink
// is set where others of them have NVLink. All ranks of a host are a group in this, whatever
// groups the job file has; MIG devices never reach each other so.
func (p *Plan) PCIe(host int, m Meeting) (ways []string, nvlink bool) {
	disable, level := p.ncclValue("NCCL_P2P_DISABLE", host, m), p.ncclValue("NCCL_P2P_LEVEL", host, m)
	var found []gpu.Link
	for link := range p.links(host) {
		nvlink = nvlink || link.NVLinks() > 0
		if LinkNames[link] != "" && nccl.AllowsP2P(string(link), disable, level) {
			found = append(found, link)
		}
	}
	slices.SortFunc(found, func(a, b gpu.Link) int { return cmp.Compare(device.Distance(a), device.Distance(b)) })
	for _, link := range found {
		ways = append(ways, fmt.Sprintf("%s (%s)", link, LinkNames[link]))
	}
	return ways, nvlink
}

// links are the ways between whole GPUs of a host's ranks.
func (p *Plan) links(host int) map[gpu.Link]bool {
	found := map[gpu.Link]bool{}
	whole := slices.DeleteFunc(slices.Clone(p.Hosts[host].Devices), Device.IsInstance)
	for i, a := range whole {
		for _, b := range whole[:i] {
			found[device.LinkBetween(p.Facts[host].Devices.Links, a, b)] = true
		}
	}
	return found
}

// ncclValue is what NCCL reads of a variable on a host, whoever has set it; "" where nobody
// has, or its environment cannot be made.
func (p *Plan) ncclValue(name string, host int, m Meeting) string {
	vars, err := p.WholeEnv(p.Hosts[host].FirstRank, m, p.environOf(host, m))
	if err != nil {
		return ""
	}
	if at := slices.IndexFunc(vars, func(v Var) bool { return v.Name == name }); at >= 0 {
		return vars[at].Value
	}
	for _, file := range p.Facts[host].NCCLFiles {
		if value, set := file.Values[name]; set {
			return value
		}
	}
	return ""
}
