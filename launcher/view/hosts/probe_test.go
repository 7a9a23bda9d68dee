package hosts

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/plugins/gpu"
)

func pointer[T any](v T) *T { return &v }

// judged are hosts with what stands out of them.
func judged(hosts ...Probed) []Probed {
	for i, h := range hosts {
		known := check.Host{Name: h.Name, Facts: h.Facts, ClockOffset: h.ClockOffset, ClockError: h.ClockError}
		hosts[i].Findings = check.OfHosts([]check.Host{known})[0]
	}
	return hosts
}

func eightH100() Probed {
	return Probed{Name: "hgx01", Address: "10.0.0.1", Facts: viewtest.EightH100()}
}

// broken is the same machine on a bad day.
func broken() Probed {
	h := eightH100()
	f, d := &h.Facts, h.Facts.Devices
	h.ClockOffset, h.ClockError = pointer(-4.25), 0.01
	f.Limits.Memlock = facts.Limit{Soft: pointer(uint64(64 << 10)), Hard: pointer(uint64(64 << 10))}
	f.Limits.NoFile = facts.Limit{Soft: pointer(uint64(1024)), Hard: pointer(uint64(1024))}
	f.Verbs, f.PeerMemory, f.OwnPIDs = pointer(false), pointer(false), true
	f.Spaces[0].InodesFree, f.Spaces[1].Free = 12, 1<<20
	f.SharedMemory = facts.Space{Path: "/dev/shm", Total: 64 << 20, Free: 64 << 20}
	f.Container = "docker"
	f.Cgroup = facts.Cgroup{Version: 2, Memory: pointer(uint64(512 << 30)), CPUs: pointer(32.0), PIDs: pointer(uint64(512))}
	f.Environ = map[string]string{"CUDA_VISIBLE_DEVICES": "0,1"}
	f.HCAs[3].State, f.HCAs[3].PhysState = "down", "polling"
	d.Near[3].HCAs, d.Near[3].HCALink = []string{"mlx5_0", "mlx5_1", "mlx5_2"}, "NODE"
	f.HCAs[4].SpeedGbps = 200
	f.Nodes[1].CPUs = []int{}
	for i := 4; i < 8; i++ {
		d.Near[i].CPUs = nil
	}
	d.PCIDevices = 10
	d.FabricManager, d.KernelModule = facts.FabricManager{State: nvidia.Inactive, Version: "550.54.14"}, "550.54.14"
	g := d.Inventory.GPUs
	g[0].Memory.Used = pointer(uint64(60 << 30))
	g[0].Processes = []gpu.Process{{PID: 4242, Name: "/opt/venv/bin/python3 train.py", Kind: "compute", Memory: pointer(uint64(40 << 30))},
		{PID: 4243, Name: "[Not Found]", Kind: "compute", Memory: pointer(uint64(10 << 30))}}
	d.Owners = map[int]string{4242: "bob"}
	g[1].Memory.Used = pointer(uint64(30 << 30))
	g[2] = gpu.GPU{Index: 2, PCI: "0000:3b:00.0", Name: "NVIDIA H100 80GB HBM3", State: gpu.StateLost}
	g[3].State = gpu.StateNeedsReset
	g[4].ECC.Volatile, g[4].Remapped.Pending, g[4].Recovery = pointer(uint64(3)), pointer(true), pointer("gpu_reset")
	g[5].PCIe.Width, g[5].PCIe.Generation = pointer(8), pointer(1)
	g[5].NVLinks = []gpu.NVLink{{Link: 0, Active: true}, {Link: 1}}
	g[6].Throttled, g[6].ComputeMode = []string{"hw_slowdown", "hw_thermal", "sw_power_cap"}, pointer("exclusive_process")
	g[7].ComputeMode, g[7].Fabric = pointer("exclusive_process"), pointer("not_started")
	d.Taken = map[string]string{g[6].UUID: "llama-lora-7f3a", g[7].UUID: "llama-lora-7f3a"}
	return h
}

