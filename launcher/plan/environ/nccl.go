package environ

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// ncclHost is a host as far as NCCL's settings concern it.
func ncclHost(p *plan.Plan, host int, m *plan.Meeting) nccl.Host {
	h, f, s := &p.Hosts[host], &p.Facts[host], softwareOf(p, host, m)
	n := nccl.Host{
		Name:  "the host", // so that what is the same on many hosts reads the same
		Hosts: len(p.Hosts), GPUs: len(h.Devices),
		Sharing: len(h.Devices) > 0 && (h.Ranks > len(h.Devices) || device.Repeats(h.Devices)),
		Version: nccl.ParseVersion(s.NCCL, s.Torch), Container: f.Container != "", Adapters: []string{},
		Parts: len(device.Parts(h.Devices)), OneGPU: device.OnOneGPU(h.Devices),
	}
	for _, a := range f.HCAs {
		if a.State == "active" {
			n.Adapters = append(n.Adapters, a.Name)
		}
	}
	for _, nic := range f.NICs {
		n.Interfaces = append(n.Interfaces,
			nccl.Interface{Name: nic.Name, Up: nic.Up, Loopback: nic.Loopback, Virtual: nic.Virtual})
	}
	if !p.Independent {
		n.Ranks = p.WorldSize
	}
	if d := f.Devices; d != nil && d.Inventory != nil && len(h.Devices) > 0 {
		n.NVLink, n.AllNV = nvlinks(d.Links, h.Devices)
		n.Fabric = slices.ContainsFunc(d.Inventory.GPUs, func(g gpu.GPU) bool { return g.Fabric != nil })
		if d.Inventory.CUDA != nil {
			n.CUDA = *d.Inventory.CUDA
		}
	}
	return n
}

// nvlinks says whether some, and whether all, pairs of devices have NVLink.
func nvlinks(links [][]gpu.Link, devices []plan.Device) (some, all bool) {
	all = len(devices) > 1
	for i, a := range devices {
		for _, b := range devices[:i] {
			is := device.LinkBetween(links, a, b).NVLinks() > 0
			some, all = some || is, all && is
		}
	}
	return some, all
}

// OnDevices is what NCCL does for a host's ranks by their devices, why, and what to do where it does not take them.
func OnDevices(p *plan.Plan, host int, m plan.Meeting) (verdict nccl.Verdict, why, fix string) {
	return nccl.OnDevices(ncclHost(p, host, &m), ncclValue(p, host, &m, "NCCL_MULTI_RANK_GPU_ENABLE") == "1")
}

// PCIe are the ways by PCIe over which NCCL may have GPUs of a host's ranks reach into each other's memory, the
// nearest first; none where settings keep it from that. nvlink is set where others of them have NVLink. All ranks of
// a host are a group in this, whatever groups the job file has; MIG devices never reach each other so.
func PCIe(p *plan.Plan, host int, m plan.Meeting) (ways []string, nvlink bool) {
	disable, level := ncclValue(p, host, &m, "NCCL_P2P_DISABLE"), ncclValue(p, host, &m, "NCCL_P2P_LEVEL")
	whole := slices.DeleteFunc(slices.Clone(p.Hosts[host].Devices), plan.Device.IsInstance)
	var found []gpu.Link
	for i, a := range whole {
		for _, b := range whole[:i] {
			link := device.LinkBetween(p.Facts[host].Devices.Links, a, b)
			nvlink = nvlink || link.NVLinks() > 0
			if plan.LinkNames[link] != "" && nccl.AllowsP2P(string(link), disable, level) && !slices.Contains(found, link) {
				found = append(found, link)
			}
		}
	}
	slices.SortFunc(found, func(a, b gpu.Link) int { return cmp.Compare(device.Distance(a), device.Distance(b)) })
	for _, link := range found {
		ways = append(ways, fmt.Sprintf("%s (%s)", link, plan.LinkNames[link]))
	}
	return ways, nvlink
}

// ncclValue is what NCCL reads of a variable on a host, whoever has set it; "" where nobody has, or its environment
// cannot be made.
func ncclValue(p *plan.Plan, host int, m *plan.Meeting, name string) string {
	vars, err := Whole(p, p.Hosts[host].FirstRank, *m, HostEnviron(p, host, m))
	if err != nil {
		return ""
	}
	if at := slices.IndexFunc(vars, func(v plan.Var) bool { return v.Name == name }); at >= 0 {
		return vars[at].Value
	}
	for _, file := range p.Facts[host].NCCLFiles {
		if value, set := file.Values[name]; set {
			return value
		}
	}
	return ""
}
