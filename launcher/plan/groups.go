package plan

import (
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plan/place"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Group is a group of ranks in a row that was asked to sit on fast links.
type Group struct {
	Name  string
	First int // its first rank
	Size  int
	// Link is the slowest way between two of its ranks, and Pair whose it is. NetworkLink stands for ranks on
	// different hosts.
	Link gpu.Link
	Pair [2]int
}

// NetworkLink is the way between GPUs of different hosts.
const NetworkLink gpu.Link = "network"

// Fast reports whether all pairs of the group have NVLink.
func (g Group) Fast() bool { return g.Link == "X" || g.Link.NVLinks() > 0 }

// findGroups says how the groups of the job lie.
func findGroups(p *Plan) []Group {
	var groups []Group
	for _, asked := range p.Config.Placement.Groups {
		for first := 0; first < p.WorldSize; first += asked.Size {
			g := Group{Name: asked.Name, First: first, Size: min(asked.Size, p.WorldSize-first), Link: "X"}
			g.Pair = [2]int{first, first}
			groups = append(groups, slowest(p, g))
		}
	}
	return groups
}

// slowest fills in the slowest link of a group.
func slowest(p *Plan, g Group) Group {
	for a := g.First; a < g.First+g.Size; a++ {
		for b := a + 1; b < g.First+g.Size; b++ {
			link := linkOf(p, p.Ranks[a], p.Ranks[b])
			if link == NetworkLink || device.Distance(link) > device.Distance(g.Link) {
				g.Link, g.Pair = link, [2]int{a, b}
			}
			if link == NetworkLink {
				return g
			}
		}
	}
	return g
}

// linkOf is the way between the devices of two ranks.
func linkOf(p *Plan, a, b Rank) gpu.Link {
	switch {
	case a.Host != b.Host:
		return NetworkLink
	case a.Device == nil || b.Device == nil:
		return ""
	case a.Device.Same(*b.Device), a.Device.Card == b.Device.Card && p.Backend == "nccl" && place.JoinsParts(&p.Facts[a.Host]):
		return "X"
	}
	return device.LinkBetween(p.Facts[a.Host].Devices.Links, *a.Device, *b.Device)
}

// LinkNames describe the ways by PCIe, after nvidia-smi topo's own legend.
var LinkNames = map[gpu.Link]string{
	"PIX":  "one PCIe bridge",
	"PXB":  "several PCIe bridges",
	"PHB":  "the CPU's PCIe host bridge",
	"NODE": "between host bridges of one NUMA node",
	"SYS":  "between CPU sockets",
}
