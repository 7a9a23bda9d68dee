package gpus

import (
	"slices"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Way is the PCIe way between two devices, as nvidia-smi topo -m calls it in its legend:
// PIX at most a single bridge (the ports of one switch count as one), PXB several without
// the host bridge, PHB the host bridge, NODE the interconnect between host bridges of a
// NUMA node, SYS that between NUMA nodes.
func Way(a, b Slot) gpu.Link {
	common := 0
	for common < len(a.Path) && common < len(b.Path) && a.Path[common] == b.Path[common] {
		common++
	}
	switch {
	case common == 0 && a.NUMA != b.NUMA:
		return "SYS"
	case common == 0:
		return "NODE"
	case common == 1:
		return "PHB"
	case len(a.Path)-common <= 1 && len(b.Path)-common <= 1:
		return "PIX"
	default:
		return "PXB"
	}
}

func (s *Scenario) ways() [][]gpu.Link {
	ways := make([][]gpu.Link, len(s.GPUs))
	for i := range s.GPUs {
		for j := range s.GPUs {
			way := Way(s.GPUs[i].Slot, s.GPUs[j].Slot)
			if i == j {
				way = "X"
			}
			ways[i] = append(ways[i], way)
		}
	}
	return ways
}

// Bonded counts the NVLinks that join two GPUs: those between them, or where both reach
// an NVSwitch, those that the one with fewer of them has.
func (s *Scenario) Bonded(i, j int) int {
	a, b := &s.GPUs[i], &s.GPUs[j]
	if a.nvlinksHidden() || b.nvlinksHidden() {
		return 0
	}
	if direct := min(a.portsTo(b.PCI), b.portsTo(a.PCI)); direct > 0 {
		return direct
	}
	return min(a.switched(), b.switched())
}

func (g *GPU) portsTo(pci string) int {
	n := 0
	for _, port := range g.Ports {
		if port.Peer == pci && !port.Switch {
			n++
		}
	}
	return n
}

func (g *GPU) switched() int {
	n := 0
	for _, port := range g.Ports {
		if port.Peer != "" && port.Switch {
			n++
		}
	}
	return n
}

// nvlinksHidden: a GPU in MIG mode answers no question about NVLink.
func (g *GPU) nvlinksHidden() bool { return g.MIG.Enabled != nil && *g.MIG.Enabled }

// remapHidden: NVML's header says of nvmlDeviceGetRemappedRows that on MIG-enabled GPUs
// with active instances the query is not supported.
func (g *GPU) remapHidden() bool { return g.nvlinksHidden() && len(g.MIG.Instances) > 0 }

// Expect is what a prober that can tell all finds while these holdings are alive.
func (s *Scenario) Expect(held []Holding) *gpu.Inventory {
	found := &gpu.Inventory{Driver: &s.Driver, CUDA: &s.CUDA, GPUs: []gpu.GPU{}, Links: [][]gpu.Link{}}
	for i := range s.GPUs {
		card := s.GPUs[i].expect(held)
		card.Index = i
		found.GPUs = append(found.GPUs, card)
		row := []gpu.Link{}
		for j, way := range s.ways()[i] {
			if n := s.Bonded(i, j); i != j && n > 0 {
				way = nv(n)
			}
			row = append(row, way)
		}
		found.Links = append(found.Links, row)
	}
	return found
}

// Expected is what a prober that can tell all finds of the GPU while nobody but the
// processes of the scenario holds any.
func (g *GPU) Expected() gpu.GPU { return g.expect(nil) }

func (g *GPU) expect(held []Holding) gpu.GPU {
	found := g.GPU
	found.Processes = g.Holders(held)
	found.Memory.Used = new(g.Used(held))
	found.MIG.Instances = slices.Clone(g.MIG.Instances)
	for i := range found.MIG.Instances {
		found.MIG.Instances[i].Used = new(g.InstanceUsed(i, held))
	}
	if g.remapHidden() {
		found.Remapped = gpu.Remapped{}
	}
	found.NVLinks = nil
	if g.Ports != nil && !g.nvlinksHidden() {
		found.NVLinks = []gpu.NVLink{}
		for i, port := range g.Ports {
			found.NVLinks = append(found.NVLinks, gpu.NVLink{Link: i, Active: port.Peer != ""})
		}
	}
	return found
}

// Holders are the processes of the GPU: those of the scenario, and the alive ones that
// noted themselves.
func (g *GPU) Holders(held []Holding) []gpu.Process {
	found := slices.Clone(g.Processes)
	for _, h := range held {
		p := gpu.Process{PID: h.PID, Name: h.Name, Kind: h.Kind, Memory: new(h.Bytes)}
		for _, instance := range g.MIG.Instances {
			if instance.UUID == h.UUID {
				p.GI, p.CI = instance.GI, instance.CI
				found = append(found, p)
			}
		}
		if h.UUID == g.UUID {
			found = append(found, p)
		}
	}
	return found
}

// Used is the memory in use, without the reserved.
func (g *GPU) Used(held []Holding) uint64 {
	used := g.Unexplained
	for _, p := range g.Holders(held) {
		if p.Memory != nil {
			used += *p.Memory
		}
	}
	return used
}

// InstanceUsed is the memory of one MIG instance that its processes use.
func (g *GPU) InstanceUsed(i int, held []Holding) uint64 {
	used := uint64(0)
	instance := g.MIG.Instances[i]
	for _, p := range g.Holders(held) {
		if p.Memory != nil && p.GI != nil && instance.GI != nil && *p.GI == *instance.GI {
			used += *p.Memory
		}
	}
	return used
}
