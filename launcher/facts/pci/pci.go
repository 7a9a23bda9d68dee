// Package pci tells where the devices of a host sit on its PCI bus, and by what way they
// reach each other. It reads sysfs and knows nothing of what the devices are for.
package pci

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Bus has a link for each device, named by its address.
const Bus = "/sys/bus/pci/devices/"

// Slot is where a device sits: the part of its sysfs path below /sys/devices, such as
// pci0000:0c/0000:0c:01.0/0000:0d:00.0/0000:0e:00.0/0000:0f:00.0, in which each name is
// a bridge of the way and the first the root complex (sysfs-bus-pci).
type Slot struct {
	Complex string   // "pci0000:0c"
	Bridges []string // from the root port down, and the device itself
	NUMA    *int
}

// SlotOf follows the link that the bus has for each device.
func SlotOf(root hostfs.Root, address string) Slot {
	link := Bus + address
	s := Slot{NUMA: NUMA(root, link)}
	for _, name := range strings.Split(root.Resolve(link), "/") {
		switch {
		case isComplex(name):
			s.Complex, s.Bridges = name, nil // the last: VMs put one below another bus
		case isAddress(name) && s.Complex != "":
			s.Bridges = append(s.Bridges, name)
		}
	}
	return s
}

// isComplex tells a root complex, pciDDDD:BB.
func isComplex(name string) bool {
	address, is := strings.CutPrefix(name, "pci")
	return is && isAddress(address+":00.0")
}

func isAddress(name string) bool {
	address, ok := gpu.SysfsPCI(name)
	return ok && address == name
}

// NUMA reads numa_node of a device's folder, which is -1 where nobody tells.
func NUMA(root hostfs.Root, device string) *int {
	node, err := strconv.Atoi(root.Read(device + "/numa_node"))
	if err != nil || node < 0 {
		return nil
	}
	return &node
}

// Behind finds the PCI device that a class device (of net, infiniband) stands on: the last
// address in what its link "device" leads to, which for virtio is a child of that.
func Behind(root hostfs.Root, class string) string {
	if !root.Exists(class + "/device") {
		return ""
	}
	names := strings.Split(root.Resolve(class+"/device"), "/")
	for _, name := range slices.Backward(names) {
		if isAddress(name) {
			return name
		}
	}
	return ""
}

// Ways are the ways by PCI from the nearest on, by nvidia-smi's definitions.
var Ways = []gpu.Link{"PIX", "PXB", "PHB", "NODE", "SYS"}

// Way tells how two devices reach each other. Below the last bridge of the common way,
// which is the upstream port of a switch, each has at most a downstream port and itself
// where the switch is the only one between them.
func Way(a, b Slot) gpu.Link {
	const belowOneSwitch = 2
	common := 0
	for common < min(len(a.Bridges), len(b.Bridges)) && a.Bridges[common] == b.Bridges[common] {
		common++
	}
	switch {
	case a.Complex == "" || b.Complex == "":
		return byNode(a, b)
	case a.Complex == b.Complex && common > 0 && max(len(a.Bridges), len(b.Bridges))-common <= belowOneSwitch:
		return "PIX"
	case a.Complex == b.Complex && common > 0:
		return "PXB"
	case a.Complex == b.Complex:
		return "PHB"
	}
	return byNode(a, b)
}

func byNode(a, b Slot) gpu.Link {
	if a.NUMA != nil && b.NUMA != nil && *a.NUMA == *b.NUMA {
		return "NODE"
	}
	return "SYS"
}
