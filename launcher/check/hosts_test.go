package check

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
)

func runs(host int, torch, nccl string) func(c *cluster) {
	return func(c *cluster) {
		c.Hosts[host].Software = facts.Software{Python: "/opt/venv/bin/python", Version: "3.11.7", Torch: torch, NCCL: nccl}
	}
}

func driver(host int, version string) func(c *cluster) {
	return func(c *cluster) {
		d := c.facts(host).Devices
		d.Driver, d.FabricManager.Version, d.KernelModule = &version, version, version
	}
}

var differentHosts = []scenario{
	{code: codes.DriverDiffers, severity: Warn, hosts: 3, where: "gpu03", says: "NVIDIA driver 535.104.05, where gpu01, gpu02 have 550.54.15", wrong: driver(2, "535.104.05")},
	{code: codes.DriverDiffers, severity: Warn, where: "", says: "hosts differ in NVIDIA driver: 535.104.05 on gpu02; 550.54.15 on gpu01", wrong: driver(1, "535.104.05")},
	{code: codes.DriverDiffers, severity: Warn, hosts: 9, where: "gpu03", says: "gpu01, gpu02, gpu04, gpu05, gpu06, gpu07, gpu08, gpu09 have 550.54.15", wrong: driver(2, "535.104.05")},
	{code: codes.DriverDiffers, severity: Warn, hosts: 5, where: "", says: "gpu03, gpu04 have NVIDIA driver 535.1, where gpu01, gpu02, gpu05 have 550.54.15", wrong: func(c *cluster) { driver(2, "535.1")(c); driver(3, "535.1")(c) }},
	{code: codes.CUDADiffers, severity: Warn, where: "", says: "12.4 on gpu01; 12.6 on gpu02", fix: "cuda-compat", wrong: at(1, func(f *facts.Host) { f.Devices.CUDA = ptr("12.6") })},
	{code: codes.TorchDiffers, severity: Fail, hosts: 3, where: "gpu02", says: "torch 2.3.1+cu121, where gpu01, gpu03 have 2.4.0+cu121", wrong: runs(1, "2.3.1+cu121", "2.20.5")},
	{code: codes.TorchDiffers, severity: Warn, hosts: 3, where: "gpu02", says: "torch 2.4.1+cu121", wrong: runs(1, "2.4.1+cu121", "2.20.5")},
	{code: codes.TorchDiffers, severity: Warn, hosts: 3, where: "gpu02", says: "torch 2.4.0+cu124", wrong: runs(1, "2.4.0+cu124", "2.20.5")},
	{code: codes.NCCLDiffers, severity: Fail, hosts: 3, where: "gpu02", says: "NCCL 2.27.3, where gpu01, gpu03 have 2.20.5", wrong: runs(1, "2.4.0+cu121", "2.27.3")},
	{code: codes.NCCLDiffers, severity: Fail, hosts: 4, where: "", says: "hosts differ in NCCL: 2.20.5 on gpu01, gpu03; 2.27.3 on gpu02, gpu04", wrong: func(c *cluster) { runs(1, "2.4.0+cu121", "2.27.3")(c); runs(3, "2.4.0+cu121", "2.27.3")(c) }},
	{code: codes.NCCLDiffers, severity: Warn, where: "", says: "2.20.3", wrong: runs(1, "2.4.0+cu121", "2.20.3")},
	{code: codes.NCCLDiffers, severity: Info, where: "", says: "2.27.3", ranks: "backend = \"gloo\"", wrong: runs(1, "2.4.0+cu121", "2.27.3")},
	{code: codes.PythonDiffers, severity: Warn, where: "", says: "Python: 3.10.12 on gpu02; 3.11.7 on gpu01", wrong: at(1, func(f *facts.Host) { f.Software.Version = "3.10.12" })},
	{code: codes.PythonDiffers, severity: Info, where: "", says: "3.11.9", wrong: at(1, func(f *facts.Host) { f.Software.Version = "3.11.9" })},
	{code: codes.TorchMissing, severity: Warn, where: "gpu02", says: "runs with /opt/venv/bin/python, which has no torch, where gpu01 has 2.4.0+cu121", fix: "setup", wrong: runs(1, "", "")},
	{code: codes.TorchMissing, severity: Info, where: "", says: "which has no torch (there is no torch in /x)", wrong: func(c *cluster) {
		for i := range c.Hosts {
			c.facts(i).Software = &facts.Software{Python: "/usr/bin/python3", Why: "there is no torch in /x"}
		}
	}},
	{code: codes.CommandMissing, severity: Fail, where: "gpu02", says: "there is no python in PATH (/bin)", wrong: at(1, func(f *facts.Host) { f.Software = &facts.Software{Missing: "there is no python in PATH (/bin)"} })},
	{code: codes.ModuleDiffers, severity: Fail, where: "gpu02", says: "kernel module is of version 550.54.14", fix: "reboot", wrong: at(1, func(f *facts.Host) { f.Devices.KernelModule = "550.54.14" })},
	{code: codes.NCCLSharedGPU, severity: Fail, hosts: 1, where: "gpu01 0", says: "ranks 0 and 1 are on it", fix: "gloo", ranks: "per_host = 4\ndevices = 2\nshared = true\nbackend = \"nccl\"", wrong: runs(0, "2.4.0", "")},
	{code: codes.NCCLSharedGPU, severity: Fail, hosts: 1, where: "gpu01 0", says: "before 2.30 that cannot be changed, and there is 2.29.7", ranks: "per_host = 4\ndevices = 2\nshared = true", more: `env = { NCCL_MULTI_RANK_GPU_ENABLE = "1" }`, wrong: runs(0, "2.4.0", "2.29.7")},
	{code: codes.NCCLSharedGPU, severity: Warn, hosts: 1, where: "gpu01 0", says: "Duplicate GPU", ranks: "per_host = 4\ndevices = 2\nshared = true", wrong: runs(0, "2.4.0", "")},
	{code: codes.NCCLSharedGPU, severity: Fail, hosts: 1, where: "gpu01 0", says: "2.30.1 allows more on demand", fix: "NCCL_MULTI_RANK_GPU_ENABLE", ranks: "per_host = 4\ndevices = 2\nshared = true", wrong: runs(0, "2.12.0", "2.30.1")},
}

