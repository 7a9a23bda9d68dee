package plan

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Group is a group of ranks in a row that was asked to sit on fast links.
type Group struct {
	Name  string
	First int // its first rank
	Size  int
	// Link is the slowest way between two of its ranks, and Pair whose it is. NetworkLink stands for ranks on different
	// hosts.
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
	case a.Device.Same(*b.Device), a.Device.Card == b.Device.Card && joinsParts(p, a.Host):
		return "X"
	}
	return device.LinkBetween(p.Facts[a.Host].Devices.Links, *a.Device, *b.Device)
}

// joinsParts reports whether NCCL has MIG devices of one GPU reach each other directly.
func joinsParts(p *Plan, host int) bool {
	if p.Backend != "nccl" {
		return false
	}
	verdict, _, _ := nccl.OnDevices(p.NCCLHost(host, Meeting{}), false)
	return verdict == nccl.Works
}

// maxWarnings is how many groups, and hosts, are named one by one.
const maxWarnings = 8

// checkGroups warns of groups that are not on fast links.
func checkGroups(p *Plan) []Problem {
	var slow []Problem
	for _, g := range p.Config.Placement.Groups {
		if rest := p.WorldSize % g.Size; rest != 0 {
			slow = append(slow, Problem{Code: "group_size", Message: fmt.Sprintf(
				"%s: %s = %d: %s cannot be parted into groups of %d: the last one has %d",
				g.Range, g.Name, g.Size, plural.Of(p.WorldSize, "rank"), g.Size, rest)})
		}
	}
	left := 0
	for _, g := range p.Groups {
		switch {
		case g.Fast():
		case len(slow) < maxWarnings:
			slow = append(slow, slowGroup(p, g))
		default:
			left++
		}
	}
	if left > 0 {
		slow = append(slow, Problem{Code: "slow_group", Message: fmt.Sprintf("slow links have %s too", plural.Of(left, "more group"))})
	}
	return slow
}

func slowGroup(p *Plan, g Group) Problem {
	a, b := p.Ranks[g.Pair[0]], p.Ranks[g.Pair[1]]
	host := p.Hosts[a.Host].Name
	who := fmt.Sprintf("%s group of ranks %d-%d", g.Name, g.First, g.First+g.Size-1)
	found := Problem{Code: "slow_group", Host: host}
	switch {
	case g.Link == NetworkLink:
		found.Host = ""
		found.Message = fmt.Sprintf("the %s is spread over hosts: rank %d on %s and rank %d on %s reach each other by network only",
			who, a.Rank, host, b.Rank, p.Hosts[b.Host].Name)
	case a.Device == nil || b.Device == nil:
		found.Message = fmt.Sprintf("the %s has no GPUs to lie on fast links with", who)
	case g.Link == "":
		found.Message = fmt.Sprintf("%s: the %s: how %s and %s are joined is not known", host, who, a.Device, b.Device)
	default:
		found.Message = fmt.Sprintf("%s: the %s is not on fast links: rank %d's %s and rank %d's %s are joined by %s (%s), not NVLink",
			host, who, a.Rank, a.Device, b.Rank, b.Device, g.Link, LinkNames[g.Link])
	}
	return found
}

// LinkNames describe the ways by PCIe, after nvidia-smi topo's own legend.
var LinkNames = map[gpu.Link]string{
	"PIX":  "one PCIe bridge",
	"PXB":  "several PCIe bridges",
	"PHB":  "the CPU's PCIe host bridge",
	"NODE": "between host bridges of one NUMA node",
	"SYS":  "between CPU sockets",
}
