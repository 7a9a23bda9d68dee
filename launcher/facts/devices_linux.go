package facts

import (
	"context"

	"github.com/muster-dev/muster/plugins"
)

// LookAtDevices asks a prober for the GPUs, and sysfs for where they sit and what is near
// them: by the PCI address, never by the index, which says nothing of sockets.
func LookAtDevices(ctx context.Context, root Root, prober plugins.GPUProber, allowed []int) *Devices {
	onBus := CountNVIDIA(root)
	found, err := prober.Probe(ctx)
	if err != nil {
		return &Devices{PCIDevices: onBus, None: err.Error()}
	}
	d := &Devices{GPUs: found, Islands: plugins.Islands(found.Links), PCIDevices: onBus, Owners: Owners(root, found.GPUs)}
	adapters, set := hcas(root), setOf(allowed)
	for _, gpu := range found.GPUs {
		d.Near = append(d.Near, near(root, gpu.PCI, set, adapters))
	}
	return d
}

// near reads the files numa_node and local_cpulist of a PCI device (sysfs-bus-pci), and
// looks for the network that is nearest.
func near(root Root, pci string, allowed map[int]bool, adapters []HCA) Near {
	dir := "/sys/bus/pci/devices/" + pci
	if pci == "" || !root.Exists(dir) {
		return Near{}
	}
	n := Near{NUMA: numaNode(root, dir)}
	if list := within(allowed, cpuList(root.Read(dir+"/local_cpulist"))); len(list) > 0 {
		n.CPUs = list
	}
	n.HCAs, n.HCALink = nearest(root, slotOf(root, pci), adapters)
	return n
}
