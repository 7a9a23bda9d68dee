package viewtest

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Numbers are those from one to another.
func Numbers(from, to int) []int {
	var list []int
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// EightH100 is an HGX machine in a container: two sockets, a GPU and a 400 Gb/s adapter
// on each of eight switches, storage and management besides.
func EightH100() facts.Host {
	d := &facts.Devices{Inventory: &gpu.Inventory{Source: "nvml", Driver: new("550.54.15"), CUDA: new("12.4")}, PCIDevices: 8,
		NVSwitches: 4, FabricManager: facts.FabricManager{State: nvidia.Active, Version: "550.54.15"}, KernelModule: "550.54.15"}
	f := facts.Host{
		System:  facts.System{ID: "9f2c1a3b4c5d6e7f", MachineID: "0123456789abcdef0123456789abcdef", Hostname: "hgx01", OS: "linux", Arch: "amd64", Kernel: "5.15.0-105-generic", User: "ann", Home: "/home/ann"},
		Machine: facts.Machine{Memory: 2015 << 30, MemoryAvailable: 1970 << 30},
		Network: facts.Network{ReachedAt: "10.0.0.1", HostnameAddrs: []string{"10.0.0.1"}, EphemeralPorts: [2]int{32768, 60999}, Verbs: new(true), PeerMemory: new(true), NICs: []facts.NIC{
			{Name: "lo", Up: true, Loopback: true, MTU: 65536, Addresses: []string{"127.0.0.1"}, Networks: []string{"127.0.0.1/8"}},
			{Name: "eno1", Up: true, State: "up", MTU: 1500, SpeedMbps: 25000, PCI: "0000:6b:00.0", NUMA: new(0), Addresses: []string{"10.0.0.1", "2001:db8::1"}, Networks: []string{"10.0.0.1/24", "2001:db8::1/64"}},
			{Name: "eno2", State: "down", MTU: 1500, PCI: "0000:6b:00.1", NUMA: new(0), Addresses: []string{}, Networks: []string{}},
			{Name: "docker0", Up: true, MTU: 1500, Virtual: "docker's bridge", Addresses: []string{"172.17.0.1"}, Networks: []string{"172.17.0.1/16"}},
		}},
		Storage: facts.Storage{SharedMemory: facts.Space{Path: "/dev/shm", Total: 1007 << 30, Free: 1007 << 30}, Disk: facts.Space{Path: "/home/ann", Total: 1 << 40, Free: 1 << 39}, Spaces: []facts.Space{
			{Path: "/home/ann", Uses: []string{facts.UseHome, facts.UseLogs}, Total: 1 << 40, Free: 1 << 39, Inodes: 1 << 26, InodesFree: 1 << 25},
			{Path: "/tmp", Uses: []string{facts.UseTemporary}, Total: 100 << 20, Free: 99 << 20},
			{Path: "/dev/shm", Uses: []string{facts.UseShared}, Total: 1007 << 30, Free: 1007 << 30},
		}},
		Settings: facts.Settings{Limits: facts.Limits{NoFile: facts.Limit{Soft: new(uint64(1048576)), Hard: new(uint64(1048576))}}, Cgroup: facts.Cgroup{Version: 2}},
		Devices:  d,
	}
	for node := range 2 {
		cpus := append(Numbers(48*node, 48*node+47), Numbers(96+48*node, 143+48*node)...)
		f.CPUs.Allowed = append(f.CPUs.Allowed, cpus...)
		f.Nodes = append(f.Nodes, facts.Node{ID: node, CPUs: cpus, Memory: 1007 << 30, Free: 990 << 30})
	}
	slices.Sort(f.CPUs.Allowed)
	for cpu := range 96 {
		f.CPUs.Cores = append(f.CPUs.Cores, []int{cpu, cpu + 96})
	}
	f.CPUs.Physical = len(f.CPUs.Cores)
	for i := range 8 {
		node, hca := i/4, fmt.Sprintf("mlx5_%d", i)
		f.HCAs = append(f.HCAs, facts.HCA{Name: hca, Port: 1, State: "active", PhysState: "linkup", LinkLayer: "InfiniBand", SpeedGbps: 400,
			Interface: fmt.Sprint("ib", i), PCI: fmt.Sprintf("0000:%x8:00.0", i+1), NUMA: &node})
		d.Inventory.GPUs = append(d.Inventory.GPUs, H100(i, fmt.Sprintf("0000:%xb:00.0", i+1)))
		links := slices.Repeat([]gpu.Link{"NV18"}, 8)
		links[i] = "X"
		d.Links = append(d.Links, links)
		d.Near = append(d.Near, facts.Near{NUMA: &node, CPUs: f.Nodes[node].CPUs, HCAs: []string{hca}, HCALink: "PIX"})
	}
	d.Islands = [][]int{Numbers(0, 7)}
	return f
}

// H100 is one of its GPUs.
func H100(i int, pci string) gpu.GPU {
	return gpu.GPU{Index: i, UUID: fmt.Sprintf("GPU-%x3f0c2a9-77aa-4f5e-9c61-0242ac1100%02x", 15-i, i), PCI: pci, Name: "NVIDIA H100 80GB HBM3", State: gpu.StateOK,
		Memory: gpu.Memory{Total: new(uint64(81559 << 20)), Used: new(uint64(0)), Reserved: new(uint64(551 << 20))}, Processes: []gpu.Process{},
		PCIe:        gpu.PCIe{Generation: new(5), GenerationMax: new(5), Width: new(16), WidthMax: new(16)},
		ComputeMode: new("default"), MIG: gpu.MIG{Enabled: new(false), Pending: new(false)}, Throttled: []string{}}
}
