package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
)

// bind gives each rank of a host physical cores of its device's NUMA node, as far as
// processes may run there. Ranks of one node share its cores out; where there are fewer
// cores than ranks, each may use all of them. A rank is never bound to nothing.
func (p *Plan) bind(host int) {
	if p.job.Placement.Bind == "none" {
		return
	}
	h, f := p.Hosts[host], p.facts[host]
	byNode := map[int][]int{}
	for rank := h.FirstRank; rank < h.FirstRank+h.Ranks; rank++ {
		d := p.Ranks[rank].Device
		if d == nil || d.card >= len(f.Devices.Near) || f.Devices.Near[d.card].NUMA == nil {
			continue // nobody tells where it sits
		}
		node := *f.Devices.Near[d.card].NUMA
		byNode[node] = append(byNode[node], rank)
	}
	for _, node := range sortedKeys(byNode) {
		ranks := byNode[node]
		cores := coresOf(f, p.cpusOf(f, node, ranks))
		if len(cores) == 0 {
			p.warnUnbound(h.Name, node, ranks, f)
			continue
		}
		p.shareOut(ranks, cores, node)
	}
}

// cpusOf are the allowed CPUs of a NUMA node: as the slot of a rank's device tells them, else
// as the kernel's table of nodes does.
func (p *Plan) cpusOf(f facts.Host, node int, ranks []int) []int {
	for _, rank := range ranks {
		if cpus := f.Devices.Near[p.Ranks[rank].Device.card].CPUs; len(cpus) > 0 {
			return cpus
		}
	}
	for _, n := range f.Nodes {
		if n.ID == node {
			return n.CPUs
		}
	}
	return nil
}

func sortedKeys(m map[int][]int) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
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

func (p *Plan) shareOut(ranks []int, cores [][]int, node int) {
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

func (p *Plan) warnUnbound(host string, node int, ranks []int, f facts.Host) {
	who := "rank " + Spans(ranks)
	if len(ranks) > 1 {
		who = "ranks " + Spans(ranks)
	}
	why := fmt.Sprintf("of which no CPU is allowed there (CPUs %s are): they run on any of these, far from their GPUs", Spans(f.CPUs.Allowed))
	if len(f.CPUs.Allowed) == 0 {
		why = "and which CPUs are allowed there is not known: they are not bound"
	}
	p.Warnings = append(p.Warnings, Problem{Code: "not_bound", Host: host, Message: fmt.Sprintf(
		"%s: the GPUs of %s sit on NUMA node %d, %s", host, who, node, why)})
}

// Spans writes numbers in ascending order as the kernel writes lists of CPUs: 0-3,8.
func Spans(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, numbers[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", numbers[j])
		}
		i = j + 1
	}
	return b.String()
}
