package facts

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins"
)

// LookAtDevices asks a prober for the GPUs and sysfs for where they sit: by the PCI
// address, never by the index, which says nothing of sockets.
func LookAtDevices(ctx context.Context, root Root, prober plugins.GPUProber, allowed []int) *Devices {
	found, err := prober.Probe(ctx)
	if err != nil {
		return &Devices{None: err.Error()}
	}
	d := &Devices{GPUs: found, Islands: plugins.Islands(found.Links)}
	for _, gpu := range found.GPUs {
		d.Near = append(d.Near, near(root, gpu.PCI, allowed))
	}
	return d
}

// near reads the files numa_node and local_cpulist of a PCI device (sysfs-bus-pci).
func near(root Root, pci string, allowed []int) Near {
	dir := "/sys/bus/pci/devices/" + pci
	var n Near
	if node, err := strconv.Atoi(root.read(dir + "/numa_node")); err == nil && node >= 0 {
		n.NUMA = &node
	}
	for _, cpu := range cpuList(root.read(dir + "/local_cpulist")) {
		if slices.Contains(allowed, cpu) {
			n.CPUs = append(n.CPUs, cpu)
		}
	}
	return n
}

// maxCPU bounds what a list may name: the kernel's own limit (NR_CPUS) is 8192.
const maxCPU = 8192

// cpuList reads the kernel's list format, such as 0-3,8.
func cpuList(text string) []int {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(strings.TrimSpace(first))
		to, err2 := strconv.Atoi(strings.TrimSpace(last))
		if err1 != nil || err2 != nil || from < 0 || to >= maxCPU {
			continue
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