// inParts cuts GPU 0 of the only host into two MIG devices.
func inParts(nccl, cuda string) func(*cluster) {
	return func(c *cluster) {
		runs(0, "2.9.0", nccl)(c)
		c.facts(0).Devices.Inventory.CUDA = &cuda
	}
}

func TestNCCLThatRefusesMIGDevicesFailsTheCheck(t *testing.T) {
	for _, test := range []struct {
		nccl, cuda, ranks string
		want              Severity
		says              string
	}{
		{"2.27.5", "13.0", "", Fail, "since 2.31 only, before it refuses them (\"Duplicate GPU detected\"): there is 2.27.5"},
		{"2.31.1", "12.8", "", Fail, "needs a driver with CUDA 13.0, and there is 12.8"},
		{"", "13.0", "", Warn, "not known"},
		{"", "13.0", "backend = \"nccl\"", Fail, "not known"},
		{"2.31.1", "13.0", "", "", ""},
		{"2.27.5", "13.0", "backend = \"gloo\"", "", ""},
	} {
		c := partitioned(t)
		inParts(test.nccl, test.cuda)(c)
		c.plan(test.ranks)
		var found []Finding
		for _, f := range Run(c.Input, Before) {
			if f.Code == codes.NCCLSharedGPU {
				found = append(found, f)
			}
		}
		switch {
		case test.want == "" && len(found) > 0:
			t.Errorf("%+v: %s", test, listing(found))
		case test.want != "" && (len(found) != 1 || found[0].Severity != test.want || !strings.Contains(found[0].Message, test.says)):
			t.Errorf("%+v: %s", test, listing(found))
		}
	}
}

