package pci

import (
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
	"github.com/muster-dev/muster/plugins/gpu"
)

func TestWaysBetweenSlots(t *testing.T) {
	at := func(node int, complex string, bridges ...string) Slot { return Slot{complex, bridges, &node} }
	for _, test := range []struct {
		name string
		a, b Slot
		want gpu.Link
	}{
		{"two functions of a card", at(0, "pci0", "a", "b.0"), at(0, "pci0", "a", "b.1"), "PIX"},
		{"two ports of a switch", at(0, "pci0", "a", "up", "d1", "x"), at(0, "pci0", "a", "up", "d2", "y"), "PIX"},
		{"a switch below a switch", at(0, "pci0", "a", "up", "d1", "up2", "d3", "x"), at(0, "pci0", "a", "up", "d2", "y"), "PXB"},
		{"two root ports", at(0, "pci0", "a", "x"), at(0, "pci0", "b", "y"), "PHB"},
		{"a virtual machine's flat bus", at(0, "pci0", "x"), at(0, "pci0", "y"), "PHB"},
		{"two complexes of a node", at(0, "pci0", "a", "x"), at(0, "pci1", "a", "x"), "NODE"},
		{"two nodes", at(0, "pci0", "a", "x"), at(1, "pci1", "a", "x"), "SYS"},
		{"one slot unknown", at(0, "pci0", "a", "x"), Slot{}, "SYS"},
	} {
		if got := Way(test.a, test.b); got != test.want || Way(test.b, test.a) != got {
			t.Errorf("%s: %s", test.name, got)
		}
	}
}

// A virtio interface's device is a child of the PCI device.
func TestASlotIsFoundBehindVirtio(t *testing.T) {
	root := hostfstest.Tree(t, map[string]string{
		"sys/bus/pci/devices/0000:00:05.0":                            "-> ../../../devices/pci0000:00/0000:00:05.0",
		"sys/devices/pci0000:00/0000:00:05.0/numa_node":               "1\n",
		"sys/class/net/eth0":                                          "-> ../../devices/pci0000:00/0000:00:05.0/virtio2/net/eth0",
		"sys/devices/pci0000:00/0000:00:05.0/virtio2/net/eth0/device": "-> ../../../virtio2",
	})
	address := Behind(root, "/sys/class/net/eth0")
	if slot := SlotOf(root, address); address != "0000:00:05.0" || slot.NUMA == nil || *slot.NUMA != 1 || slot.Complex != "pci0000:00" {
		t.Errorf("%q: %+v", address, slot)
	}
	if address := Behind(root, "/sys/class/net/lo"); address != "" {
		t.Errorf("lo at %q", address)
	}
}