// oneMIG is a GPU in two parts in a virtual machine.
func oneMIG() Probed {
	g := viewtest.H100(0, "0000:00:05.0")
	g.MIG = gpu.MIG{Enabled: pointer(true), Pending: pointer(true), Instances: []gpu.MIGInstance{
		{Index: 0, UUID: "MIG-5a1b2c3d-0011-5223-a44d-010203040506", Profile: "3g.40gb", GI: pointer(1), CI: pointer(0), Memory: pointer(uint64(39 << 30)), Used: pointer(uint64(0))},
		{Index: 1, UUID: "MIG-6a1b2c3d-0011-5223-a44d-010203040507", Profile: "3g.40gb", GI: pointer(2), CI: pointer(0), Memory: pointer(uint64(39 << 30))},
	}}
	f := facts.Host{
		System:  facts.System{Hostname: "vm7", OS: "linux", Arch: "amd64", Kernel: "6.8.0", User: "root"},
		Machine: facts.Machine{Memory: 220 << 30, CPUs: facts.CPUs{Allowed: viewtest.Numbers(0, 25), Physical: 26}},
		Network: facts.Network{NICs: []facts.NIC{{Name: "eth0", Up: true, MTU: 1450, PCI: "0000:00:03.0", Addresses: []string{"10.0.0.7"}}}},
		Devices: &facts.Devices{Inventory: &gpu.Inventory{Source: "nvidia-smi", Driver: pointer("550.54"), GPUs: []gpu.GPU{g}, Links: [][]gpu.Link{{"X"}}}, Near: make([]facts.Near, 1), Islands: [][]int{{0}}, PCIDevices: 1},
	}
	return Probed{Name: "vm7", Address: "10.0.0.7", Facts: f}
}

func noGPU(onBus int, why string) Probed {
	f := facts.Host{
		System:  facts.System{Hostname: "cpu1", OS: "linux", Arch: "arm64", Kernel: "6.1.0", User: "ann"},
		Machine: facts.Machine{Memory: 16 << 30, CPUs: facts.CPUs{Allowed: viewtest.Numbers(0, 3), Physical: 4}},
		Devices: &facts.Devices{PCIDevices: onBus, None: why},
	}
	return Probed{Name: "local", Address: "local", Facts: f}
}

func TestAProbeAsPeopleReadIt(t *testing.T) {
	for name, hosts := range map[string][]Probed{
		"h100":   {eightH100()},
		"broken": {broken()},
		"mig":    {oneMIG()},
		"none":   {noGPU(0, "no NVIDIA GPU is here"), noGPU(2, "nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver")},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			Probe(&terminal.Screen{Out: terminal.Stream{W: &out}}, judged(hosts...))
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line) - 1; n > 120 && !strings.HasPrefix(line, "  !") && !strings.HasPrefix(line, "  GPUs:") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			viewtest.Compare(t, "probe/"+name+".txt", out.Bytes())
		})
	}
}

// The colours mark islands and what stands out, and move no column.
func TestColourMovesNoColumn(t *testing.T) {
	var plain, coloured bytes.Buffer
	Probe(&terminal.Screen{Out: terminal.Stream{W: &plain}}, judged(broken()))
	Probe(&terminal.Screen{Out: terminal.Stream{W: &coloured, HasColour: true}}, judged(broken()))
	stripped := coloured.String()
	for _, code := range []string{"0", "1", "31", "33", "36"} {
		stripped = strings.ReplaceAll(stripped, "\x1b["+code+"m", "")
	}
	if stripped != plain.String() || coloured.Len() == plain.Len() {
		t.Errorf("coloured:\n%s", coloured.String())
	}
}

// Names of processes are their owners' to choose.
func TestWhatAHostSaysIsNotObeyedByTheTerminal(t *testing.T) {
	h := oneMIG()
	h.Facts.Devices.Notes = []string{"odd: \x1b]0;title\x07"}
	var out bytes.Buffer
	Probe(&terminal.Screen{Out: terminal.Stream{W: &out}}, judged(h))
	if strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Errorf("%q", out.String())
	}
}

