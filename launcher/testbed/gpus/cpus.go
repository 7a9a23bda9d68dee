package gpus

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// OnCPUs gives the NUMA nodes the CPUs of this list instead of their own, in equal shares:
// those nodes first that have GPUs. A real machine has hundreds of CPUs, and processes of a
// testbed host can be bound only to those that are there.
func (s *Scenario) OnCPUs(cpus []int) *Scenario {
	with := map[int]bool{}
	for _, g := range s.GPUs {
		with[g.Slot.NUMA] = true
	}
	order := make([]*Node, 0, len(s.Nodes))
	for i := range s.Nodes {
		s.Nodes[i].CPUs = ""
		order = append(order, &s.Nodes[i])
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(order, func(a, b *Node) int { return cmp.Compare(rank[with[a.ID]], rank[with[b.ID]]) })
	shares := make([][]string, len(order))
	for i, cpu := range cpus {
		at := i * min(len(order), len(cpus)) / len(cpus)
		shares[at] = append(shares[at], strconv.Itoa(cpu))
	}
	for i, node := range order {
		node.CPUs = strings.Join(shares[i], ",")
	}
	return s
}
