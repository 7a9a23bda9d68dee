package nccl

import (
	"strings"
	"testing"
)

// machine is a host of two with four GPUs linked by NVLink and one InfiniBand device.
func machine(change func(*Host)) Host {
	h := Host{
		Name: "gpu01", Hosts: 2, GPUs: 4, NVLink: true, AllNV: true,
		Adapters: []string{"mlx5_0", "mlx5_1", "mlx5_10"},
		Interfaces: []Interface{
			{Name: "lo", Up: true, Loopback: true},
			{Name: "eth0", Up: true},
			{Name: "eth1", Up: true},
			{Name: "eth10", Up: true},
			{Name: "eth2"},
			{Name: "docker0", Up: true, Virtual: "bridge"},
		},
	}
	if change != nil {
		change(&h)
	}
	return h
}

// TestAdvice: variables, what the host is, and what is said, "" where nothing is.
func TestAdvice(t *testing.T) {
	pcie := func(h *Host) { h.NVLink, h.AllNV = false, false }
	alone := func(h *Host) { h.Hosts = 1 }
	for _, c := range []struct {
		vars   string
		change func(*Host)
		code   string
		says   string
	}{
		{"", nil, "", ""},
		{"NCCL_P2P_LEVEL=NVL", nil, "", ""},
		{"NCCL_P2P_LEVEL=NVL", pcie, CodeP2P, "no two of the job's GPUs there are linked by NVLink"},
		{"NCCL_P2P_LEVEL=NVL", func(h *Host) { pcie(h); h.GPUs = 1 }, "", ""},
		{"NCCL_P2P_LEVEL=PHB", pcie, "", ""},
		{"NCCL_P2P_LEVEL=LOC", nil, CodeP2P, "NVLink is turned off too"},
		{"NCCL_P2P_DISABLE=1", nil, CodeP2P, "NVLink is turned off too"},
		{"NCCL_P2P_DISABLE=1", pcie, "", ""},
		{"NCCL_P2P_DISABLE=true", nil, "", ""}, // it does nothing, as Check says
		{"NCCL_P2P_DISABLE=0", nil, "", ""},
		{"NCCL_SHM_DISABLE=1", pcie, CodeP2P, "through the network"},
		{"NCCL_SHM_DISABLE=1", nil, "", ""},
		{"NCCL_IB_DISABLE=1", nil, CodeNetwork, "leaves aside what is up there (mlx5_0, mlx5_1, mlx5_10)"},
		{"NCCL_IB_DISABLE=1", alone, "", ""},
		{"NCCL_IB_DISABLE=true", nil, "", ""},
		{"NCCL_IB_DISABLE=1", func(h *Host) { h.Adapters = []string{} }, "", ""},
		{"NCCL_NET=socket", nil, CodeNetwork, "goes through TCP"},
		{"NCCL_NET=IB", nil, "", ""},
		{"NCCL_NET=IB", func(h *Host) { h.Adapters = []string{} }, CodeInterface, "NCCL fails"},
		{"NCCL_NET=IB", func(h *Host) { h.Adapters = nil }, "", ""},
		{"NCCL_IB_HCA==mlx5_1", nil, "", ""},
		{"NCCL_IB_HCA=mlx5_1", nil, CodePrefix, "mlx5_10 is taken too"},
		{"NCCL_IB_HCA=mlx5", nil, "", ""},
		{"NCCL_IB_HCA==mlx5_2", nil, CodeInterface, "up: mlx5_0, mlx5_1, mlx5_10"},
		{"NCCL_IB_HCA==mlx5_2 NCCL_IB_DISABLE=1", nil, CodeNetwork, "NCCL_IB_DISABLE=1"},
		{"NCCL_SOCKET_IFNAME==eth0", nil, "", ""},
		{"NCCL_SOCKET_IFNAME=eth", nil, "", ""},
		{"NCCL_SOCKET_IFNAME=^docker", nil, "", ""},
		{"NCCL_SOCKET_IFNAME=eno1", nil, CodeInterface, "present: docker0, eth0, eth1, eth10, eth2, lo"},
		{"NCCL_SOCKET_IFNAME=lo", nil, CodeInterface, "lo is the loopback"},
		{"NCCL_SOCKET_IFNAME=lo", alone, "", ""},
		{"NCCL_SOCKET_IFNAME=docker0", nil, CodeInterface, "docker0 is a bridge"},
		{"NCCL_SOCKET_IFNAME==eth2", nil, CodeInterface, "eth2 is down"},
		{"NCCL_SOCKET_IFNAME=eth1", nil, CodePrefix, "eth10 is taken too"},
		{"NCCL_SOCKET_IFNAME=eth1", func(h *Host) { h.Interfaces = nil }, "", ""},
		{"NCCL_SOCKET_NTHREADS=8 NCCL_NSOCKS_PERTHREAD=8", nil, "", ""},
		{"NCCL_SOCKET_NTHREADS=16 NCCL_NSOCKS_PERTHREAD=8", nil, CodeRange, "it is 128"},
		{"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET NCCL_DEBUG_FILE=/x.%p", nil, "", ""},
		{"NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=NET", nil, CodeNoEffect, "NCCL_DEBUG=INFO"},
		{"NCCL_DEBUG_FILE=/x.%p", nil, CodeNoEffect, "nothing is written"},
		{"", func(h *Host) { h.Sharing = true }, CodeSharedGPU, "before 2.30"},
		{"", func(h *Host) { h.Sharing, h.Version.NCCL = true, at(30, 7) }, CodeSharedGPU, "ranks share a GPU, and NCCL takes one rank of a job per GPU, with MPS too (\"Duplicate GPU detected\"): 2.30.7 allows more on demand"},
		{"NCCL_MULTI_RANK_GPU_ENABLE=1", func(h *Host) { h.Sharing, h.Version.NCCL = true, at(30, 7) }, "", ""},
		{"NCCL_MULTI_RANK_GPU_ENABLE=1", func(h *Host) { h.Sharing, h.Version.NCCL = true, at(27, 3) }, CodeSharedGPU, "before 2.30"},
		// Of ranks that share MIG devices one thing is said.
		{"", shared(parts(false, Release{}, "")), CodeSharedGPU, "ranks share a MIG device, and NCCL takes one rank of a job per MIG device, with MPS too (\"Duplicate GPU detected\"): before 2.31 that cannot be changed, and which"},
		{"NCCL_MULTI_RANK_GPU_ENABLE=1", shared(parts(true, at(30, 7), "13.0")), CodeSharedGPU, "before 2.31 that cannot be changed, and there is 2.30.7"},
		{"", shared(parts(false, at(31, 2), "12.8")), CodeSharedGPU, "for more it needs a driver with CUDA 13.0"},
		{"", shared(parts(false, at(31, 2), "13.0")), CodeSharedGPU, "NCCL_MULTI_RANK_GPU_ENABLE = \"1\""},
		{"NCCL_MULTI_RANK_GPU_ENABLE=1", shared(parts(false, at(31, 2), "13.0")), "", ""},
		{"", shared(parts(true, at(31, 2), "13.0")), "", ""}, // a rule sets it
		{"", parts(true, at(27, 3), ""), CodeSharedGPU, "since 2.31 only, before it refuses them (\"Duplicate GPU detected\"): there is 2.27.3"},
		{"", parts(true, Release{}, ""), CodeSharedGPU, "which release is there is not known"},
		{"", parts(true, at(31, 1), "12.8"), CodeSharedGPU, "it needs a driver with CUDA 13.0, and there is 12.8"},
		{"", parts(true, at(31, 1), "13.0"), "", ""},
		{"", parts(true, at(31, 1), ""), "", ""},
		{"NCCL_MULTI_RANK_GPU_ENABLE=1", parts(true, at(30, 4), "13.0"), CodeMIG, "keeps from refusing, not more"},
		{"NCCL_MULTI_RANK_GPU_ENABLE=1", parts(true, at(29, 7), "13.0"), CodeSharedGPU, "or take one MIG device per GPU"},
		{"", parts(false, at(30, 4), "13.0"), CodeMIG, "NCCL supports MIG devices since 2.31 only: there is 2.30.4"},
		{"", func(h *Host) { parts(false, at(30, 4), "")(h); h.Ranks = 1 }, "", ""},
		{"NCCL_MNNVL_ENABLE=2", parts(false, at(31), "13.1"), CodeMIG, "have no NVLink"},
		{"NCCL_MNNVL_ENABLE=0", parts(false, at(31), "13.1"), "", ""},
		{"NCCL_NVLS_ENABLE=1", parts(true, at(31, 2), "13.1"), CodeMIG, "NCCL does not start"},
		{"NCCL_NVLS_ENABLE=2", parts(true, at(31, 2), "13.1"), "", ""},
		{"NCCL_MULTI_RANK_GPU_ENABLE=0", parts(true, at(31, 2), "13.1"), CodeMIG, "refuses them without it"},
	} {
		var vars []Var
		for _, pair := range strings.Fields(c.vars) {
			name, value, _ := strings.Cut(pair, "=")
			vars = append(vars, Var{Name: name, Value: value, Source: "job.hcl:9"})
		}
		found := Advise(vars, machine(c.change))
		if seen(found) != c.code {
			t.Errorf("%s: %+v, want %q", c.vars, found, c.code)
			continue
		}
		for _, f := range found {
			if !strings.Contains(f.Message+"; "+f.Fix, c.says) || f.Host != "gpu01" || c.vars != "" && f.Source != "job.hcl:9" {
				t.Errorf("%s: %+v, want %q", c.vars, f, c.says)
			}
		}
	}
}

