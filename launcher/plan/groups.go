package plan

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Group is a group of ranks in a row that was asked to sit on fast links.
type Group struct {
	Name  string
	First int // its first rank
	Size  int
	// Link is the slowest way between two of its ranks, and Pair whose it is. NetworkLink
	// stands for ranks on different hosts.
	Link gpu.Link
	Pair [2]int
}

// NetworkLink is the way between GPUs of different hosts.
const NetworkLink gpu.Link = "network"

// Fast reports whether all pairs of the group have NVLink.
func (g Group) Fast() bool { return g.Link == "X" || g.Link.NVLinks() > 0 }

// findGroups tells how the groups of the job lie.
func (p *Plan) findGroups() {
	for _, g := range p.job.Placement.Groups {
		for first := 0; first < p.WorldSize; first += g.Size {
			p.Groups = append(p.Groups, p.groupAt(g, first))
		}
	}
}

func (p *Plan) groupAt(g config.Group, first int) Group {
	found := Group{Name: g.Name, First: first, Size: min(g.Size, p.WorldSize-first), Link: "X", Pair: [2]int{first, first}}
	for a := first; a < first+found.Size; a++ {
		for b := a + 1; b < first+found.Size; b++ {
			if link := p.linkOf(a, b); wayOf(link) > wayOf(found.Link) {
				found.Link, found.Pair = link, [2]int{a, b}
			}
			if found.Link == NetworkLink {
				return found
			}
		}
	}
	return found
}

// linkOf is the way between the devices of two ranks.
func (p *Plan) linkOf(a, b int) gpu.Link {
	ra, rb := p.Ranks[a], p.Ranks[b]
	switch {
	case ra.Host != rb.Host:
		return NetworkLink
	case ra.Device == nil || rb.Device == nil:
		return ""
	case ra.Device.same(*rb.Device), ra.Device.card == rb.Device.card && p.joinsParts(ra.Host):
		return "X"
	}
	return linkBetween(p.facts[ra.Host].Devices.Links, *ra.Device, *rb.Device)
}

// joinsParts reports whether NCCL has MIG devices of one GPU reach each other directly.
func (p *Plan) joinsParts(host int) bool {
	if p.Backend != "nccl" {
		return false
	}
	verdict, _, _ := p.OnDevices(host, Meeting{})
	return verdict == nccl.Works
}

func wayOf(l gpu.Link) int {
	if l == NetworkLink {
		return len(ways)
	}
	return distance(l)
}

// mostWarnings is how many groups are told of one by one.
const mostWarnings = 8

// checkGroups tells of groups that are not on fast links.
func (p *Plan) checkGroups() []Problem {
	var slow []Problem
	for _, g := range p.job.Placement.Groups {
		if rest := p.WorldSize % g.Size; rest != 0 {
			slow = append(slow, Problem{Code: "group_size", Message: fmt.Sprintf("%s: %s = %d: %s cannot be parted into groups of %d: the last one has %d",
				g.Range, g.Name, g.Size, plural.Of(p.WorldSize, "rank"), g.Size, rest)})
		}
	}
	left := 0
	for _, g := range p.Groups {
		switch {
		case g.Fast():
		case len(slow) < mostWarnings:
			slow = append(slow, Problem{Code: "slow_group", Host: p.hostOf(g), Message: p.slowWords(g)})
		default:
			left++
		}
	}
	if left > 0 {
		slow = append(slow, Problem{Code: "slow_group", Message: fmt.Sprintf("slow links have %s too", plural.Of(left, "more group"))})
	}
	return slow
}

// hostOf is the host that holds all of a group; "" where several do.
func (p *Plan) hostOf(g Group) string {
	if g.Link == NetworkLink {
		return ""
	}
	return p.Hosts[p.Ranks[g.First].Host].Name
}

func (p *Plan) slowWords(g Group) string {
	a, b := p.Ranks[g.Pair[0]], p.Ranks[g.Pair[1]]
	who := fmt.Sprintf("%s group of ranks %d-%d", g.Name, g.First, g.First+g.Size-1)
	switch {
	case g.Link == NetworkLink:
		return fmt.Sprintf("the %s is spread over hosts: rank %d on %s and rank %d on %s reach each other by network only",
			who, a.Rank, p.Hosts[a.Host].Name, b.Rank, p.Hosts[b.Host].Name)
	case a.Device == nil || b.Device == nil:
		return fmt.Sprintf("the %s has no GPUs to lie on fast links with", who)
	case g.Link == "":
		return fmt.Sprintf("%s: the %s: how %s and %s are joined is not known", p.Hosts[a.Host].Name, who, a.Device, b.Device)
	}
	return fmt.Sprintf("%s: the %s is not on fast links: rank %d's %s and rank %d's %s are joined by %s (%s), not NVLink",
		p.Hosts[a.Host].Name, who, a.Rank, a.Device, b.Rank, b.Device, g.Link, linkWords[g.Link])
}

// linkWords are the ways by PCIe in words, after nvidia-smi topo's own legend.
var linkWords = map[gpu.Link]string{
	"PIX":  "one PCIe bridge",
	"PXB":  "several PCIe bridges",
	"PHB":  "the CPU's PCIe host bridge",
	"NODE": "between host bridges of one NUMA node",
	"SYS":  "between CPU sockets",
}
