package gpus

import (
	"fmt"

	"github.com/muster-dev/muster/plugins/gpu"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// product is what all GPUs of one kind share.
type product struct {
	name, device, class      string
	architecture, capability string
	memory, reserved         uint64 // MiB
	speed                    int
	gen                      int
	mig, ecc                 bool
	remaps                   bool // rows are remapped (Ampere and newer), not pages retired
	idle                     uint64
	portSpeed                int // MB/s
	fabric                   bool
}

// Memory sizes are those that drivers 535 to 590 show (fb_memory_usage of public captures),
// device ids those of https://pci-ids.ucw.cz/read/PC/10de, speeds those of the data sheets.
var (
	a100  = product{"NVIDIA A100-SXM4-80GB", "0x20b2", threeD, "Ampere", "8.0", 81920, 631, 19490, 4, true, true, true, 0, 25000, false}
	a800  = product{"NVIDIA A800-SXM4-80GB", "0x20f3", threeD, "Ampere", "8.0", 81920, 631, 19490, 4, true, true, true, 0, 25000, false}
	h100  = product{"NVIDIA H100 80GB HBM3", "0x2330", threeD, "Hopper", "9.0", 81559, 479, 66910, 5, true, true, true, 0, 26562, true}
	h200  = product{"NVIDIA H200", "0x2335", threeD, "Hopper", "9.0", 143771, 615, 66910, 5, true, true, true, 0, 26562, true}
	p100  = product{"Tesla P100-SXM2-16GB", "0x15f9", threeD, "Pascal", "6.0", 16384, 103, 10610, 3, false, true, false, 0, 0, false}
	v100  = product{"Tesla V100-SXM2-32GB", "0x1db5", threeD, "Volta", "7.0", 32768, 264, 15670, 3, false, true, false, 0, 25781, false}
	a40   = product{"NVIDIA A40", "0x2235", threeD, "Ampere", "8.6", 46068, 430, 37420, 4, false, true, true, 0, 14062, false}
	a6000 = product{"NVIDIA RTX A6000", "0x2230", vga, "Ampere", "8.6", 49140, 451, 38710, 4, false, false, true, 1, 14062, false}
	l40s  = product{"NVIDIA L40S", "0x26b9", threeD, "Ada Lovelace", "8.9", 46068, 502, 91610, 4, false, true, true, 0, 0, false}
	t400  = product{"NVIDIA T400 4GB", "0x1ff2", vga, "Turing", "7.5", 4096, 176, 1094, 3, false, false, false, 2, 0, false}
	r3090 = product{"NVIDIA GeForce RTX 3090", "0x2204", vga, "Ampere", "8.6", 24576, 318, 35580, 4, false, false, false, 1, 14062, false}
)

// PCI classes: https://pci-ids.ucw.cz/read/PD/03
const (
	threeD = "0x030200"
	vga    = "0x030000"
)

// gpu makes a GPU of the product, idle and in good order. Its UUID is made of its place,
// so that it is the same whenever the scenario is made.
func (p product) card(pci string, slot Slot, serial int) GPU {
	slot.Vendor, slot.Device, slot.Class = "0x10de", p.device, p.class
	g := GPU{
		Slot: slot, Serial: fmt.Sprintf("16524210%05d", serial), VBIOS: "92.00.45.00.03", Architecture: p.architecture,
		Capability: p.capability, Speed: p.speed, Unexplained: p.idle * mib, PortSpeed: p.portSpeed,
	}
	g.UUID, g.PCI, g.Name, g.State = uuid("GPU", pci, serial), pci, p.name, gpu.StateOK
	// Idle cards lower the generation; those of data centres with persistence mode do not.
	g.PCIe = gpu.PCIe{Generation: new(p.gen), GenerationMax: new(p.gen), Width: new(16), WidthMax: new(16)}
	g.Memory = gpu.Memory{Total: new(p.memory * mib), Reserved: new(p.reserved * mib)}
	g.ComputeMode, g.Persistence = new("default"), new(p.class == threeD)
	g.Processes, g.Throttled, g.Recovery = []gpu.Process{}, []string{}, new("none")
	g.MIG.Instances = []gpu.MIGInstance{}
	if p.mig {
		g.MIG.Enabled, g.MIG.Pending = new(false), new(false)
	}
	if p.fabric {
		g.Fabric = new("completed")
	}
	p.health(&g)
	return g
}

// health sets the counters that the product has to nothing.
func (p product) health(g *GPU) {
	if p.ecc {
		g.ECC = gpu.ECC{Enabled: new(true), Volatile: new(uint64(0)), Aggregate: new(uint64(0))}
		if p.remaps {
			g.ECC.SRAMVolatile = new(uint64(0))
		}
	}
	switch {
	case p.remaps:
		g.Remapped = gpu.Remapped{Correctable: new(0), Uncorrectable: new(0), Pending: new(false), Failed: new(false)}
	case p.ecc:
		g.Retired = gpu.Retired{SingleBit: new(0), DoubleBit: new(0), Pending: new(false)}
	}
}

// uuid makes a UUID out of a place and a number; NVML writes it with dashes as 8-4-4-4-12.
func uuid(kind, pci string, n int) string {
	var domain, bus, device, function uint32
	fmt.Sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function)
	mixed := (uint64(n+1)*0x9e3779b97f4a7c15 ^ uint64(bus)*0xc2b2ae3d27d4eb4f) * 0xff51afd7ed558ccd
	other := (mixed ^ mixed>>29) * 0x94d049bb133111eb
	return fmt.Sprintf("%s-%08x-%04x-%04x-%04x-%012x", kind, uint32(mixed>>32), uint16(mixed>>16), uint16(other>>48)&0x0fff|0x4000,
		uint16(other>>32)&0x3fff|0x8000, other&0xffffffffffff^uint64(bus)<<40)
}

