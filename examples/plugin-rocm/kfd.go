package main

import (
	"fmt"
	"strconv"

	"github.com/muster-dev/muster/plugins/gpu"
)

// The topology of amdkfd, the compute part of the kernel's driver: CPUs and GPUs are
// nodes, in the order in which ROCm and HIP count devices. Sources:
// drivers/gpu/drm/amd/amdkfd/kfd_topology.c and kfd_crat.h of Linux.

// node is a GPU of the topology.
type node struct {
	number     int
	id         int // gpu_id, by which files about processes name it
	pci        string
	partition  bool // one of several of a GPU
	gfx        string
	directXGMI map[int]bool // to these nodes
}

// kfdGPUs reads the nodes that are GPUs.
func kfdGPUs(topology folder) []node {
	var found []node
	nodes := topology.in("nodes")
	for _, number := range nodes.numbered("") {
		f := nodes.in(strconv.Itoa(number))
		id, err := strconv.Atoi(f.text("gpu_id"))
		if err != nil || id == 0 { // 0 is a CPU's
			continue
		}
		p := f.properties("properties")
		found = append(found, node{
			number: number, id: id, gfx: gfxName(p["gfx_target_version"]),
			pci:        pciOf(p["domain"], p["location_id"]),
			partition:  p["location_id"]>>28 != 0,
			directXGMI: xgmiOf(f.in("io_links")),
		})
	}
	return found
}

// pciOf reads a location: the bus in bits 8 to 15, then device and function.
func pciOf(domain, location uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, location>>8&0xff, location>>3&0x1f, location&7)
}

// gfxName writes 90402 as AMD does: gfx942, and 90010 as gfx90a.
func gfxName(version uint64) string {
	if version == 0 {
		return ""
	}
	return fmt.Sprintf("gfx%d%x%x", version/10000, version/100%100, version%100)
}

const (
	typeXGMI     = 11 // CRAT_IOLINK_TYPE_XGMI; PCI Express is 2
	weightOfAHop = 15 // of XGMI
)

// xgmiOf lists the nodes to which there is an XGMI link without a GPU between.
func xgmiOf(links folder) map[int]bool {
	direct := map[int]bool{}
	for _, number := range links.numbered("") {
		p := links.in(strconv.Itoa(number)).properties("properties")
		if p["type"] == typeXGMI && p["weight"] <= weightOfAHop {
			direct[int(p["node_to"])] = true
		}
	}
	return direct
}

// processesOf lists who has memory on a GPU. Whose files are not there to read (another
// user's) is not told of.
func processesOf(proc folder, card int) []gpu.Process {
	found := []gpu.Process{}
	for _, pid := range proc.numbered("") {
		used, err := proc.in(strconv.Itoa(pid)).number(fmt.Sprintf("vram_%d", card))
		if err == nil && *used > 0 {
			found = append(found, gpu.Process{PID: pid, Kind: "compute", Memory: used})
		}
	}
	return found
}
