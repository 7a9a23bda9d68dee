package check

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// links are about a GPU's ways to others.
func (h *hostJudge) links(g usedGPU) {
	h.nvlinks(g)
	h.fabric(g)
	h.pcie(g)
}

// pcie is about the link to the machine. Its width counts at any time; its generation drops
// whenever a card is idle (N), so that only what it could be is compared here, with sister
// GPUs of other slots.
func (h *hostJudge) pcie(g usedGPU) {
	const fix = "reseat the card or its riser; on a board that shares lanes between slots it is meant so, check { ignore = [\"%s\"] }"
	now, most := g.PCIe.Width, g.PCIe.WidthMax
	sisters := h.widestSister(g)
	switch {
	case now != nil && most != nil && *now < *most:
		// A drains such machines; but boards of workstations share lanes out by design.
		words := ""
		if sisters > *now {
			words = ", its sister GPUs have more"
		}
		h.sayOf(g, codes.PCIeNarrow, "", fmt.Sprintf(fix, codes.PCIeNarrow), "PCIe link x%d of x%d%s", *now, *most, words)
	case now != nil && *now < sisters:
		h.sayOf(g, codes.PCIeNarrow, "", fmt.Sprintf(fix, codes.PCIeNarrow), "PCIe link x%d, those of its sister GPUs are x%d", *now, sisters)
	}
	if best := h.fastestSister(g); g.PCIe.GenerationMax != nil && *g.PCIe.GenerationMax < best {
		h.sayOf(g, codes.PCIeSlow, "", fmt.Sprintf(fix, codes.PCIeSlow)+"; the firmware's setup may hold the slot down too",
			"PCIe link of generation %d at most, those of its sister GPUs are of %d", *g.PCIe.GenerationMax, best)
	}
}

// widestSister and fastestSister are the most lanes and the best generation among sister
// GPUs; 0 where they do not tell.
func (h *hostJudge) widestSister(g usedGPU) (most int) {
	for _, s := range h.sisters(g) {
		most = max(most, gpu.OrZero(s.PCIe.Width))
	}
	return most
}

func (h *hostJudge) fastestSister(g usedGPU) (best int) {
	for _, s := range h.sisters(g) {
		best = max(best, gpu.OrZero(s.PCIe.GenerationMax))
	}
	return best
}

// nvlinks compares with the sister GPUs, as A and preflight scripts do: a link that is
// down on all of them is not wired.
func (h *hostJudge) nvlinks(g usedGPU) {
	if g.NVLinks == nil {
		return
	}
	up, most, same := active(g), 0, 0
	for _, s := range h.sisters(g) {
		if s.NVLinks == nil {
			continue
		}
		most = max(most, active(s))
		if active(s) == up {
			same++
		}
	}
	if up >= most {
		return
	}
	const fix = "have it reset; if that does not help, its board or the switch it leads to is to be looked at. Until then leave it out with ranks { devices = [...] }"
	severity := lowered(Fail, len(h.part.Devices) < 2, Warn)
	if up == 0 {
		if isCard(g.Name) && (same+1)%2 == 0 {
			return // bridges join pairs, and so many cards have none
		}
		severity = lowered(severity, isCard(g.Name), Info)
	}
	h.sayOf(g, codes.NVLinksDown, severity, fix, "%d of %d NVLinks are up, its sister GPUs have %d", up, max(len(g.NVLinks), most), most)
}

func active(g usedGPU) int {
	n := 0
	for _, l := range g.NVLinks {
		if l.Active {
			n++
		}
	}
	return n
}

// isCard reports whether a product is a PCIe card, whose NVLinks lead to a bridge that may
// not be fitted. Boards (SXM, and names such as "NVIDIA H100 80GB HBM3") have them wired.
func isCard(name string) bool {
	for _, board := range []string{"SXM", "HBM3", "H200", "B200", "B300"} {
		if strings.Contains(name, board) && !strings.Contains(name, "PCIe") && !strings.Contains(name, "NVL") {
			return false
		}
	}
	return true
}

// fabric is about machines with NVSwitch, on which CUDA starts with error 802 (system not
// yet initialized) until the fabric manager has set up the fabric.
func (h *hostJudge) fabric(g usedGPU) {
	if g.Fabric == nil || *g.Fabric == "completed" {
		return
	}
	const start = "systemctl start nvidia-fabricmanager, by root, on that machine; it must be of the driver's version"
	switch *g.Fabric {
	case "not_started":
		h.sayOf(g, codes.FabricNotReady, "", start, "the NVSwitch fabric is not ready: nvidia-fabricmanager does not run")
	case "in_progress":
		h.sayOf(g, codes.FabricNotReady, "", "wait a minute: after a boot it takes that long", "the NVSwitch fabric is not ready: it is still being set up")
	default:
		h.sayOf(g, codes.FabricNotReady, "", "journalctl -u nvidia-fabricmanager says why", "the NVSwitch fabric is not ready: %s", gpu.Spaced(*g.Fabric))
	}
}

// fabricManager is about its service, where no GPU tells of the fabric (A100 boards).
func (h *hostJudge) fabricManager() {
	d := h.Facts.Devices
	if d == nil || d.NVSwitches == 0 || len(h.part.Devices) == 0 {
		return
	}
	m, driver := d.FabricManager, ""
	if d.Inventory != nil && d.Driver != nil {
		driver = *d.Driver
	}
	switch {
	case m.State == nvidia.NotInstalled:
		h.say(codes.FabricManager, "", "install the fabric manager of the driver's version and start it, by root, on that machine",
			"nvidia-fabricmanager is not installed, and %s", cudaNeeds(d))
	case m.State != "" && m.State != nvidia.Active:
		h.say(codes.FabricManager, "", "systemctl start nvidia-fabricmanager, by root, on that machine; journalctl -u nvidia-fabricmanager says why it stopped",
			"nvidia-fabricmanager is %s, and %s", m.State, cudaNeeds(d))
	case m.Version != "" && driver != "" && m.Version != driver:
		// One that runs has been let in by the driver when it started.
		h.say(codes.FabricManager, lowered(Fail, m.State == nvidia.Active, Warn), "install the fabric manager of the driver's version and restart it",
			"nvidia-fabricmanager is of version %s, the driver of %s: at its next start it refuses to work with it", m.Version, driver)
	}
}

func cudaNeeds(d *facts.Devices) string {
	need := "need"
	if d.NVSwitches == 1 {
		need = "needs"
	}
	return fmt.Sprintf("%s %s it: CUDA would not start (error 802, system not yet initialized)", plural.Of(d.NVSwitches, "NVSwitch device"), need)
}
