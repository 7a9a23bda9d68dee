package gpus

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Entry is a file of the host: exactly one of Text, Link and Null says of what kind.
type Entry struct {
	Path string // absolute
	Text string
	Link string // target of a symbolic link
	Null bool   // a device file like /dev/null: it can be opened, and does nothing
	Mode fs.FileMode
}

// Tree lists what the machine of the scenario has below /sys/bus/pci, /sys/devices,
// /sys/class/infiniband, /proc/driver and /dev because of its GPUs. Forms are those of
// the kernel's Documentation/ABI/testing/sysfs-bus-pci, sysfs-devices-node and
// sysfs-class-infiniband, and of NVIDIA's driver.
func (s *Scenario) Tree() []Entry {
	t := &tree{s: s, seen: map[string]bool{}}
	for i := range s.GPUs {
		t.device(s.GPUs[i].PCI, s.GPUs[i].Slot, s.driver())
	}
	for _, nvswitch := range s.Switches {
		t.device(nvswitch.PCI, nvswitch.Slot, s.driver())
	}
	for n := range s.NICs {
		t.nic(n, &s.NICs[n])
	}
	t.nodes()
	if s.driver() != "" {
		t.driver()
	}
	return t.entries
}

// driver is the name of the kernel module, empty where it is not loaded.
func (s *Scenario) driver() string {
	if s.Init == InitDriverNotLoaded || s.NoLibrary {
		return ""
	}
	return "nvidia"
}

type tree struct {
	s       *Scenario
	entries []Entry
	seen    map[string]bool
}

func (t *tree) file(name, format string, args ...any) {
	t.entries = append(t.entries, Entry{Path: name, Text: fmt.Sprintf(format, args...) + "\n", Mode: 0o444})
}

func (t *tree) link(name, target string) {
	t.entries = append(t.entries, Entry{Path: name, Link: target})
}

// folder is where a device is below /sys/devices.
func folder(pci string, slot Slot) string {
	return path.Join("/sys/devices", path.Join(slot.Path...), pci)
}

// device makes a PCI device and the bridges above it.
func (t *tree) device(pci string, slot Slot, driver string) {
	for i := 1; i < len(slot.Path); i++ {
		bridge := Slot{NUMA: slot.NUMA, Path: slot.Path[:i], Vendor: "0x10b5", Device: "0x8796", Class: "0x060400"}
		if i == 1 { // a root port
			bridge.Vendor, bridge.Device = "0x8086", "0x352a"
		}
		t.function(slot.Path[i], bridge, "pcieport")
	}
	t.function(pci, slot, driver)
}

// function makes one PCI function with its attributes.
func (t *tree) function(pci string, slot Slot, driver string) {
	at := folder(pci, slot)
	if t.seen[at] {
		return
	}
	t.seen[at] = true
	for _, attribute := range [][2]string{
		{"vendor", slot.Vendor}, {"device", slot.Device}, {"class", slot.Class}, {"numa_node", fmt.Sprint(slot.NUMA)},
		{"local_cpulist", t.cpus(slot.NUMA)}, {"enable", "1"}, {"revision", "0xa1"}, {"current_link_width", "16"}, {"max_link_width", "16"},
	} {
		t.file(path.Join(at, attribute[0]), "%s", attribute[1])
	}
	t.file(path.Join(at, "uevent"), "DRIVER=%s\nPCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SLOT_NAME=%s", driver, strings.TrimPrefix(slot.Class, "0x"),
		strings.ToUpper(strings.TrimPrefix(slot.Vendor, "0x")), strings.ToUpper(strings.TrimPrefix(slot.Device, "0x")), pci)
	up := strings.Repeat("../", len(slot.Path)+2)
	t.link(path.Join(at, "subsystem"), up+"bus/pci")
	if driver != "" {
		t.link(path.Join(at, "driver"), up+"bus/pci/drivers/"+driver)
		t.link(path.Join("/sys/bus/pci/drivers", driver, pci), "../../../.."+strings.TrimPrefix(at, "/sys"))
	}
	t.link(path.Join("/sys/bus/pci/devices", pci), "../../.."+strings.TrimPrefix(at, "/sys"))
}

// cpus are those of a node, or all.
func (t *tree) cpus(numa int) string {
	var all []string
	for _, node := range t.s.Nodes {
		if node.ID == numa {
			return node.CPUs
		}
		if node.CPUs != "" {
			all = append(all, node.CPUs)
		}
	}
	return strings.Join(all, ",")
}

