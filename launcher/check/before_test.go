package check

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/plugins/gpu"
)

// The healthy twin of every scenario.
func TestHealthyHostsAreSilent(t *testing.T) {
	for name, c := range map[string]*cluster{
		"two hosts":         healthy(t, 2, ""),
		"one host":          healthy(t, 1, ""),
		"nine hosts":        healthy(t, 9, ""),
		"two of eight GPUs": healthy(t, 2, "devices = [3, 5]"),
		"without GPUs":      healthy(t, 2, "per_host = 4\ndevices = \"none\""),
		"shared by gloo":    healthy(t, 1, "per_host = 16\nshared = true\ndevices = 8\nbackend = \"gloo\""),
		"interfaces named":  healthy(t, 2, "", `env = { NCCL_SOCKET_IFNAME = "=eno1", GLOO_SOCKET_IFNAME = "eno1", NCCL_IB_HCA = "mlx5" }`),
	} {
		if found := Run(c.Input, Before); len(found) > 0 {
			t.Errorf("%s:\n%s", name, listing(found))
		}
	}
}

// What nobody tells is not held against a host.
func TestWhatIsNotKnownIsNoFinding(t *testing.T) {
	c := healthy(t, 2, "")
	for i := range c.Hosts {
		h := &c.Hosts[i]
		h.ClockOffset, h.Reach = nil, nil
		gpus := h.Facts.Devices.Inventory.GPUs
		for g := range gpus {
			gpus[g] = gpu.GPU{Index: g, UUID: gpus[g].UUID, PCI: gpus[g].PCI, Name: gpus[g].Name, State: gpu.StateOK}
		}
		h.Facts = facts.Host{
			System:  facts.System{ID: h.Facts.ID},
			Devices: &facts.Devices{Inventory: &gpu.Inventory{GPUs: gpus}},
		}
	}
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
	c.Hosts[1].Facts.Devices = nil // not looked at
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
}

// scenario is one thing that is wrong, and the one finding that it gives.
type scenario struct {
	code     string
	severity Severity
	wrong    func(c *cluster)
	says     string // in the message
	fix      string // in the fix

	hosts int    // 2
	ranks string // of the ranks block
	more  string // of the job
	where string // "gpu02 3" (host and GPU), "gpu02" or "" of several; - for not checked
}

func on(host, card int, wrong func(g *gpu.GPU)) func(c *cluster) {
	return func(c *cluster) { wrong(c.card(host, card)) }
}

func at(host int, wrong func(f *facts.Host)) func(c *cluster) {
	return func(c *cluster) { wrong(c.facts(host)) }
}

func TestEachThingThatIsWrongIsFound(t *testing.T) {
	all := slices.Concat(brokenGPUs, setGPUs, heldGPUs, differentHosts, smallHosts, cutNetworks)
	covered := map[string]bool{}
	for _, s := range all {
		covered[s.code] = true
		t.Run(fmt.Sprintf("%s is %s: %s", s.code, s.severity, s.says), func(t *testing.T) { s.run(t) })
	}
	for _, name := range codes.Names(codes.Before) {
		if !covered[name] {
			t.Errorf("no scenario gives %s", name)
		}
	}
}

func (s scenario) run(t *testing.T) {
	c := healthy(t, max(s.hosts, 1), s.ranks, s.more)
	if s.hosts == 0 {
		c = healthy(t, 2, s.ranks, s.more)
	}
	s.wrong(c)
	found := Run(c.Input, Before)
	if len(found) != 1 {
		t.Fatalf("want one finding, got\n%s", listing(found))
	}
	f := found[0]
	where := f.Host
	if f.GPU != nil {
		where += fmt.Sprint(" ", *f.GPU)
	}
	if f.Code != s.code || f.Severity != s.severity || s.where != "-" && where != s.where || !strings.Contains(f.Message, s.says) || !strings.Contains(f.Fix, s.fix) {
		t.Errorf("want %s %s of %q with %q and %q, got\n%s", s.severity, s.code, s.where, s.says, s.fix, listing(found))
	}
	if !strings.HasPrefix(f.Message, f.Where()) {
		t.Errorf("%q does not begin with %q", f.Message, f.Where())
	}
	code, known := codes.Find(f.Code)
	if worse := code.Worst; !known || f.Severity == Fail && code.Severity != Fail && worse != Fail || f.Severity == Warn && code.Severity == Info && worse == "" {
		t.Errorf("the table says of %s: %+v", f.Code, code)
	}
}

