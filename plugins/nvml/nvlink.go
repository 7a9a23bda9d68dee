//go:build linux && cgo

package nvml

import (
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// port is an active NVLink: its other end is a device, or an NVSwitch.
type port struct {
	peer     string // PCI address
	nvswitch bool
}

// readNVLinks reads nvmlDeviceGetNvLinkState of each port, and where the active ones lead.
// In MIG mode nobody reaches another GPU by them, whatever they say.
func (d *device) readNVLinks() {
	if gpu.IsTrue(d.card.MIG.Enabled) {
		d.card.Why["nvlinks"] = "MIG mode hides the NVLinks"
		return
	}
	const symbol = "nvmlDeviceGetNvLinkState"
	if !d.probe.has(symbol) {
		d.card.Why["nvlinks"] = d.probe.reason(symbol, nvml.ERROR_FUNCTION_NOT_FOUND)
		return
	}
	d.card.Why["nvlinks"] = "this product has no NVLinks"
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		d.failed("nvlinks", ret)
		switch ret {
		case nvml.SUCCESS:
			d.card.NVLinks = append(d.card.NVLinks, gpu.NVLink{Link: link, Active: state == nvml.FEATURE_ENABLED})
			if state == nvml.FEATURE_ENABLED {
				d.follow(link)
			}
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT: // there is no such port
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
			d.card.NVLinks, d.card.Why["nvlinks"] = nil, d.probe.reason(symbol, ret)
			return
		default:
			d.card.Why["nvlinks"] = d.probe.reason(symbol, ret)
			d.probe.note("GPU %d: NVLink %d: %s", d.card.Index, link, d.probe.reason(symbol, ret))
		}
	}
	if d.card.NVLinks != nil {
		delete(d.card.Why, "nvlinks")
	}
}

// follow asks for the other end of a link; an NVSwitch has no useful address.
func (d *device) follow(link int) {
	r, why := d.probe, map[string]string{}
	kind := get(r, why, "", "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) {
		return d.GetNvLinkRemoteDeviceType(link)
	})
	if kind != nil && *kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
		d.ports[port{nvswitch: true}]++
		return
	}
	peer := get(r, why, "", "nvmlDeviceGetNvLinkRemotePciInfo_v2", func() (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(link) })
	if peer != nil && address(*peer) != "" {
		d.ports[port{peer: address(*peer)}]++
	}
}

// links is the matrix of the ways between the GPUs. Those to a lost one are unknown.
func (r *probe) links(devices []*device) [][]gpu.Link {
	links := make([][]gpu.Link, len(devices))
	for i, a := range devices {
		links[i] = make([]gpu.Link, len(devices))
		links[i][i] = "X"
		for j, b := range devices[:i] {
			if a.alive() && b.alive() {
				links[i][j] = r.link(a, b)
				links[j][i] = links[i][j]
			}
		}
	}
	return links
}

// link is NVLinks from one GPU to the other, and those that both have to switches; else PCIe.
func (r *probe) link(a, b *device) gpu.Link {
	direct := max(a.ports[port{peer: b.card.PCI}], b.ports[port{peer: a.card.PCI}])
	switched := min(a.ports[port{nvswitch: true}], b.ports[port{nvswitch: true}])
	if n := direct + switched; n > 0 {
		return gpu.Link("NV" + strconv.Itoa(n))
	}
	return r.pcie(a, b)
}

// levels are the names of nvidia-smi topo for nvmlGpuTopologyLevel_t.
var levels = map[nvml.GpuTopologyLevel]gpu.Link{
	nvml.TOPOLOGY_INTERNAL:   "PIX",
	nvml.TOPOLOGY_SINGLE:     "PIX",
	nvml.TOPOLOGY_MULTIPLE:   "PXB",
	nvml.TOPOLOGY_HOSTBRIDGE: "PHB",
	nvml.TOPOLOGY_NODE:       "NODE",
	nvml.TOPOLOGY_SYSTEM:     "SYS",
}

// pcie asks nvmlDeviceGetTopologyCommonAncestor.
func (r *probe) pcie(a, b *device) gpu.Link {
	const name = "links"
	why := map[string]string{}
	level := get(r, why, name, "nvmlDeviceGetTopologyCommonAncestor", func() (nvml.GpuTopologyLevel, nvml.Return) {
		return a.GetTopologyCommonAncestor(b.Device)
	})
	if level == nil {
		r.all.Why[name] = why[name]
		return ""
	}
	return levels[*level]
}