// TestRulesHaveASource: and hold for the cases that they are made for only.
func TestRulesHaveASource(t *testing.T) {
	for _, rule := range Rules {
		v, known := Lookup(rule.Name)
		if !known || len(v.misread(rule.Value, Version{})) > 0 || rule.Why == "" || rule.Source == "" || rule.When(Host{}) {
			t.Errorf("%+v", rule)
		}
	}
	for release, want := range map[Release]int{{}: 0, at(23, 4): 0, at(24, 3): 1, at(26, 2): 1, at(26, 5): 0, at(30, 7): 0} {
		h := Host{Container: true, Version: Version{NCCL: release}}
		if got := Derived(h); len(got) != want {
			t.Errorf("in a container with NCCL %v: %v", release, got)
		}
		h.Container = false
		if got := Derived(h); len(got) > 0 {
			t.Errorf("outside: %v", got)
		}
	}
}

// parts has the job's ranks on two MIG devices, of one GPU or of two.
func parts(oneGPU bool, version Release, cuda string) func(*Host) {
	return func(h *Host) { h.Parts, h.OneGPU, h.Ranks, h.Version.NCCL, h.CUDA = 2, oneGPU, 2, version, cuda }
}

// shared has two ranks on one of its devices besides.
func shared(change func(*Host)) func(*Host) {
	return func(h *Host) {
		change(h)
		h.Sharing = true
	}
}

