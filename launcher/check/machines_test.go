package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/plugins/gpu"
)

func ptr[T any](v T) *T { return &v }

// uuid is that of GPU i of a machine; no two begin alike.
func uuid(machine, i int) string {
	return fmt.Sprintf("GPU-%x%02x10000-1111-2222-3333-444444444444", i, machine)
}

func pci(i int) string { return fmt.Sprintf("0000:%x8:00.0", i+1) }

// hgx is a healthy host with eight H100 and as many adapters: everything is told of it,
// and nothing is wrong.
func hgx(number int) Host {
	name := fmt.Sprintf("gpu%02d", number+1)
	d := &facts.Devices{Inventory: &gpu.Inventory{Source: "test", Driver: ptr("550.54.15"), CUDA: ptr("12.4")}, PCIDevices: 8, NVSwitches: 4, FabricManager: facts.FabricManager{State: nvidia.Active, Version: "550.54.15"}, KernelModule: "550.54.15"}
	f := facts.Host{
		System:  facts.System{ID: name, Hostname: name, OS: "linux", User: "ann", Home: "/home/ann"},
		Machine: facts.Machine{Memory: 2015 << 30, CPUs: facts.CPUs{Physical: 96}},
		Network: facts.Network{ReachedAt: address(number), HostnameAddrs: []string{address(number)}, NICs: []facts.NIC{{Name: "lo", Up: true, Loopback: true, MTU: 65536, Addresses: []string{"127.0.0.1"}, Networks: []string{"127.0.0.1/8"}}, {Name: "eno1", Up: true, State: "up", MTU: 9000, SpeedMbps: 25000, Addresses: []string{address(number)}, Networks: []string{address(number) + "/24"}}, {Name: "eno2", MTU: 1500}, {Name: "docker0", Up: true, MTU: 1500, Virtual: "docker's bridge", Addresses: []string{"172.17.0.1"}, Networks: []string{"172.17.0.1/16"}}}, Verbs: ptr(true), PeerMemory: ptr(true)},
		Storage: facts.Storage{SharedMemory: facts.Space{Path: "/dev/shm", Total: 1007 << 30, Free: 1000 << 30}, Disk: facts.Space{Path: "/home/ann", Total: 1 << 40, Free: 1 << 39}, Spaces: []facts.Space{
			{Path: "/home/ann", Uses: []string{facts.UseHome}, Total: 1 << 40, Free: 1 << 39},
			{Path: "/scratch", Uses: []string{facts.UseLogs}, Total: 1 << 40, Free: 1 << 39, Inodes: 1 << 20, InodesFree: 1 << 19},
			{Path: "/tmp", Uses: []string{facts.UseTemporary}, Total: 100 << 20, Free: 99 << 20},
			{Path: "/dev/shm", Uses: []string{facts.UseShared}, Total: 1007 << 30, Free: 1000 << 30},
		}},
		Settings: facts.Settings{Limits: facts.Limits{NoFile: facts.Limit{Soft: ptr(uint64(1 << 20)), Hard: ptr(uint64(1 << 20))}}, Cgroup: facts.Cgroup{Version: 2, PIDs: ptr(uint64(1 << 20))}},
		Devices:  d,
		Software: &facts.Software{Python: "/opt/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cu121", NCCL: "2.20.5"},
	}
	for cpu := range 192 {
		f.CPUs.Allowed = append(f.CPUs.Allowed, cpu)
	}
	for i := range 8 {
		hca := fmt.Sprint("mlx5_", i)
		f.HCAs = append(f.HCAs, facts.HCA{Name: hca, Port: 1, State: "active", PhysState: "linkup", LinkLayer: "InfiniBand", SpeedGbps: 400})
		d.Inventory.GPUs = append(d.Inventory.GPUs, h100(number, i))
		links := slices.Repeat([]gpu.Link{"NV18"}, 8)
		links[i] = "X"
		d.Links = append(d.Links, links)
		d.Near = append(d.Near, facts.Near{NUMA: ptr(i / 4), HCAs: []string{hca}, HCALink: "PIX"})
	}
	// Storage has a slower port of its own, management one that is not used.
	f.HCAs = append(f.HCAs, facts.HCA{Name: "mlx5_8", Port: 1, State: "active", LinkLayer: "Ethernet", SpeedGbps: 25}, facts.HCA{Name: "mlx5_9", Port: 1, State: "down", PhysState: "disabled", LinkLayer: "Ethernet"})
	d.Islands = gpu.Islands(d.Links)
	return Host{Name: name, Facts: f, ClockOffset: ptr(0.02 * float64(number)), ClockError: 0.01, Reach: []Reach{{Addr: address(0) + ":29400", From: address(number)}}}
}