func TestAUUIDIsAsLongAsItMustBe(t *testing.T) {
	all := []gpu.GPU{{UUID: "GPU-11111111-2222-aaaa"}, {UUID: "GPU-11111111-2222-bbbb"}, {UUID: "GPU-33333333-2222-bbbb"}, {}}
	var got []string
	for _, g := range all {
		got = append(got, uuidWord(g, all))
	}
	if !slices.Equal(got, []string{"GPU-11111111-2222-a", "GPU-11111111-2222-b", "GPU-33333333", "-"}) {
		t.Errorf("%v", got)
	}
}

func TestACPUSetAndAContainerExplainThemselves(t *testing.T) {
	h := eightH100()
	h.Facts.Devices.PCIDevices = 9
	text := func() string {
		var out bytes.Buffer
		Probe(&terminal.Screen{Out: terminal.Stream{W: &out}}, judged(h))
		return out.String()
	}
	if got := text(); !strings.Contains(got, "the driver shows 8 GPUs, but 9 are on the PCI bus") {
		t.Errorf("%s", got)
	}
	h.Facts.Environ = map[string]string{"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": ""}
	if got := text(); !strings.Contains(got, "this Slurm job has been given 8 of the machine's 9 GPUs") || !strings.Contains(got, "CUDA_VISIBLE_DEVICES is set to nothing") {
		t.Errorf("%s", got)
	}
}

// The file is the contract of muster probe --json, version 1: names and kinds of values
// stay, others may be added.
func TestAProbesJSONIsAContract(t *testing.T) {
	h := broken()
	h.Facts.CPUs = facts.CPUs{Allowed: []int{0, 1, 2, 3}, Physical: 2, Cores: [][]int{{0, 2}, {1, 3}}} // short
	h.Facts.Software = &facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cu121", NCCL: "2.20.5"}
	d := h.Facts.Devices
	d.Inventory.GPUs, d.Near, d.Islands = d.Inventory.GPUs[:3], d.Near[:3], [][]int{{0, 1}}
	for i := range d.Inventory.GPUs {
		d.Inventory.GPUs[i].Explain("not asked")
		d.Near[i].CPUs = []int{0, 1}
	}
	d.Links = [][]gpu.Link{{"X", "NV18", ""}, {"NV18", "X", ""}, {"", "", "X"}}
	d.Inventory.GPUs[1].MIG = oneMIG().Facts.Devices.Inventory.GPUs[0].MIG
	h.Facts.Nodes = []facts.Node{{ID: 0, CPUs: []int{0, 1}, Memory: 1007 << 30, Free: 990 << 30}}
	h.Facts.HCAs = h.Facts.HCAs[:1]
	d.Taken = map[string]string{d.Inventory.GPUs[1].UUID: "llama-lora-7f3a"}
	var out bytes.Buffer
	if err := ProbeJSON(&out, []Probed{h, noGPU(2, "nvidia-smi is not installed")}); err != nil {
		t.Fatal(err)
	}
	viewtest.Compare(t, "probe/contract.json", out.Bytes())
}

// What scripts loop over is there on every host, and what its kernel does not tell is null.
func TestAProbesJSONHasListsForScripts(t *testing.T) {
	var out bytes.Buffer
	if err := ProbeJSON(&out, []Probed{{Name: "bare"}, eightH100()}); err != nil {
		t.Fatal(err)
	}
	var v struct {
		Version int
		Hosts   []map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpus", "links", "islands", "nics", "infiniband", "numa_nodes", "hostname_addresses"} {
		if _, is := v.Hosts[0][name].([]any); !is {
			t.Errorf("%s is %v", name, v.Hosts[0][name])
		}
	}
	if _, is := v.Hosts[1]["devices"]; is {
		t.Error("devices are told twice")
	}
	card := v.Hosts[1]["gpus"].([]any)[7].(map[string]any)
	if card["memory_total"] != float64(81559<<20) || card["numa"] != 1.0 || card["hca_link"] != "PIX" {
		t.Errorf("%v", card)
	}
}