// behind is the way to a port of a switch below a host bridge, "0000:15".
func behind(bridge string, numa, port int) Slot {
	domain, bus := split(bridge)
	return Slot{NUMA: numa, Path: []string{
		"pci" + bridge,
		fmt.Sprintf("%04x:%02x:01.0", domain, bus),             // root port
		fmt.Sprintf("%04x:%02x:00.0", domain, bus+1),           // the switch's upper side
		fmt.Sprintf("%04x:%02x:%02x.0", domain, bus+2, port*4), // its port
	}}
}

// deeper is the way to a port of a switch that is itself below a port of a switch: two
// devices with different branches are PXB, with the same one PIX.
func deeper(bridge string, numa, branch, bus, port int) Slot {
	domain, _ := split(bridge)
	slot := behind(bridge, numa, branch)
	slot.Path = append(slot.Path, fmt.Sprintf("%04x:%02x:00.0", domain, bus), fmt.Sprintf("%04x:%02x:%02x.0", domain, bus+1, port*4))
	return slot
}

// direct is a slot at a root port of its own.
func direct(bridge string, numa, device, function int) Slot {
	return Slot{NUMA: numa, Path: []string{"pci" + bridge, fmt.Sprintf("%s:%02x.%x", bridge, device, function)}}
}

func split(bridge string) (domain, bus int) {
	fmt.Sscanf(bridge, "%x:%x", &domain, &bus)
	return domain, bus
}

// mlx is a Mellanox device; ConnectX-6 is 0x101b, ConnectX-7 0x1021.
func mlx(n int, pci, device, rate string, slot Slot) NIC {
	slot.Vendor, slot.Device, slot.Class = "0x15b3", device, "0x020700"
	return NIC{Name: fmt.Sprintf("mlx5_%d", n), PCI: pci, Slot: slot, State: "4: ACTIVE", Rate: rate, Layer: "InfiniBand",
		NetDev: fmt.Sprintf("ib%d", n), GUID: fmt.Sprintf("b8ce:f603:00%02x:0000", n)}
}

const (
	hdr  = "200 Gb/sec (4X HDR)"
	ndr  = "400 Gb/sec (4X NDR)"
	eth  = "100 Gb/sec (4X EDR)"
	cx6  = "0x101b"
	cx7  = "0x1021"
	cx5  = "0x1017"
	down = "1: DOWN"
)

// nodes makes NUMA nodes of these CPU lists.
func nodes(memory uint64, cpus ...string) []Node {
	var made []Node
	for i, list := range cpus {
		made = append(made, Node{ID: i, CPUs: list, Memory: memory})
	}
	return made
}

// bonds joins two GPUs by n NVLinks.
func (s *Scenario) bond(i, j, n int) {
	a, b := &s.GPUs[i], &s.GPUs[j]
	for range n {
		a.Ports = append(a.Ports, Port{Peer: b.PCI})
		b.Ports = append(b.Ports, Port{Peer: a.PCI})
	}
}

// bondAll joins every GPU to the NVSwitches by n links.
func (s *Scenario) bondAll(n int) {
	for i := range s.GPUs {
		for link := range n {
			s.GPUs[i].Ports = append(s.GPUs[i].Ports, Port{Peer: s.Switches[link%len(s.Switches)].PCI, Switch: true})
		}
	}
}

// nvswitches are the bridges that lspci shows: class 0x068000, "Bridge [0680]".
func nvswitches(device, bridge string, numa int, pcis ...string) []PCIDevice {
	var made []PCIDevice
	for i, pci := range pcis {
		slot := behind(bridge, numa, i)
		slot.Vendor, slot.Device, slot.Class = "0x10de", device, "0x068000"
		made = append(made, PCIDevice{PCI: pci, Slot: slot})
	}
	return made
}
