//go:build linux

package facts

import (
	"context"
	"slices"

	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/launcher/facts/pci"
	"github.com/muster-dev/muster/launcher/kernellog"
	"github.com/muster-dev/muster/plugins/gpu"
)

// HasNVIDIA says what tells of NVIDIA on this host: see nvidia.Sign.
func HasNVIDIA(root Root) (sign string, hardware bool) { return nvidia.Sign(root) }

// LookAtDevices asks a prober for the GPUs, and sysfs for where they sit and what is near
// them: by the PCI address, never by the index, which says nothing of sockets.
func LookAtDevices(ctx context.Context, root Root, prober gpu.Prober, allowed []int) *Devices {
	bus := nvidia.OnBus(root)
	d := &Devices{PCIDevices: bus.GPUs(), NVSwitches: bus.NVSwitches(), KernelModule: nvidia.ModuleVersion(root)}
	if d.NVSwitches > 0 {
		d.FabricManager = nvidia.FindFabricManager(root, ownPIDs(root))
	}
	found, err := prober.Probe(ctx)
	if err != nil {
		d.None = err.Error()
		return d
	}
	d.readXids(string(root) + kernellog.Path)
	d.Inventory, d.Islands, d.Owners = found, gpu.Islands(found.Links), Owners(root, found.GPUs)
	adapters, set := hcas(root), setOf(allowed)
	for _, card := range found.GPUs {
		d.Near = append(d.Near, near(root, card.PCI, set, adapters))
	}
	return d
}

// readXids looks through the kernel's log.
func (d *Devices) readXids(path string) {
	log, err := kernellog.Open(path, false)
	if err != nil {
		d.NoXids = err.Error()
		return
	}
	defer log.Close()
	log.Each(d.Xids.Take)
}

// near reads the files numa_node and local_cpulist of a PCI device (sysfs-bus-pci), and
// looks for the network that is nearest.
func near(root Root, address string, allowed map[int]bool, adapters []HCA) Near {
	dir := pci.Bus + address
	if address == "" || !root.Exists(dir) {
		return Near{}
	}
	n := Near{NUMA: pci.NUMA(root, dir)}
	if list := within(allowed, cpuList(root.Read(dir+"/local_cpulist"))); len(list) > 0 {
		n.CPUs = list
	}
	n.HCAs, n.HCALink = nearest(root, pci.SlotOf(root, address), adapters)
	return n
}

// nearest are the names of the active devices that are nearest to a GPU, each once, and
// the way to them.
func nearest(root Root, card pci.Slot, devices []HCA) (names []string, link gpu.Link) {
	best := len(pci.Ways)
	for _, d := range devices {
		if d.State != "active" || d.PCI == "" {
			continue
		}
		at := slices.Index(pci.Ways, pci.Way(card, pci.SlotOf(root, d.PCI)))
		if at < best {
			names, best = nil, at
		}
		if at == best && !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	if names == nil {
		return nil, ""
	}
	return names, pci.Ways[best]
}