func isOf(pid int, name, kind string, memory uint64) gpu.Process {
	return gpu.Process{PID: pid, Name: name, Kind: kind, Memory: ptr(memory)}
}

func linksDown(n int) func(g *gpu.GPU) {
	return func(g *gpu.GPU) {
		for i := range n {
			g.NVLinks[i].Active = false
		}
	}
}

// xid is what the kernel's log has of a GPU.
func xid(host, card, number, times int, text string) func(c *cluster) {
	return func(c *cluster) {
		at, _, _ := strings.Cut(c.card(host, card).PCI, ".")
		d := c.facts(host).Devices
		d.Xids = append(d.Xids, nvidia.Xid{PCI: at, Number: number, Count: times, Text: text})
	}
}

// What programs did to themselves, notices, and what another Xid explains, is no finding; nor
// is what happened to a card that is not there any more.
func TestXidsThatSayNothingOfAGPUAreSilent(t *testing.T) {
	for name, wrong := range map[string]func(c *cluster){
		"a program's fault":   xid(1, 3, 31, 2, "MMU Fault"),
		"a killed program":    xid(1, 3, 45, 40, "Ch 00000001"),
		"a notice":            xid(1, 3, 63, 1, ""),
		"no recovery wanted":  xid(1, 3, 154, 1, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
		"not fatal":           xid(1, 3, 149, 1, "NETIR_LINK_EVT Nonfatal XC1"),
		"another card's slot": func(c *cluster) { c.facts(1).Devices.Xids = nvidia.Xids{{PCI: "0000:ff:00", Number: 79, Count: 1}} },
	} {
		c := healthy(t, 2, "")
		wrong(c)
		if found := Run(c.Input, Before); len(found) > 0 {
			t.Errorf("%s:\n%s", name, listing(found))
		}
	}
	c := healthy(t, 2, "")
	xid(1, 3, 48, 1, "DBE")(c)
	xid(1, 3, 45, 3, "caused by previous Xid 48")(c)
	if found := Run(c.Input, Before); len(found) != 1 || !strings.Contains(found[0].Message, "Xid 48") {
		t.Errorf("a consequence beside its cause:\n%s", listing(found))
	}
}

var brokenGPUs = []scenario{
	{code: codes.GPULost, severity: Fail, where: "gpu02 3", says: "fallen off the bus", fix: "reboot", wrong: on(1, 3, func(g *gpu.GPU) {
		*g = gpu.GPU{Index: 3, PCI: g.PCI, Name: g.Name, State: gpu.StateLost}
	})},
	{code: codes.GPULost, severity: Info, where: "gpu02 3", says: "no rank uses it", ranks: "devices = [0, 1]", wrong: on(1, 3, func(g *gpu.GPU) { g.State = gpu.StateLost })},
	{code: codes.GPUNeedsReset, severity: Fail, where: "gpu01 0", says: "before a reset", fix: "--gpu-reset", wrong: on(0, 0, func(g *gpu.GPU) { g.State = gpu.StateNeedsReset })},
	{code: codes.GPUSilent, severity: Fail, where: "gpu01 7", says: "no proper answer", wrong: on(0, 7, func(g *gpu.GPU) { g.State = gpu.StateUnknown })},
	{code: codes.GPUMissing, severity: Fail, where: "gpu01 7", says: uuid(0, 7), fix: "plan again", wrong: on(0, 7, func(g *gpu.GPU) { g.UUID = "GPU-new" })},
	{code: codes.GPUMissing, severity: Fail, where: "gpu01", says: "nothing can be known of its GPUs: no driver", hosts: 1, wrong: at(0, func(f *facts.Host) { f.Devices = &facts.Devices{None: "no driver"} })},
	{code: codes.GPURecovery, severity: Fail, where: "gpu01 4", says: "recovery action: node reboot", fix: "reboot", wrong: on(0, 4, func(g *gpu.GPU) { g.Recovery = ptr("node_reboot") })},
	{code: codes.GPURecovery, severity: Fail, where: "gpu01 4", says: "drain p2p", fix: "alone", wrong: on(0, 4, func(g *gpu.GPU) { g.Recovery = ptr("drain_p2p") })},
	{code: codes.GPURecovery, severity: Info, where: "gpu01 4", says: "drain p2p", ranks: "devices = [4]", wrong: on(0, 4, func(g *gpu.GPU) { g.Recovery = ptr("drain_p2p") })},
	{code: codes.GPURecovery, severity: Fail, where: "gpu01 4", says: "something new", fix: "operator", wrong: on(0, 4, func(g *gpu.GPU) { g.Recovery = ptr("something_new") })},
	{code: codes.ECCUncorrected, severity: Fail, where: "gpu01 4", says: "3 uncorrected memory errors since the driver was loaded", wrong: on(0, 4, func(g *gpu.GPU) { g.ECC.Volatile, g.ECC.Aggregate = ptr(uint64(3)), ptr(uint64(9)) })},
	{code: codes.ECCUncorrected, severity: Fail, where: "gpu01 4", says: "1 uncorrected memory error since", wrong: on(0, 4, func(g *gpu.GPU) { g.ECC.SRAMVolatile = ptr(uint64(1)) })},
	{code: codes.ECCHistory, severity: Warn, where: "gpu01 4", says: "5 uncorrected", wrong: on(0, 4, func(g *gpu.GPU) { g.ECC.Aggregate = ptr(uint64(5)) })},
	{code: codes.ECCHistory, severity: Info, where: "gpu01 4", says: "4 uncorrected", wrong: on(0, 4, func(g *gpu.GPU) { g.ECC.Aggregate = ptr(uint64(4)) })},
	{code: codes.ECCModeDiffers, severity: Warn, where: "gpu01 4", says: "ECC is off, on its sister GPUs it is on", wrong: on(0, 4, func(g *gpu.GPU) { g.ECC.Enabled = ptr(false) })},
	{code: codes.RemapFailed, severity: Fail, where: "gpu01 4", says: "could not be remapped", wrong: on(0, 4, func(g *gpu.GPU) { g.Remapped.Failed, g.Remapped.Pending = ptr(true), ptr(true) })},
	{code: codes.RemapFailed, severity: Fail, where: "gpu01 4", says: "513 bad memory rows", wrong: on(0, 4, func(g *gpu.GPU) { g.Remapped.Uncorrectable = ptr(513) })},
	{code: codes.XidSinceBoot, severity: Warn, where: "gpu02 3", says: "Xid 79, 2 times since the boot: the GPU has fallen off the bus", fix: "reset", wrong: xid(1, 3, 79, 2, "pid=1, name=python, GPU has fallen off the bus.")},
	{code: codes.XidSinceBoot, severity: Warn, where: "gpu02 3", says: "Xid 45 since the boot: a double-bit error", wrong: xid(1, 3, 45, 1, "pid=1, caused by previous Xid 48")},
	{code: codes.XidSinceBoot, severity: Info, where: "gpu02 3", says: "no rank uses it", ranks: "devices = [0]", wrong: xid(1, 3, 79, 1, "")},
	{code: codes.XidSinceBoot, severity: Info, where: "gpu02 3", says: "Xid 94 since the boot", wrong: xid(1, 3, 94, 1, "Contained")},
	{code: codes.XidSinceBoot, severity: Info, where: "gpu02 3", says: "Xid 31, 12 times", fix: "different programs", wrong: xid(1, 3, 31, 12, "MMU Fault")},
	{code: codes.XidsUnknown, severity: Info, where: "", says: "gpu01, gpu02: which errors", fix: "dmesg_restrict", wrong: everywhere(func(f *facts.Host) { f.Devices.NoXids = "operation not permitted" })},
	{code: codes.RemapPending, severity: Warn, where: "gpu01 4", says: "next reset", wrong: on(0, 4, func(g *gpu.GPU) { g.Remapped.Pending, g.Remapped.Uncorrectable = ptr(true), ptr(512) })},
	{code: codes.RetirePending, severity: Warn, where: "gpu01 4", says: "61 are already", wrong: on(0, 4, func(g *gpu.GPU) {
		g.Retired = gpu.Retired{SingleBit: ptr(60), DoubleBit: ptr(1), Pending: ptr(true)}
	})},
	{code: codes.RetirePending, severity: Fail, where: "gpu01 4", says: "62 are already", wrong: on(0, 4, func(g *gpu.GPU) {
		g.Retired = gpu.Retired{SingleBit: ptr(60), DoubleBit: ptr(2), Pending: ptr(true)}
	})},
	{code: codes.RetiredMany, severity: Warn, where: "gpu01 4", says: "11 memory pages", wrong: on(0, 4, func(g *gpu.GPU) {
		g.Retired = gpu.Retired{SingleBit: ptr(10), DoubleBit: ptr(1), Pending: ptr(false)}
	})},
	{code: codes.NVLinksDown, severity: Fail, where: "gpu01 4", says: "16 of 18 NVLinks are up, its sister GPUs have 18", wrong: on(0, 4, linksDown(2))},
	{code: codes.NVLinksDown, severity: Fail, where: "gpu01 4", says: "0 of 18 NVLinks", wrong: on(0, 4, linksDown(18))},
	{code: codes.NVLinksDown, severity: Warn, where: "gpu01 4", says: "17 of 18", ranks: "devices = [4]", wrong: on(0, 4, linksDown(1))},
	{code: codes.NVLinksDown, severity: Info, where: "gpu01 3", says: "0 of 12 NVLinks", hosts: 1, wrong: func(c *cluster) { // three cards of four have a bridge
		for i := range 8 {
			g := c.card(0, i)
			g.Name, g.NVLinks, g.Fabric = "NVIDIA A100 80GB PCIe", g.NVLinks[:12], nil
		}
		linksDown(12)(c.card(0, 3))
	}},
}

var setGPUs = []scenario{
	{code: codes.ComputeMode, severity: Fail, where: "gpu02 2", says: "compute mode prohibited", fix: "-c 0", wrong: on(1, 2, func(g *gpu.GPU) { g.ComputeMode = ptr("prohibited") })},
	{code: codes.ComputeMode, severity: Fail, where: "gpu02 2", says: "2 ranks share it", fix: "MPS", ranks: "per_host = 16\ndevices = 8\nshared = true\nbackend = \"gloo\"", wrong: on(1, 2, func(g *gpu.GPU) { g.ComputeMode = ptr("exclusive_process") })},
	{code: codes.MIGMode, severity: Fail, where: "gpu02 2", says: "MIG is on", wrong: on(1, 2, func(g *gpu.GPU) { g.MIG.Enabled, g.MIG.Pending = ptr(true), ptr(true) })},
	{code: codes.MIGMode, severity: Warn, where: "gpu02 2", says: "MIG is switched on at the next reset", wrong: on(1, 2, func(g *gpu.GPU) { g.MIG.Pending = ptr(true) })},
	{code: codes.FabricNotReady, severity: Fail, where: "gpu02 2", says: "nvidia-fabricmanager does not run", fix: "systemctl start", wrong: on(1, 2, func(g *gpu.GPU) { g.Fabric = ptr("not_started") })},
	{code: codes.FabricNotReady, severity: Fail, where: "gpu02 2", says: "still being set up", fix: "wait a minute", wrong: on(1, 2, func(g *gpu.GPU) { g.Fabric = ptr("in_progress") })},
	{code: codes.FabricNotReady, severity: Fail, where: "gpu02 2", says: "failed", fix: "journalctl", wrong: on(1, 2, func(g *gpu.GPU) { g.Fabric = ptr("failed") })},
	{code: codes.FabricManager, severity: Fail, where: "gpu02", says: "is inactive, and 4 NVSwitch devices need it", fix: "systemctl start", wrong: at(1, func(f *facts.Host) { f.Devices.FabricManager.State = nvidia.Inactive })},
	{code: codes.FabricManager, severity: Fail, where: "gpu02", says: "is not installed, and 4 NVSwitch devices need it", fix: "install", wrong: at(1, func(f *facts.Host) { f.Devices.FabricManager.State = nvidia.NotInstalled })},
	{code: codes.FabricManager, severity: Warn, where: "gpu02", says: "of version 550.54.14, the driver of 550.54.15", wrong: at(1, func(f *facts.Host) { f.Devices.FabricManager.Version = "550.54.14" })},
	{code: codes.FabricManager, severity: Fail, where: "gpu02", says: "of version 550.54.14", wrong: at(1, func(f *facts.Host) { f.Devices.FabricManager = facts.FabricManager{Version: "550.54.14"} })},
	{code: codes.Throttled, severity: Warn, where: "gpu02 2", says: "too hot (hw thermal), the power supply asks for it", wrong: on(1, 2, func(g *gpu.GPU) { g.Throttled = []string{"hw_thermal", "sw_power_cap", "hw_power_brake"} })},
	{code: codes.Throttled, severity: Info, where: "gpu02 2", says: "no rank uses it", ranks: "devices = [0]", wrong: on(1, 2, func(g *gpu.GPU) { g.Throttled = []string{"hw_slowdown"} })},
	{code: codes.PCIeNarrow, severity: Warn, where: "gpu02 2", says: "x8, those of its sister GPUs are x16", wrong: on(1, 2, func(g *gpu.GPU) { g.PCIe.Width, g.PCIe.WidthMax = ptr(8), ptr(8) })},
	{code: codes.PCIeSlow, severity: Warn, where: "gpu02 2", says: "generation 3 at most, those of its sister GPUs are of 5", fix: "reseat", wrong: on(1, 2, func(g *gpu.GPU) { g.PCIe.GenerationMax = ptr(3) })},
	{code: codes.PCIeNarrow, severity: Warn, where: "gpu02 2", says: "x8 of x16, its sister GPUs have more", wrong: on(1, 2, func(g *gpu.GPU) { g.PCIe.Width = ptr(8) })},
	{code: codes.PersistenceOff, severity: Warn, where: "gpu02 2", says: "on its sister GPUs it is on", wrong: on(1, 2, func(g *gpu.GPU) { g.Persistence = ptr(false) })},
	{code: codes.PersistenceOff, severity: Info, where: "gpu02 2", says: "off: the first", ranks: "devices = [2]", wrong: func(c *cluster) {
		for i := range 8 {
			c.card(1, i).Persistence = ptr(false)
		}
	}},
	{code: codes.FewerGPUs, severity: Fail, where: "gpu02", says: "8 GPUs, but 9 are on the PCI bus", wrong: at(1, func(f *facts.Host) { f.Devices.PCIDevices = 9 })},
	{code: codes.FewerGPUs, severity: Warn, where: "gpu02", says: "8 GPUs, but 9 are on the PCI bus", ranks: "devices = [0, 1]", wrong: at(1, func(f *facts.Host) { f.Devices.PCIDevices = 9 })},
	{code: codes.FewerGPUs, severity: Warn, where: "gpu02", says: "it has 7 GPUs of the kind NVIDIA H100 80GB HBM3, gpu01 has 8", wrong: func(c *cluster) {
		c.cut(1, 7)
		c.plan("")
	}},
}

func inUse(by ...gpu.Process) func(g *gpu.GPU) {
	return func(g *gpu.GPU) {
		g.Processes = by
		used := uint64(4 << 20)
		for _, p := range by {
			used += gpu.OrZero(p.Memory)
		}
		g.Memory.Used = &used
	}
}

var bobs = isOf(4242, "/opt/venv/bin/python3 train.py", "compute", 40<<30)

var heldGPUs = []scenario{
	{code: codes.GPUInUse, severity: Fail, where: "gpu02 3", says: "40.0 GiB in use: python3 (pid 4242, bob, 40.0 GiB)", fix: "ask bob", wrong: func(c *cluster) {
		inUse(bobs)(c.card(1, 3))
		c.facts(1).Devices.Owners = map[int]string{4242: "bob"}
	}},
	{code: codes.GPUInUse, severity: Warn, where: "gpu02 3", says: "pid 4242, ann", fix: "kill 4242 on gpu02", ranks: "devices = [3]", wrong: func(c *cluster) {
		inUse(bobs)(c.card(1, 3))
		c.facts(1).Devices.Owners = map[int]string{4242: "ann"}
	}},
	{code: codes.GPUInUse, severity: Info, where: "gpu02 3", says: "a process (pid 4242", ranks: "devices = [3]\nshared = true", wrong: on(1, 3, inUse(isOf(4242, "[Not Found]", "compute", 1<<30)))},
	{code: codes.GPUInUse, severity: Info, where: "gpu02 3", says: "pid 4242", ranks: "min_free = \"30GiB\"", wrong: on(1, 3, inUse(bobs))},
	{code: codes.GPUInUse, severity: Fail, where: "gpu02 3", says: "pid 4242", ranks: "min_free = \"50GiB\"", wrong: on(1, 3, inUse(bobs))},
	{code: codes.GPUInUse, severity: Fail, where: "gpu02 3", says: "6 more", wrong: on(1, 3, func(g *gpu.GPU) {
		var many []gpu.Process
		for pid := range 10 {
			many = append(many, isOf(100+pid, "x", "compute", 1<<20))
		}
		inUse(many...)(g)
	})},
	{code: codes.GPUInUse, severity: Fail, where: "gpu02 3", says: "muster's run llama-7f3a holds it", fix: "muster stop llama-7f3a", wrong: at(1, func(f *facts.Host) {
		f.Devices.Taken = map[string]string{uuid(1, 3): "llama-7f3a"}
	})},
	{code: codes.MemoryUnexplained, severity: Fail, where: "gpu02 3", says: "30.0 GiB in use that no process here explains", fix: "fuser -v", wrong: on(1, 3, func(g *gpu.GPU) { g.Memory.Used = ptr(uint64(30 << 30)) })},
	{code: codes.MemoryUnexplained, severity: Warn, where: "gpu02 3", says: "30.0 GiB", fix: "this is a container", ranks: "devices = [3]", wrong: func(c *cluster) {
		c.card(1, 3).Memory.Used = ptr(uint64(30 << 30))
		c.facts(1).Container = "docker"
	}},
	{code: codes.HiddenProcess, severity: Info, where: "gpu02", says: "container (docker)", fix: "--pid=host", wrong: func(c *cluster) {
		c.facts(1).OwnPIDs, c.facts(1).Container = true, "docker"
	}},
}

// A desktop, what a driver keeps for itself and MPS's server are no users; nor is anything
// on a GPU that no rank uses.
func TestWhatHoldsAGPUWithoutUsingIt(t *testing.T) {
	c := healthy(t, 2, "devices = [0, 1, 2]")
	inUse(isOf(900, "/usr/lib/xorg/Xorg", "graphics", 200<<20))(c.card(0, 0))
	inUse(isOf(901, "/usr/bin/nvidia-cuda-mps-server", "compute", 30<<20))(c.card(0, 1))
	c.card(0, 2).Memory.Used = ptr(uint64(1 << 30))
	inUse(bobs)(c.card(0, 5))
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
}

// Pairs of cards with a bridge beside pairs without are as they were bought.
func TestCardsWithoutABridgeAreWhole(t *testing.T) {
	c := healthy(t, 1, "")
	for i := range 8 {
		g := c.card(0, i)
		g.Name, g.NVLinks, g.Fabric = "NVIDIA A100 80GB PCIe", g.NVLinks[:12], nil
		if i > 3 {
			linksDown(12)(g)
		}
	}
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
}

// Parts of a GPU are judged one by one, by their own memory and processes.
func TestPartsOfAGPUAreJudgedOneByOne(t *testing.T) {
	c := healthy(t, 1, "")
	g := c.card(0, 0)
	g.NVLinks, g.Fabric = nil, nil
	g.MIG = gpu.MIG{Enabled: ptr(true), Pending: ptr(true), Instances: []gpu.MIGInstance{
		{Index: 0, UUID: "MIG-a", Profile: "3g.40gb", GI: ptr(1), CI: ptr(0), Memory: ptr(uint64(39 << 30)), Used: ptr(uint64(0))},
		{Index: 1, UUID: "MIG-b", Profile: "3g.40gb", GI: ptr(2), CI: ptr(0), Memory: ptr(uint64(39 << 30)), Used: ptr(uint64(0))},
	}}
	c.cut(0, 1)
	g = c.card(0, 0)
	c.plan("backend = \"gloo\"")
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Fatal(listing(found))
	}
	g.Processes = []gpu.Process{{PID: 7, Name: "python", Kind: "compute", Memory: ptr(uint64(20 << 30)), GI: ptr(2), CI: ptr(0)}}
	g.MIG.Instances[1].Used = ptr(uint64(20 << 30))
	found := Run(c.Input, Before)
	if len(found) != 1 || found[0].Code != codes.GPUInUse || !strings.Contains(found[0].Message, "MIG device 1 of GPU 0: 20.0 GiB in use: python (pid 7") {
		t.Error(listing(found))
	}
	g.Processes, g.MIG.Instances = nil, g.MIG.Instances[:1]
	if found := Run(c.Input, Before); len(found) != 1 || found[0].Code != codes.GPUMissing {
		t.Error(listing(found))
	}
}