// NCCL takes several ranks on a GPU where it can and was told to.
func TestNCCLThatMaySharesAGPU(t *testing.T) {
	c := healthy(t, 1, "per_host = 4\ndevices = 2\nshared = true", `env = { NCCL_MULTI_RANK_GPU_ENABLE = "1" }`)
	runs(0, "2.12.0", "2.30.1")(c)
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
}

// What is not found before setup, or is only what a job file's python names, or under a PATH
// of the job's own, may be found by workers.
func TestAProgramThatWorkersMayFindIsNotMissing(t *testing.T) {
	for name, more := range map[string]string{"setup": `setup = "source venv/bin/activate"`, "python": `python = "venv/bin/python"`, "PATH": `env = { PATH = "/opt/bin" }`} {
		c := healthy(t, 2, "", more)
		c.facts(1).Software = &facts.Software{Missing: "there is no python in PATH (/bin)"}
		if found := Run(c.Input, Before); len(found) > 0 {
			t.Errorf("%s:\n%s", name, listing(found))
		}
	}
	c := healthy(t, 2, "", `setup = "source venv/bin/activate"`)
	c.Hosts[1].Software = facts.Software{Missing: "there is no python in PATH (/bin)"}
	if found := Run(c.Input, Before); len(found) != 1 || found[0].Code != codes.CommandMissing {
		t.Errorf("after setup:\n%s", listing(found))
	}
}

func port(host, i int, wrong func(p *facts.HCA)) func(c *cluster) {
	return func(c *cluster) { wrong(&c.facts(host).HCAs[i]) }
}

// everywhere is wrong on all hosts.
func everywhere(wrong func(f *facts.Host)) func(c *cluster) {
	return func(c *cluster) {
		for i := range c.Hosts {
			wrong(c.facts(i))
		}
	}
}

func isDown(p *facts.HCA) { p.State, p.PhysState = "down", "polling" }

