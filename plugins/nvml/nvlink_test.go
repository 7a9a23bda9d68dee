//go:build linux && cgo

package nvml

import (
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

func TestBridgesJoinPairsAndPCIeTheRest(t *testing.T) {
	m := dgx(8)
	for i, card := range m.gpus {
		linked(card, i^1, i^1, i^1, -1) // one link of four is down
	}
	linked(m.gpus[6], -1, -1, -1, -1)
	linked(m.gpus[7])
	got := probed(t, m.prober(t))
	same(t, "row 0", got.Links[0], "[X NV3 NODE NODE SYS SYS SYS SYS]")
	same(t, "row 6", got.Links[6], "[SYS SYS SYS SYS NODE NODE X PXB]")
	same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 1}, {2, 3}, {4, 5}, {6}, {7}})
	same(t, "ports", got.GPUs[0].NVLinks, "[{0 true} {1 true} {2 true} {3 false}]")
	same(t, "all down", len(got.GPUs[6].NVLinks), 4)
	same(t, "no ports", got.GPUs[7].NVLinks == nil, true)
}

func TestACubeMeshHasTwoIslands(t *testing.T) {
	// A DGX-1 with V100: a hybrid cube mesh of six links each.
	mesh := [][]int{
		{1, 2, 3, 3, 4, 4}, {0, 2, 2, 3, 5, 5}, {0, 1, 1, 3, 3, 6}, {0, 0, 1, 2, 2, 7},
		{0, 0, 5, 6, 7, 7}, {1, 1, 4, 6, 6, 7}, {2, 4, 5, 5, 7, 7}, {3, 4, 4, 5, 6, 6},
	}
	m := dgx(8)
	for i, peers := range mesh {
		linked(m.gpus[i], peers...)
	}
	got := probed(t, m.prober(t))
	same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}})
	same(t, "row 0", got.Links[0], "[X NV1 NV1 NV2 NV2 SYS SYS SYS]")
}

func TestALinkToASwitchThatIsDownMakesItsPairsSlower(t *testing.T) {
	m := dgx(3)
	switched(m.gpus[2], 11)
	got := probed(t, m.prober(t))
	same(t, "links", got.Links, "[[X NV12 NV11] [NV12 X NV11] [NV11 NV11 X]]")
}

func TestLinksToHiddenGPUsJoinNobody(t *testing.T) {
	m := dgx(2)
	for _, card := range m.gpus {
		linked(card, 6, 6, 7, 7)
	}
	same(t, "link", probed(t, m.prober(t)).Links[0][1], "PXB")
}

func TestPCIeLevelsHaveTheirNames(t *testing.T) {
	for level, want := range map[nvml.GpuTopologyLevel]string{
		nvml.TOPOLOGY_INTERNAL: "PIX", nvml.TOPOLOGY_SINGLE: "PIX", nvml.TOPOLOGY_MULTIPLE: "PXB", nvml.TOPOLOGY_HOSTBRIDGE: "PHB",
		nvml.TOPOLOGY_NODE: "NODE", nvml.TOPOLOGY_SYSTEM: "SYS",
	} {
		m := dgx(2)
		for _, card := range m.gpus {
			linked(card)
			card.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) { return level, nvml.SUCCESS }
		}
		same(t, fmt.Sprint(level), probed(t, m.prober(t)).Links[0][1], want)
	}
}

func TestAPortThatDoesNotAnswerIsLeftOutAndNoted(t *testing.T) {
	m := dgx(1)
	before := m.gpus[0].GetNvLinkStateFunc
	m.gpus[0].GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link == 3 {
			return 0, nvml.ERROR_UNKNOWN
		}
		return before(link)
	}
	got := probed(t, m.prober(t))
	same(t, "ports", len(got.GPUs[0].NVLinks), 11)
	same(t, "notes", got.Notes, []string{`GPU 0: NVLink 3: NVML says "ERROR_UNKNOWN"`})
}

func TestNVLinksOfAGPUThatNeedsAResetAreAskedForOnce(t *testing.T) {
	m := dgx(2)
	asked := 0
	m.gpus[0].GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) {
		asked++
		return 0, nvml.ERROR_RESET_REQUIRED
	}
	got := probed(t, m.prober(t))
	same(t, "state, questions, notes", fmt.Sprint(got.GPUs[0].State, asked, len(got.Notes)), "needs_reset1 0")
	same(t, "link", got.Links[0][1], "PXB")
}
