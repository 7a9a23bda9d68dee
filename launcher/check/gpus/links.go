package gpus

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

func reseat(code string) string {
	return fmt.Sprintf("reseat the card or its riser; on a board that shares lanes between slots it is meant so, check { ignore = [\"%s\"] }", code)
}

// pcieNarrow is about the width of the link to the machine, which counts at any time. A drains such machines; but
// boards of workstations share lanes out by design.
func pcieNarrow(g *rule.GPU) rule.Findings {
	now, widest, sisters := g.PCIe.Width, g.PCIe.WidthMax, 0
	for _, s := range g.Sisters() {
		sisters = max(sisters, gpu.OrZero(s.PCIe.Width))
	}
	switch {
	case now == nil:
		return nil
	case widest != nil && *now < *widest && sisters > *now:
		return g.Find(reseat(codes.PCIeNarrow), "PCIe link x%d of x%d, its sister GPUs have more", *now, *widest)
	case widest != nil && *now < *widest:
		return g.Find(reseat(codes.PCIeNarrow), "PCIe link x%d of x%d", *now, *widest)
	case *now < sisters:
		return g.Find(reseat(codes.PCIeNarrow), "PCIe link x%d, those of its sister GPUs are x%d", *now, sisters)
	}
	return nil
}

// pcieSlow is about its generation, which drops whenever a card is idle (N), so that only what it could be is compared,
// with sister GPUs of other slots.
func pcieSlow(g *rule.GPU) rule.Findings {
	best := 0
	for _, s := range g.Sisters() {
		best = max(best, gpu.OrZero(s.PCIe.GenerationMax))
	}
	if g.PCIe.GenerationMax == nil || *g.PCIe.GenerationMax >= best {
		return nil
	}
	return g.Find(reseat(codes.PCIeSlow)+"; the firmware's setup may hold the slot down too",
		"PCIe link of generation %d at most, those of its sister GPUs are of %d", *g.PCIe.GenerationMax, best)
}

// nvlinks compares with the sister GPUs, as A and preflight scripts do: a link that is down on all of them is not
// wired.
func nvlinks(g *rule.GPU) rule.Findings {
	if g.NVLinks == nil {
		return nil
	}
	up, best, same := linksUp(g), 0, 1
	for _, s := range g.Sisters() {
		best = max(best, linksUp(s))
		if s.NVLinks != nil && linksUp(s) == up {
			same++
		}
	}
	switch isBare := up == 0 && isCard(g.Name); {
	case up >= best, isBare && same%2 == 0: // bridges join pairs, and so many cards have none
		return nil
	default:
		alone := g.Host.In.Plan != nil && len(g.Host.Part.Devices) < 2
		return g.Find("have it reset; if that does not help, its board or the switch it leads to is to be looked at. Until then leave it out with ranks { devices = [...] }",
			"%d of %d NVLinks are up, its sister GPUs have %d", up, max(len(g.NVLinks), best), best).AsIf(alone, rule.Warn).AsIf(isBare, rule.Info)
	}
}

func linksUp(g *rule.GPU) int {
	n := 0
	for _, l := range g.NVLinks {
		if l.Active {
			n++
		}
	}
	return n
}

// isCard reports whether a product is a PCIe card, whose NVLinks lead to a bridge that may not be fitted. Boards (SXM,
// and names such as "NVIDIA H100 80GB HBM3") have them wired.
func isCard(name string) bool {
	for _, board := range []string{"SXM", "HBM3", "H200", "B200", "B300"} {
		if strings.Contains(name, board) && !strings.Contains(name, "PCIe") && !strings.Contains(name, "NVL") {
			return false
		}
	}
	return true
}

// fabric is about machines with NVSwitch, on which CUDA starts with error 802 (system not yet initialized) until the
// fabric manager has set up the fabric.
func fabric(g *rule.GPU) rule.Findings {
	if g.Fabric == nil || *g.Fabric == "completed" {
		return nil
	}
	fix, why := "journalctl -u nvidia-fabricmanager says why", gpu.Spaced(*g.Fabric)
	switch *g.Fabric {
	case "not_started":
		fix, why = "systemctl start nvidia-fabricmanager, by root, on that machine; it must be of the driver's version", "nvidia-fabricmanager does not run"
	case "in_progress":
		fix, why = "wait a minute: after a boot it takes that long", "it is still being set up"
	}
	return g.Find(fix, "the NVSwitch fabric is not ready: %s", why)
}

// fabricManager is about its service, where no GPU tells of the fabric (A100 boards).
func fabricManager(h *rule.Host) rule.Findings {
	d := h.Facts.Devices
	if d == nil || d.NVSwitches == 0 || !h.UsesGPUs() {
		return nil
	}
	need := "need"
	if d.NVSwitches == 1 {
		need = "needs"
	}
	why := fmt.Sprintf("%s %s it: CUDA would not start (error 802, system not yet initialized)", plural.Of(d.NVSwitches, "NVSwitch device"), need)
	switch m, driver := d.FabricManager, driverOf(h); {
	case m.State == nvidia.NotInstalled:
		return h.Find("install the fabric manager of the driver's version and start it, by root, on that machine",
			"nvidia-fabricmanager is not installed, and %s", why)
	case m.State != "" && m.State != nvidia.Active:
		return h.Find("systemctl start nvidia-fabricmanager, by root, on that machine; journalctl -u nvidia-fabricmanager says why it stopped",
			"nvidia-fabricmanager is %s, and %s", m.State, why)
	case m.Version != "" && driver != "" && m.Version != driver: // one that runs was let in by the driver when it started
		return h.Find("install the fabric manager of the driver's version and restart it",
			"nvidia-fabricmanager is of version %s, the driver of %s: at its next start it refuses to work with it", m.Version, driver).AsIf(m.State == nvidia.Active, rule.Warn)
	}
	return nil
}

func driverOf(h *rule.Host) string {
	if d := h.Facts.Devices; d != nil && d.Inventory != nil && d.Driver != nil {
		return *d.Driver
	}
	return ""
}