var smallHosts = []scenario{
	{code: codes.Memlock, severity: Fail, where: "gpu02", says: "may lock 64 KiB of memory", fix: "ulimit -l unlimited", wrong: at(1, func(f *facts.Host) { f.Limits.Memlock.Soft = ptr(uint64(64 << 10)) })},
	{code: codes.Memlock, severity: Fail, where: "gpu02", says: "may lock 8 MiB", fix: "limits.conf", wrong: at(1, func(f *facts.Host) {
		f.Limits.Memlock = facts.Limit{Soft: ptr(uint64(8 << 20)), Hard: ptr(uint64(8 << 20))}
	})},
	{code: codes.Memlock, severity: Warn, where: "gpu02", says: "may lock 16.0 GiB", fix: "docker: --ulimit memlock=-1", wrong: at(1, func(f *facts.Host) {
		f.Limits.Memlock, f.Container = facts.Limit{Soft: ptr(uint64(16 << 30)), Hard: ptr(uint64(16 << 30))}, "docker"
	})},
	{code: codes.NoFile, severity: Warn, where: "gpu02", says: "only 1024 files (ulimit -n); 16 ranks want 4096", wrong: at(1, func(f *facts.Host) { f.Limits.NoFile.Soft = ptr(uint64(1024)) })},
	{code: codes.SharedMemory, severity: Fail, where: "gpu02", says: "/dev/shm has only 64 MiB, for NCCL and the data loaders of 8 ranks", fix: "docker: --shm-size", wrong: at(1, func(f *facts.Host) {
		f.SharedMemory.Total, f.SharedMemory.Free, f.Container = 64<<20, 64<<20, "docker"
	})},
	{code: codes.SharedMemory, severity: Warn, where: "gpu02", says: "has only 64 MiB", fix: "mount", ranks: "devices = 2", wrong: at(1, func(f *facts.Host) { f.SharedMemory.Total, f.SharedMemory.Free = 64<<20, 64<<20 })},
	{code: codes.SharedMemory, severity: Fail, where: "gpu02", says: "there is no /dev/shm", wrong: at(1, func(f *facts.Host) { f.SharedMemory.Total, f.SharedMemory.Free = 0, 0 })},
	{code: codes.SharedMemory, severity: Warn, where: "gpu02", says: "nearly full: 0.5 GiB of 1007.0 GiB are free", fix: "ls -l /dev/shm", wrong: at(1, func(f *facts.Host) { f.SharedMemory.Free = 512 << 20 })},
	{code: codes.DiskFull, severity: Fail, where: "gpu02", says: "/home/ann (home) is nearly full: 99 MiB", wrong: at(1, func(f *facts.Host) { f.Spaces[0].Free = 99 << 20 })},
	{code: codes.DiskFull, severity: Warn, where: "gpu02", says: "/home/ann (home) is nearly full: 15.0 GiB of 1024.0 GiB are free", wrong: at(1, func(f *facts.Host) { f.Spaces[0].Free = 15 << 30 })},
	{code: codes.DiskFull, severity: Warn, where: "gpu02", says: "/scratch (logs) can take only 40000 more files", wrong: at(1, func(f *facts.Host) { f.Spaces[1].InodesFree = 40000 })},
	{code: codes.DiskFull, severity: Fail, where: "gpu02", says: "can take only 12 more files", wrong: at(1, func(f *facts.Host) { f.Spaces[1].InodesFree = 12 })},
	{code: codes.DiskFull, severity: Fail, where: "gpu02", says: "/scratch (logs) is read-only", wrong: at(1, func(f *facts.Host) { f.Spaces[1].ReadOnly = true })},
	{code: codes.DiskFull, severity: Warn, where: "gpu02", says: "/home/ann (home) is read-only", wrong: at(1, func(f *facts.Host) { f.Spaces[0].ReadOnly = true })},
	{code: codes.DiskFull, severity: Warn, where: "gpu02", says: "/tmp (temporary files) is nearly full: 9 MiB", wrong: at(1, func(f *facts.Host) { f.Spaces[2].Free = 9 << 20 })},
	{code: codes.DiskFull, severity: Fail, where: "gpu02", says: "/home/ann (home, logs) is nearly full", wrong: at(1, func(f *facts.Host) {
		f.Spaces = f.Spaces[:1]
		f.Spaces[0].Uses, f.Spaces[0].Free = []string{facts.UseHome, facts.UseLogs}, 9<<20
	})},
	{code: codes.CgroupMemory, severity: Warn, where: "gpu02", says: "may use 8.0 GiB of memory, 1.0 GiB a rank", wrong: at(1, func(f *facts.Host) { f.Cgroup.Memory = ptr(uint64(8 << 30)) })},
	{code: codes.CgroupPIDs, severity: Warn, where: "gpu02", says: "only 4000 processes", wrong: at(1, func(f *facts.Host) { f.Cgroup.PIDs = ptr(uint64(4000)) })},
	{code: codes.CgroupPIDs, severity: Fail, where: "gpu02", says: "only 90 processes and threads may run (pids.max of the cgroup), and the OpenMP threads of its ranks alone are 96", wrong: at(1, func(f *facts.Host) { f.Cgroup.PIDs = ptr(uint64(90)) })},
	{code: codes.ClockOffset, severity: Warn, where: "gpu02", says: "its clock is 4.3 s behind gpu01's", wrong: func(c *cluster) { c.Hosts[1].ClockOffset = ptr(-4.3) }},
	{code: codes.ClockOffset, severity: Warn, hosts: 3, where: "gpu01", says: "its clock is 100.0 s ahead of those of the others: their logs cannot be compared by time, and stores", wrong: func(c *cluster) { c.Hosts[0].ClockOffset = ptr(100.03) }},
	{code: codes.HCADown, severity: Fail, where: "gpu02", says: "mlx5_3: the link is down, polling: no cable, or nothing at its other end, on gpu01 it is up", fix: "^=mlx5_3", wrong: port(1, 3, isDown)},
	{code: codes.HCADown, severity: Info, where: "gpu02", says: "mlx5_3", ranks: "backend = \"gloo\"", wrong: port(1, 3, isDown)},
	{code: codes.HCADown, severity: Warn, where: "gpu02", says: "mlx5_8: the link is down, on gpu01 it is up", wrong: port(1, 8, func(p *facts.HCA) { p.State = "down" })},
	{code: codes.HCADown, severity: Warn, where: "gpu02", says: "mlx5_10: the link is down", wrong: at(1, func(f *facts.Host) {
		f.HCAs[9] = facts.HCA{Name: "mlx5_10", Port: 1, State: "down", LinkLayer: "InfiniBand"}
	})},
	{code: codes.HCADown, severity: Fail, where: "gpu02", says: "init: it waits for the subnet manager", fix: "opensm", wrong: port(1, 3, func(p *facts.HCA) { p.State = "init" })},
	{code: codes.HCASlow, severity: Warn, where: "gpu02", says: "mlx5_4: runs at 200 Gb/s, its sisters at 400", wrong: port(1, 4, func(p *facts.HCA) { p.SpeedGbps = 200 })},
	{code: codes.HCASlow, severity: Warn, where: "gpu02", says: "mlx5_8: runs at 10 Gb/s, that of gpu01 at 25", wrong: port(1, 8, func(p *facts.HCA) { p.SpeedGbps = 10 })},
	{code: codes.HCASlow, severity: Info, where: "gpu02", says: "mlx5_4", ranks: "backend = \"gloo\"", wrong: port(1, 4, func(p *facts.HCA) { p.SpeedGbps = 200 })},
	{code: codes.HCAMissing, severity: Warn, where: "gpu02", says: "it has 9 InfiniBand devices, gpu01 has 10", wrong: at(1, func(f *facts.Host) { f.HCAs = f.HCAs[1:] })},
	{code: codes.HCAMissing, severity: Warn, hosts: 2, where: "gpu02", says: "NCCL_IB_HCA==mlx5_7 names no device there", more: `env = { NCCL_IB_HCA = "=mlx5_7" }`, wrong: at(1, func(f *facts.Host) { f.HCAs[7].Name = "mlx5_17" })},
	{code: codes.VerbsMissing, severity: Warn, where: "gpu02", says: "uverbs", fix: "rdma-core", wrong: at(1, func(f *facts.Host) { f.Verbs = ptr(false) })},
	{code: codes.PeerMemory, severity: Warn, where: "gpu02", says: "dma-buf", fix: "nvidia_peermem", wrong: at(1, func(f *facts.Host) { f.PeerMemory = ptr(false) })},
}