func address(number int) string { return fmt.Sprintf("10.0.0.%d", number+1) }

// h100 is a GPU that tells everything.
func h100(machine, i int) gpu.GPU {
	g := gpu.GPU{
		Index: i, UUID: uuid(machine, i), PCI: pci(i), Name: "NVIDIA H100 80GB HBM3", State: gpu.StateOK,
		Memory: gpu.Memory{Total: ptr(uint64(80 << 30)), Used: ptr(uint64(4 << 20)), Reserved: ptr(uint64(500 << 20))}, Processes: []gpu.Process{},
		PCIe:        gpu.PCIe{Generation: ptr(1), GenerationMax: ptr(5), Width: ptr(16), WidthMax: ptr(16)}, // idle
		ComputeMode: ptr("default"), MIG: gpu.MIG{Enabled: ptr(false), Pending: ptr(false)}, Throttled: []string{"sw_power_cap"}, Recovery: ptr("none"),
		ECC:      gpu.ECC{Enabled: ptr(true), Volatile: ptr(uint64(0)), Aggregate: ptr(uint64(0)), SRAMVolatile: ptr(uint64(0))},
		Remapped: gpu.Remapped{Correctable: ptr(1), Uncorrectable: ptr(0), Pending: ptr(false), Failed: ptr(false)}, Persistence: ptr(true), Fabric: ptr("completed"),
	}
	for link := range 18 {
		g.NVLinks = append(g.NVLinks, gpu.NVLink{Link: link, Active: true})
	}
	return g
}

// cluster is a job on healthy hosts, planned, and what is known of them.
type cluster struct {
	Input
	t *testing.T
}

// healthy makes a job of these lines of a ranks block, and others of the job, on so many
// hosts.
func healthy(t *testing.T, hosts int, ranks string, more ...string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i := range hosts {
		c.Hosts = append(c.Hosts, hgx(i))
	}
	c.plan(ranks, more...)
	return c
}

// plan makes the plan from what is known now.
func (c *cluster) plan(ranks string, more ...string) {
	c.t.Helper()
	var names []string
	var known []facts.Host
	for _, h := range c.Hosts {
		names = append(names, fmt.Sprintf("%q", h.Name))
		known = append(known, copyOf(h.Facts))
	}
	text := fmt.Sprintf("job \"j\" {\n  command = [\"python\", \"train.py\"]\n  hosts \"ssh\" {\n    names = [%s]\n  }\n  ranks {\n%s\n  }\n%s\n}", strings.Join(names, ", "), ranks, strings.Join(more, "\n"))
	job, diags := config.Source{Filename: "job.hcl", Text: []byte(text)}.Evaluate()
	if diags.HasErrors() {
		c.t.Fatal(diags)
	}
	p, problems := lint.Plan(job, known)
	if len(problems) > 0 {
		c.t.Fatal(problems)
	}
	c.Job, c.Plan = job, p
}

// copyOf keeps what the plan knows from what becomes of the host's GPUs later.
func copyOf(f facts.Host) facts.Host {
	if f.Devices == nil || f.Devices.Inventory == nil {
		return f
	}
	d, gpus := *f.Devices, *f.Devices.Inventory
	gpus.GPUs = slices.Clone(gpus.GPUs)
	d.Inventory, f.Devices = &gpus, &d
	return f
}

// gpu is a GPU of a host, to be broken.
func (c *cluster) card(host, i int) *gpu.GPU { return &c.Hosts[host].Facts.Devices.Inventory.GPUs[i] }

// cut leaves a host n GPUs, as if the others had never been there.
func (c *cluster) cut(host, n int) {
	d := c.facts(host).Devices
	d.Inventory.GPUs, d.Near, d.Links, d.PCIDevices = d.Inventory.GPUs[:n], d.Near[:n], d.Links[:n], n
	for i := range d.Links {
		d.Links[i] = d.Links[i][:n]
	}
	d.Islands = gpu.Islands(d.Links)
}

func (c *cluster) facts(host int) *facts.Host { return &c.Hosts[host].Facts }

// listing is findings as a test fails with them.
func listing(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		card, rank := "-", "-"
		if f.GPU != nil {
			card = fmt.Sprint(*f.GPU)
		}
		if f.Rank != nil {
			rank = fmt.Sprint(*f.Rank)
		}
		fmt.Fprintf(&b, "%s %s [%s gpu %s rank %s] %s\n    %s\n", f.Severity, f.Code, f.Host, card, rank, f.Message, f.Fix)
	}
	return b.String()
}
