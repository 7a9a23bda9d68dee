// Package nvidia tells from files alone what a host has of NVIDIA's: cards and switches on
// the PCI bus, the driver that is loaded, the fabric manager. It starts nothing and loads no
// library, so that it can be asked at every start; what the GPUs themselves tell comes from
// plugins.
package nvidia

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/facts/pci"
	"github.com/muster-dev/muster/launcher/hostfs"
)

// Bus are NVIDIA's devices on the PCI bus of a host; nothing where there is no sysfs.
type Bus struct {
	gpus     []string // the driver of each, "" for none
	switches []string
}

// Classes of PCI devices, the beginnings of what the file class says.
var (
	gpuClasses  = []string{"0x0300", "0x0302"} // display and 3D controllers
	switchClass = "0x0680"                     // "other bridges"
)

// OnBus reads the bus. Parts of a GPU (SR-IOV) are none.
func OnBus(root hostfs.Root) Bus {
	var b Bus
	for _, address := range root.Names(pci.Bus) {
		dir := pci.Bus + address
		if root.Read(dir+"/vendor") != "0x10de" {
			continue
		}
		class := root.Read(dir + "/class")
		switch {
		case strings.HasPrefix(class, switchClass):
			b.switches = append(b.switches, root.BaseName(dir+"/driver"))
		case slices.ContainsFunc(gpuClasses, func(c string) bool { return strings.HasPrefix(class, c) }) && !root.Exists(dir+"/physfn"):
			b.gpus = append(b.gpus, root.BaseName(dir+"/driver"))
		}
	}
	return b
}

// GPUs counts those that are not handed to a virtual machine, whether or not a driver has
// them.
func (b Bus) GPUs() int { return notHandedOver(b.gpus) }

// NVSwitches counts those that are not handed to a virtual machine.
func (b Bus) NVSwitches() int { return notHandedOver(b.switches) }

func notHandedOver(drivers []string) int {
	n := 0
	for _, driver := range drivers {
		if driver != "vfio-pci" {
			n++
		}
	}
	return n
}

// words tell of the GPUs, with the drivers that are not NVIDIA's own.
func (b Bus) words() string {
	words := "1 NVIDIA device on the PCI bus"
	if len(b.gpus) > 1 {
		words = fmt.Sprintf("%d NVIDIA devices on the PCI bus", len(b.gpus))
	}
	others := map[string]int{}
	for _, driver := range b.gpus {
		if driver != "nvidia" {
			others[driver]++
		}
	}
	var parts []string
	for driver, n := range others {
		part := "no driver has"
		if driver != "" {
			part = driver + " has"
		}
		which := fmt.Sprint(n)
		if n == len(b.gpus) {
			which = "them"
			if n == 1 {
				which = "it"
			}
		}
		parts = append(parts, part+" "+which)
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return words
	}
	return words + " (" + strings.Join(parts, ", ") + ")"
}