// A limit that binds nobody is none: memlock without InfiniBand, on one host, or where
// workers get the hard limit.
func TestMemlockMattersToInfiniBandOnly(t *testing.T) {
	small := facts.Limit{Soft: ptr(uint64(64 << 10))}
	one, gloo, without, raised := healthy(t, 1, ""), healthy(t, 2, "backend = \"gloo\""), healthy(t, 2, ""), healthy(t, 2, "")
	for i := range 2 {
		without.facts(i).HCAs = nil
	}
	raised.LimitsRaised = true
	for name, c := range map[string]*cluster{"one host": one, "gloo": gloo, "no InfiniBand": without, "raised": raised} {
		c.facts(0).Limits.Memlock = small
		if found := Run(c.Input, Before); len(found) > 0 {
			t.Errorf("%s:\n%s", name, listing(found))
		}
	}
}

// A port that is down on all hosts is one that nobody has wired.
func TestAPortThatIsDownEverywhereIsSilent(t *testing.T) {
	c := healthy(t, 2, "")
	everywhere(func(f *facts.Host) {
		f.HCAs = append(f.HCAs, facts.HCA{Name: "mlx5_0", Port: 2, State: "down", PhysState: "polling", LinkLayer: "InfiniBand"})
	})(c)
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
}

// The launcher's clock may be the one that is off.
func TestClocksAreComparedWithEachOther(t *testing.T) {
	c := healthy(t, 3, "")
	for i := range c.Hosts {
		c.Hosts[i].ClockOffset = ptr(500.0 + 0.3*float64(i))
	}
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Error(listing(found))
	}
	c.Hosts[1].ClockOffset, c.Hosts[1].ClockError = ptr(510.0), 15
	if found := Run(c.Input, Before); len(found) > 0 {
		t.Errorf("within the error of measuring:\n%s", listing(found))
	}
}

