package facts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins"
)

// slot is where a device sits: the part of its sysfs path below /sys/devices, such as
// pci0000:0c/0000:0c:01.0/0000:0d:00.0/0000:0e:00.0/0000:0f:00.0, in which each name is
// a bridge of the way and the first the root complex (sysfs-bus-pci).
type slot struct {
	complex string   // "pci0000:0c"
	bridges []string // from the root port down, and the device itself
	numa    *int
}

// slotOf follows the link that the bus has for each device.
func slotOf(root Root, pci string) slot {
	link := "/sys/bus/pci/devices/" + pci
	s := slot{numa: numaNode(root, link)}
	for _, name := range strings.Split(root.Resolve(link), "/") {
		switch {
		case isComplex(name):
			s.complex, s.bridges = name, nil // the last: VMs put one below another bus
		case isPCI(name) && s.complex != "":
			s.bridges = append(s.bridges, name)
		}
	}
	return s
}

// isComplex tells a root complex, pciDDDD:BB.
func isComplex(name string) bool {
	address, is := strings.CutPrefix(name, "pci")
	return is && isPCI(address+":00.0")
}

func isPCI(name string) bool {
	address, ok := plugins.SysfsPCI(name)
	return ok && address == name
}

// numaNode reads numa_node of a device, which is -1 where nobody tells.
func numaNode(root Root, device string) *int {
	node, err := strconv.Atoi(root.Read(device + "/numa_node"))
	if err != nil || node < 0 {
		return nil
	}
	return &node
}

// pciOf finds the PCI device that a class device (of net, infiniband) stands on: the last
// address in what its link "device" leads to, which for virtio is a child of that.
func pciOf(root Root, class string) string {
	if !root.Exists(class + "/device") {
		return ""
	}
	names := strings.Split(root.Resolve(class+"/device"), "/")
	for _, name := range slices.Backward(names) {
		if isPCI(name) {
			return name
		}
	}
	return ""
}

// distances are the ways by PCI from the nearest on, by nvidia-smi's definitions.
var distances = []plugins.Link{"PIX", "PXB", "PHB", "NODE", "SYS"}

// way tells how two devices reach each other. Below the last bridge of the common way,
// which is the upstream port of a switch, each has at most a downstream port and itself
// where the switch is the only one between them.
func way(a, b slot) plugins.Link {
	const belowOneSwitch = 2
	common := 0
	for common < min(len(a.bridges), len(b.bridges)) && a.bridges[common] == b.bridges[common] {
		common++
	}
	switch {
	case a.complex == "" || b.complex == "":
		return byNode(a, b)
	case a.complex == b.complex && common > 0 && max(len(a.bridges), len(b.bridges))-common <= belowOneSwitch:
		return "PIX"
	case a.complex == b.complex && common > 0:
		return "PXB"
	case a.complex == b.complex:
		return "PHB"
	}
	return byNode(a, b)
}

func byNode(a, b slot) plugins.Link {
	if a.numa != nil && b.numa != nil && *a.numa == *b.numa {
		return "NODE"
	}
	return "SYS"
}

// nearest are the names of the active devices that are nearest to a GPU, each once, and
// the way to them.
func nearest(root Root, gpu slot, devices []HCA) (names []string, link plugins.Link) {
	best := len(distances)
	for _, d := range devices {
		if d.State != "active" || d.PCI == "" {
			continue
		}
		at := slices.Index(distances, way(gpu, slotOf(root, d.PCI)))
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
	return names, distances[best]
}