// nic makes a device of InfiniBand or RoCE with its one port.
func (t *tree) nic(n int, nic *NIC) {
	t.device(nic.PCI, nic.Slot, "mlx5_core")
	device := folder(nic.PCI, nic.Slot)
	at := path.Join(device, "infiniband", nic.Name)
	t.file(path.Join(at, "node_guid"), "%s", nic.GUID)
	t.file(path.Join(at, "sys_image_guid"), "%s", nic.GUID)
	t.file(path.Join(at, "node_type"), "1: CA")
	t.file(path.Join(at, "fw_ver"), "28.39.1002")
	t.file(path.Join(at, "hca_type"), "MT%d", map[string]int{cx5: 4119, cx6: 4123, cx7: 4129}[nic.Device])
	t.link(path.Join(at, "device"), "../../../"+nic.PCI)
	t.link(path.Join("/sys/class/infiniband", nic.Name), "../.."+strings.TrimPrefix(at, "/sys"))
	port := path.Join(at, "ports/1")
	physical := "5: LinkUp"
	if nic.State == down {
		physical = "3: Disabled"
	}
	t.file(path.Join(port, "state"), "%s", nic.State)
	t.file(path.Join(port, "phys_state"), "%s", physical)
	t.file(path.Join(port, "rate"), "%s", nic.Rate)
	t.file(path.Join(port, "link_layer"), "%s", nic.Layer)
	t.file(path.Join(port, "lid"), "0x%x", n+1)
	t.file(path.Join(port, "gids/0"), "fe80:0000:0000:0000:%s", nic.GUID)
	t.netdev(nic, device, port)
	t.entries = append(t.entries, Entry{Path: fmt.Sprintf("/dev/infiniband/uverbs%d", n), Null: true, Mode: 0o666})
}

// netdev makes the network interface of a NIC, in the folder of its device only: that of
// /sys/class/net is the host's own. RoCE tells it with the addresses of the port, IPoIB
// does not.
func (t *tree) netdev(nic *NIC, device, port string) {
	t.file(path.Join(port, "gid_attrs/types/0"), "IB/RoCE v1")
	if nic.NetDev == "" {
		return
	}
	if nic.Layer == "Ethernet" {
		t.file(path.Join(port, "gid_attrs/ndevs/0"), "%s", nic.NetDev)
	}
	state := "up"
	if nic.State == down {
		state = "down"
	}
	at := path.Join(device, "net", nic.NetDev)
	t.file(path.Join(at, "operstate"), "%s", state)
	t.file(path.Join(at, "dev_port"), "0")
	t.link(path.Join(at, "device"), "../../../"+nic.PCI)
}

// nodes makes /sys/devices/system/node.
func (t *tree) nodes() {
	const at = "/sys/devices/system/node"
	var ids, withCPU []string
	for _, node := range t.s.Nodes {
		ids = append(ids, fmt.Sprint(node.ID))
		if node.CPUs != "" {
			withCPU = append(withCPU, fmt.Sprint(node.ID))
		}
		home := fmt.Sprintf("%s/node%d", at, node.ID)
		t.file(home+"/cpulist", "%s", node.CPUs)
		t.file(home+"/cpumap", "%s", cpuMap(node.CPUs))
		t.file(home+"/meminfo", "Node %d MemTotal:       %d kB\nNode %[1]d MemFree:        %[3]d kB", node.ID, node.Memory>>10, node.Memory/10*9>>10)
		var distances []string
		for _, other := range t.s.Nodes {
			distances = append(distances, map[bool]string{true: "10", false: "21"}[other.ID == node.ID])
		}
		t.file(home+"/distance", "%s", strings.Join(distances, " "))
	}
	for _, name := range []string{"online", "possible", "has_memory", "has_normal_memory"} {
		t.file(path.Join(at, name), "%s", strings.Join(ids, ","))
	}
	t.file(path.Join(at, "has_cpu"), "%s", strings.Join(withCPU, ","))
}

// cpuMap writes a list of CPUs as words of 32 bits, the highest first.
func cpuMap(list string) string {
	words := []uint32{0}
	for part := range strings.SplitSeq(list, ",") {
		var first, last int
		if n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n == 0 {
			continue
		} else if n == 1 {
			last = first
		}
		for cpu := first; cpu <= last; cpu++ {
			for cpu/32 >= len(words) {
				words = append(words, 0)
			}
			words[cpu/32] |= 1 << (cpu % 32)
		}
	}
	var texts []string
	for _, word := range slices.Backward(words) {
		texts = append(texts, fmt.Sprintf("%08x", word))
	}
	return strings.Join(texts, ",")
}

// driver makes what the loaded kernel module shows.
func (t *tree) driver() {
	t.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Feb 22 01:44:30 UTC 2024\n"+
		"GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)", t.s.Driver)
	for i := range t.s.GPUs {
		g := &t.s.GPUs[i]
		t.file(path.Join("/proc/driver/nvidia/gpus", g.PCI, "information"), "Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t %s\n"+
			"Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No",
			g.Name, 100+i, g.UUID, g.VBIOS, g.PCI, i)
	}
	names := []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
	for i := range t.s.GPUs {
		names = append(names, fmt.Sprintf("nvidia%d", i))
	}
	if len(t.s.Switches) > 0 {
		names = append(names, "nvidia-nvswitchctl")
	}
	for i := range t.s.Switches {
		names = append(names, fmt.Sprintf("nvidia-nvswitch%d", i))
	}
	for _, name := range names {
		t.entries = append(t.entries, Entry{Path: "/dev/" + name, Null: true, Mode: 0o666})
	}
}