func refuses(host int) func(c *cluster) {
	return func(c *cluster) {
		c.Hosts[host].Reach[0] = Reach{Addr: address(0) + ":29400", Error: "connection refused"}
	}
}

var cutNetworks = []scenario{
	{code: codes.Unreachable, severity: Fail, hosts: 3, where: "gpu01", says: "at 10.0.0.1 it is not reached by every host: not by gpu02", fix: "firewall", wrong: refuses(1)},
	{code: codes.Unreachable, severity: Fail, hosts: 3, where: "gpu01", says: "at 10.0.0.1 it is not reached", wrong: func(c *cluster) { // another would do, but this one is chosen
		refuses(1)(c)
		for i := range c.Hosts {
			c.Hosts[i].Reach = append(c.Hosts[i].Reach, Reach{Addr: "10.1.0.1"})
		}
		c.Meeting.MasterAddr = "10.0.0.1"
	}},
	{code: codes.Unreachable, severity: Fail, where: "gpu02", says: "at 10.0.0.2 it is not reached by every host: not by gpu01", wrong: func(c *cluster) {
		c.Hosts[0].Reach = append(c.Hosts[0].Reach, Reach{Of: 1, Addr: "10.0.0.2:9", Error: "no route to host"})
	}},
	{code: codes.MTUDiffers, severity: Warn, hosts: 3, where: "gpu03", says: "an MTU of 1500, where gpu01, gpu02 have 9000", fix: "ip link set dev eno1 mtu", wrong: at(2, func(f *facts.Host) { f.NICs[1].MTU = 1500 })},
	{code: codes.MTUBlackHole, severity: Fail, hosts: 3, where: "", says: "gpu02 and gpu03: connections stand and large packets do not get through (those of 1450 bytes do); the MTU is 9000 on eno1 of gpu02 and 9000 on eno1 of gpu03", fix: "ip link set dev", wrong: func(c *cluster) {
		c.Hosts[2].Visits = []Visit{{Of: 0, Addr: address(0), From: address(2)}, {Of: 1, Addr: address(1), From: address(2), Stuck: true, Passes: 1450}}
	}},
	{code: codes.Unreachable, severity: Fail, hosts: 3, where: "", says: "gpu01 and gpu02: connections stand and data does not get through", fix: "firewall", wrong: func(c *cluster) {
		c.Hosts[1].Visits = []Visit{{Of: 0, Addr: address(0), From: address(1), Stuck: true}}
	}},
	{code: codes.Unreachable, severity: Warn, hosts: 3, where: "", says: "took longer than 5 s", fix: "--collective", wrong: func(c *cluster) {
		c.Hosts[1].Visits = []Visit{{Of: 0, Addr: address(0), From: address(1), Stuck: true, Passes: 9000}}
	}},
	{code: codes.NameLoopback, severity: Warn, where: "gpu02", says: "its name gpu02 resolves to 127.0.1.1 there", fix: "/etc/hosts", ranks: "backend = \"gloo\"", more: `program = "jax"`, wrong: at(1, func(f *facts.Host) { f.HostnameAddrs = []string{"127.0.1.1"} })},
	{code: codes.SameSubnet, severity: Warn, where: "gpu02", says: "eno1 and eno2 are both in 10.0.0.0/24", wrong: func(c *cluster) {
		nic := &c.facts(1).NICs[2]
		nic.Up, nic.Addresses, nic.Networks = true, []string{"10.0.0.77"}, []string{"10.0.0.77/24"}
	}},
	{code: codes.InterfaceMissing, severity: Fail, where: "gpu02", says: "interface eno1 does not exist (NCCL_SOCKET_IFNAME is set); present: lo, eth0, eno2, docker0", fix: "leave the variable out", more: `env = { NCCL_SOCKET_IFNAME = "eno1" }`, wrong: at(1, func(f *facts.Host) { f.NICs[1].Name = "eth0" })},
	{code: codes.InterfaceMissing, severity: Fail, where: "gpu02", says: "interface eno1 does not exist (GLOO_SOCKET_IFNAME", more: `env = { GLOO_SOCKET_IFNAME = "eno1" }`, wrong: at(1, func(f *facts.Host) { f.NICs[1].Name = "eno11" })},
	{code: codes.InterfaceUnfit, severity: Warn, hosts: 2, where: "gpu02", says: "NCCL_SOCKET_IFNAME=eno2,eno1: eno1 is down, eno2 is down", more: `env = { NCCL_SOCKET_IFNAME = "eno2,eno1" }`, wrong: func(c *cluster) {
		c.facts(1).NICs[1].Up = false
		c.Hosts[1].Reach[0].From = ""
	}},
}

