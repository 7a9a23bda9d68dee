package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster/plugins/gpu"
)

// rocm looks at AMD GPUs.
type rocm struct {
	sysfs folder
}

var _ gpu.Prober = rocm{}

// Probe reads everything once.
func (r rocm) Probe(ctx context.Context) (*gpu.Inventory, error) {
	kfd := r.sysfs.in("class", "kfd", "kfd")
	if !kfd.in("topology").exists() {
		return nil, errors.New("the compute driver of AMD's GPUs is not loaded: modprobe amdgpu, and see whether it was built with HSA_AMD")
	}
	nodes := kfdGPUs(kfd.in("topology"))
	cards := cardsByPCI(r.sysfs.in("class", "drm"))
	found := &gpu.Inventory{
		Source: "rocm", GPUs: []gpu.GPU{},
		// HIP takes indices only.
		Visibility: gpu.Visibility{Variable: "HIP_VISIBLE_DEVICES", Names: "index"},
		Why:        map[string]string{"cuda": "AMD's GPUs have none"},
	}
	if version := r.sysfs.in("module", "amdgpu").text("version"); version != "" {
		found.Driver = &version
	} else {
		found.Why["driver"] = "the amdgpu driver that comes with the kernel has no version of its own"
	}
	if err := checkNodes(nodes); err != nil {
		return nil, err
	}
	found.Links = ways(nodes, cards)
	for i, n := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found.GPUs = append(found.GPUs, card(i, n, cards, kfd.in("proc")))
		delete(cards, n.pci)
	}
	for _, pci := range slices.Sorted(maps.Keys(cards)) {
		found.Notes = append(found.Notes, fmt.Sprintf("the AMD device %s is not for computing: HIP does not count it", pci))
	}
	return found, nil
}

// checkNodes refuses GPUs in parts (the modes DPX, QPX and CPX of MI300): what the cards
// say is about the whole, and this is an example.
func checkNodes(nodes []node) error {
	seen := map[string]bool{}
	for _, n := range nodes {
		if n.partition || seen[n.pci] {
			return fmt.Errorf("the GPU %s is partitioned, which this plugin does not know: set it to SPX mode", n.pci)
		}
		seen[n.pci] = true
	}
	return nil
}

// gpu puts together what both parts of the driver say of a GPU.
func card(index int, n node, cards map[string]folder, proc folder) gpu.GPU {
	g := gpu.GPU{Index: index, PCI: n.pci, Name: "AMD " + n.gfx, State: gpu.StateUnknown}
	if card, is := cards[n.pci]; is {
		readCard(&g, card)
	} else {
		explain(&g, "memory.total", "its card is not in /sys/class/drm: a container may hide it")
	}
	if proc.exists() {
		g.Processes = processesOf(proc, n.id)
	} else {
		explain(&g, "processes", "this kernel does not list them")
	}
	g.Explain("this plugin does not read it")
	return g
}

// ways tells how GPUs are joined. XGMI, AMD's fast link, is written as one NVLink: "NV"
// means a fast link of any maker, and how many XGMI links a pair has sysfs does not say.
// PCI Express is told by NUMA node only.
func ways(nodes []node, cards map[string]folder) [][]gpu.Link {
	links := make([][]gpu.Link, len(nodes))
	for i, a := range nodes {
		links[i] = make([]gpu.Link, len(nodes))
		for j, b := range nodes {
			links[i][j] = way(a, b, cards)
		}
	}
	return links
}

func way(a, b node, cards map[string]folder) gpu.Link {
	switch from, to := numaOf(a, cards), numaOf(b, cards); {
	case a.number == b.number:
		return "X"
	case a.directXGMI[b.number] && b.directXGMI[a.number]:
		return "NV1"
	case from == "" || to == "" || from == "-1" || to == "-1":
		return ""
	case from == to:
		return "NODE"
	default:
		return "SYS"
	}
}

// numaOf is the NUMA node of a GPU, "-1" where the firmware does not tell and "" where
// the card is not shown.
func numaOf(n node, cards map[string]folder) string {
	card, is := cards[n.pci]
	if !is {
		return ""
	}
	return card.text("numa_node")
}