func TestNVLinkBeyondTheHostIsOffForMIGDevices(t *testing.T) {
	h := Host{Parts: 2, Ranks: 2, Fabric: true, Version: Version{NCCL: at(31, 1)}}
	got := Derived(h)
	if len(got) != 1 || got[0].Name != "NCCL_MNNVL_ENABLE" || got[0].Value != "0" {
		t.Errorf("derived %+v", got)
	}
	for _, change := range []func(*Host){
		func(h *Host) { h.Parts = 0 }, func(h *Host) { h.Fabric = false }, func(h *Host) { h.Ranks = 1 }, func(h *Host) { h.Version.NCCL = at(30) },
	} {
		other := h
		change(&other)
		if got := Derived(other); len(got) > 0 {
			t.Errorf("%+v: %+v", other, got)
		}
	}
}

// NCCL 2.31.2 takes them for one GPU, whatever its guide says.
func TestMIGDevicesOfOneGPUAreLetThrough(t *testing.T) {
	for oneGPU, want := range map[bool]string{true: "NCCL_MULTI_RANK_GPU_ENABLE=1", false: ""} {
		got := ""
		for _, v := range Derived(Host{Parts: 2, OneGPU: oneGPU, Ranks: 2, Version: Version{NCCL: at(31, 2)}}) {
			got += v.Name + "=" + v.Value
		}
		if got != want {
			t.Errorf("of one GPU %v: %q, want %q", oneGPU, got, want)
		}
	}
	if got := Derived(Host{Parts: 2, OneGPU: true, Ranks: 2, Version: Version{NCCL: at(30, 7)}}); len(got) > 0 {
		t.Errorf("2.30: %+v", got)
	}
}