// torch is told an interface, and NCCL takes none from the name.
func TestANameThatLeadsBackIsSilentWithTorch(t *testing.T) {
	for name, c := range map[string]*cluster{
		"torch": healthy(t, 2, "backend = \"gloo\""), "NCCL": healthy(t, 2, "", `program = "jax"`), "one host": healthy(t, 1, "backend = \"gloo\"", `program = "jax"`),
	} {
		everywhere(func(f *facts.Host) { f.HostnameAddrs = []string{"127.0.1.1"} })(c)
		if found := Run(c.Input, Before); len(found) > 0 {
			t.Errorf("%s:\n%s", name, listing(found))
		}
	}
}

// What leads to no other host is said on every host (B30).
func TestABridgeIsNoWayToOtherHosts(t *testing.T) {
	for value, want := range map[string]string{"docker0": "docker0 is docker's bridge", "lo": "lo is loopback", "=eno2": "eno2 is down"} {
		found := Run(healthy(t, 2, "", `env = { NCCL_SOCKET_IFNAME = "`+value+`" }`).Input, Before)
		if len(found) != 2 || found[0].Code != codes.InterfaceUnfit || !strings.Contains(found[0].Message, want) || found[1].Host != "gpu02" {
			t.Errorf("%s:\n%s", value, listing(found))
		}
	}
}

// Who cannot reach whom is a table.
func TestWhoCannotReachWhomIsATable(t *testing.T) {
	c := healthy(t, 3, "")
	c.facts(0).NICs = append(c.facts(0).NICs, facts.NIC{Name: "ib0", Up: true, MTU: 2044, Addresses: []string{"10.1.0.1"}})
	c.Hosts[1].Reach = []Reach{{Addr: "10.0.0.1:1", Error: "no answer within 5s"}, {Addr: "10.1.0.1:1", From: "10.1.0.2"}}
	c.Hosts[2].Reach = []Reach{{Addr: "10.0.0.1:1", From: "10.0.0.3"}, {Addr: "10.1.0.1:1", Error: "network is unreachable"}}
	found := Run(c.Input, Before)
	want := `gpu01: none of its addresses is reached by every host
  FROM   10.0.0.1 (eno1)          10.1.0.1 (ib0)
  gpu01  yes, from 10.0.0.1       not tried
  gpu02  no: no answer within 5s  yes, from 10.1.0.2
  gpu03  yes, from 10.0.0.3       no: network is unreachable`
	if len(found) != 1 || found[0].Message != want {
		t.Error(listing(found))
	}
}