// A part of a machine that a container or a scheduler has given is whole.
func TestAGivenPartOfAMachineIsWhole(t *testing.T) {
	c := healthy(t, 2, "")
	c.facts(1).Devices.PCIDevices = 16
	c.facts(1).Environ = map[string]string{"SLURM_JOB_ID": "7"}
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
}

// The same values give the same findings in the same order, the worst first, hosts in the
// plan's order and not by name.
func TestFindingsComeInOneOrder(t *testing.T) {
	build := func() []Finding {
		c := healthy(t, 12, "")
		for i := range c.Hosts {
			c.Hosts[i].Name = fmt.Sprint("h", i)
			c.card(i, 5).Recovery, c.card(i, 2).Recovery = ptr("gpu_reset"), ptr("gpu_reset")
			c.card(i, 1).PCIe.Width = ptr(4)
			c.card(i, 0).ECC.Aggregate = ptr(uint64(1))
		}
		return Run(c.Input, Before)
	}
	found := build()
	if !reflect.DeepEqual(found, build()) {
		t.Error("the order changes")
	}
	var order []string
	for _, f := range found {
		order = append(order, fmt.Sprint(f.Severity, f.Code, f.Host, *f.GPU))
	}
	if len(order) != 48 || order[0] != "failgpu_recoveryh02" || order[1] != "failgpu_recoveryh05" || order[2] != "failgpu_recoveryh12" ||
		order[22] != "failgpu_recoveryh112" || order[24] != "warnpcie_narrowh01" || order[47] != "infoecc_historyh110" {
		t.Errorf("%q", order)
	}
}
