package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// near is what is close to a rank's device; nil where it has none or that is not known.
func near(p *Plan, r Rank) *facts.Near {
	if r.Device == nil || r.Device.Card >= len(p.Facts[r.Host].Devices.Near) {
		return nil
	}
	return &p.Facts[r.Host].Devices.Near[r.Device.Card]
}

// bind gives each rank of a host physical cores of its device's NUMA node, as far as processes may run there. Ranks
// of one node share its cores out; where there are fewer cores than ranks, each may use all of them. A rank is never
// bound to nothing.
func bind(p *Plan, host int) {
	if p.Config.Placement.Bind == "none" {
		return
	}
	byNode := map[int][]int{}
	for _, r := range p.RanksOf(host) {
		if n := near(p, r); n != nil && n.NUMA != nil {
			byNode[*n.NUMA] = append(byNode[*n.NUMA], r.Rank)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		ranks, f := byNode[node], p.Facts[host]
		cores := coresOf(f, cpusOf(p, host, node, ranks))
		if len(cores) == 0 {
			p.Warnings = append(p.Warnings, unbound(p.Hosts[host].Name, node, ranks, f))
			continue
		}
		shareOut(p, ranks, cores, node)
	}
}

// cpusOf are the allowed CPUs of a NUMA node: as the slot of a rank's device has them, else as the kernel's table of
// nodes does.
func cpusOf(p *Plan, host, node int, ranks []int) []int {
	for _, rank := range ranks {
		if cpus := near(p, p.Ranks[rank]).CPUs; len(cpus) > 0 {
			return cpus
		}
	}
	for _, n := range p.Facts[host].Nodes {
		if n.ID == node {
			return n.CPUs
		}
	}
	return nil
}

// coresOf are the cores that allowed CPUs of a node make up.
func coresOf(f facts.Host, near []int) [][]int {
	var cores [][]int
	for _, core := range f.CPUs.Cores {
		var cpus []int
		for _, cpu := range core {
			if slices.Contains(near, cpu) && slices.Contains(f.CPUs.Allowed, cpu) {
				cpus = append(cpus, cpu)
			}
		}
		if len(cpus) > 0 {
			cores = append(cores, cpus)
		}
	}
	return cores
}

func shareOut(p *Plan, ranks []int, cores [][]int, node int) {
	for i, rank := range ranks {
		mine := cores
		if len(cores) >= len(ranks) {
			mine = cores[i*len(cores)/len(ranks) : (i+1)*len(cores)/len(ranks)]
		}
		r := &p.Ranks[rank]
		r.CPUs, r.cores = slices.Concat(mine...), len(mine)
		slices.Sort(r.CPUs)
		r.Node = &node
	}
}

func unbound(host string, node int, ranks []int, f facts.Host) Problem {
	why := fmt.Sprintf("of which no CPU is allowed there (CPUs %s are): they run on any of these, far from their GPUs",
		text.Ranges(f.CPUs.Allowed))
	if len(f.CPUs.Allowed) == 0 {
		why = "and which CPUs are allowed there is not known: they are not bound"
	}
	return Problem{Code: "not_bound", Host: host, Message: fmt.Sprintf(
		"%s: the GPUs of %s sit on NUMA node %d, %s", host, text.Numbered("rank", ranks), node, why)}
}

// nameNICs says through which device each rank's data leaves the host: NCCL chooses by itself, by the same nearness.
func nameNICs(p *Plan, host int) {
	if len(p.Hosts) == 1 {
		return
	}
	used := map[string]int{}
	for i, r := range p.RanksOf(host) {
		nic := mainInterface(p.Facts[host])
		if n := near(p, r); n != nil && len(n.HCAs) > 0 {
			nic = slices.MinFunc(n.HCAs, func(a, b string) int { return used[a] - used[b] })
			used[nic]++
		}
		p.Ranks[p.Hosts[host].FirstRank+i].NIC = nic
	}
}
