package plan_test

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Data-parallel jobs have no groups in their files, and are those that hang over PCIe.
func TestAllRanksOfAHostAreAGroupForDirectAccessByPCIe(t *testing.T) {
	node, sys := "NODE (between host bridges of one NUMA node)", "SYS (between CPU sockets)"
	disabled := plan.Meeting{Environ: []map[string]string{{"NCCL_P2P_DISABLE": "1"}}}
	for _, c := range []struct {
		name   string
		link   func(i, j int) gpu.Link
		ranks  string
		m      plan.Meeting
		want   []string
		nvlink bool
	}{
		{"boards on PCIe", pcie, "", plan.Meeting{}, []string{node, sys}, false},
		{"a group that lies well", bridged, "    groups = { tensor = 2 }", plan.Meeting{}, []string{node, sys}, true},
		{"boards on one socket", pcie, "    devices = [0, 1, 2]", plan.Meeting{}, []string{node}, false},
		{"NVSwitch", nvswitch, "", plan.Meeting{}, nil, true},
		{"one rank", pcie, "    devices = [0]", plan.Meeting{}, nil, false},
		{"nothing is known of links", func(int, int) gpu.Link { return "" }, "", plan.Meeting{}, nil, false},
		{"switched off on the host", pcie, "", disabled, nil, false},
	} {
		p := mustMake(t, on(t, 1, c.ranks), machine(0, 8, c.link))
		if ways, nvlink := environ.PCIe(p, 0, c.m); !slices.Equal(ways, c.want) || nvlink != c.nvlink {
			t.Errorf("%s: %q, NVLink %v", c.name, ways, nvlink)
		}
	}
}

func TestWhatNCCLsOwnFileKeepsFromPCIeIsNotSaidOfIt(t *testing.T) {
	h := machine(0, 8, pcie)
	h.NCCLFiles = []facts.NCCLFile{{Path: "/etc/nccl.conf", Values: map[string]string{"NCCL_P2P_LEVEL": "PHB"}}}
	if ways, _ := environ.PCIe(mustMake(t, on(t, 1, ""), h), 0, plan.Meeting{}); len(ways) != 1 {
		t.Errorf("%q", ways)
	}
}

// MIG devices have no direct access over PCIe.
func TestMIGDevicesAreNotSaidToReachEachOtherByPCIe(t *testing.T) {
	h := cut("1g.10gb 1g.10gb", "1g.10gb")
	h.Devices.Links = [][]gpu.Link{{"X", "PIX"}, {"PIX", "X"}}
	p := mustMake(t, on(t, 1, `devices = "1g.10gb"`), h)
	if ways, _ := environ.PCIe(p, 0, plan.Meeting{}); len(ways) != 0 {
		t.Errorf("%q", ways)
	}
}
