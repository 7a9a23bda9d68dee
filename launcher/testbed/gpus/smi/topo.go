package smi

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// topology is nvidia-smi topo -m: cells between tabs, the header underlined even where
// nobody looks. A GPU of another NUMA node than any has N/A behind one more tab.
func (m *machine) topology(chosen []int) {
	var header strings.Builder
	for _, i := range chosen {
		fmt.Fprintf(&header, "\tGPU%d", i)
	}
	for n := range m.NICs {
		fmt.Fprintf(&header, "\tNIC%d", n)
	}
	line := strings.TrimPrefix(header.String(), "\t")
	fmt.Fprintf(m.out, "\t\x1b[4m%s\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n", line)
	for _, i := range chosen {
		fmt.Fprintf(m.out, "GPU%d\t%s\t%s\n", i, strings.Join(m.gpuCells(i, chosen), "\t"), m.affinity(m.GPUs[i].Slot.NUMA))
	}
	for n := range m.NICs {
		fmt.Fprintf(m.out, "NIC%d\t%s\t\t\t\n", n, strings.Join(m.nicCells(n, chosen), "\t"))
	}
	fmt.Fprint(m.out, legend)
	if len(m.NICs) > 0 {
		fmt.Fprint(m.out, "NIC Legend:\n\n")
		for n, nic := range m.NICs {
			fmt.Fprintf(m.out, "  NIC%d: %s\n", n, nic.Name)
		}
		fmt.Fprintln(m.out)
	}
}

func (m *machine) gpuCells(i int, chosen []int) []string {
	var cells []string
	for _, j := range chosen {
		cells = append(cells, string(m.way(i, j)))
	}
	for _, nic := range m.NICs {
		cells = append(cells, string(gpus.Way(m.GPUs[i].Slot, nic.Slot)))
	}
	return cells
}

func (m *machine) nicCells(n int, chosen []int) []string {
	var cells []string
	for _, j := range chosen {
		cells = append(cells, string(gpus.Way(m.NICs[n].Slot, m.GPUs[j].Slot)))
	}
	for k, other := range m.NICs {
		if k == n {
			cells = append(cells, " X ")
			continue
		}
		cells = append(cells, string(gpus.Way(m.NICs[n].Slot, other.Slot)))
	}
	return cells
}

func (m *machine) way(i, j int) gpu.Link {
	switch n := m.Bonded(i, j); {
	case i == j:
		return " X "
	case n > 0:
		return gpu.Link(fmt.Sprintf("NV%d", n))
	default:
		return gpus.Way(m.GPUs[i].Slot, m.GPUs[j].Slot)
	}
}

// affinity is the CPU, NUMA and GPU NUMA columns of a row.
func (m *machine) affinity(numa int) string {
	var all []string
	for _, node := range m.Nodes {
		if node.ID == numa {
			return fmt.Sprintf("%s\t%d\t\tN/A", node.CPUs, numa)
		}
		all = append(all, node.CPUs)
	}
	return strings.Join(all, ",") + "\t\tN/A\t\tN/A"
}

const legend = `
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

`

// p2p is nvidia-smi topo -p2p r.
func (m *machine) p2p(chosen []int) {
	var header strings.Builder
	for _, i := range chosen {
		fmt.Fprintf(&header, "\tGPU%d", i)
	}
	fmt.Fprintf(m.out, " %s\n", header.String())
	for _, i := range chosen {
		fmt.Fprintf(m.out, " GPU%d", i)
		for _, j := range chosen {
			cell := "OK"
			if i == j {
				cell = "X"
			} else if m.P2P != "" && m.Bonded(i, j) == 0 {
				cell = m.P2P
			}
			fmt.Fprintf(m.out, "\t%s", cell)
		}
		fmt.Fprintln(m.out)
	}
	fmt.Fprint(m.out, "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n  GNS  = GPU not supported\n"+
		"  TNS  = Topology not supported\n  NS   = Not supported\n  U    = Unknown\n")
}
