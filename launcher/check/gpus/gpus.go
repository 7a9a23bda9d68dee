// Package gpus are the rules on a host's GPUs: whether they work, how they are set up and linked, and who uses them.
//
// Thresholds are those of public checkers, as far as these agree: Azure's node health checks (A), Meta's GCM (M),
// Imbue's cluster-health (I), gpud (G), the ML Engineering handbook (E) and NVIDIA's manuals (N). What these take a
// machine out of service for is a failure here only if the job would suffer.
package gpus

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Thresholds.
const (
	maxAggregate = 4   // uncorrected errors in its life; E asks for a replacement above
	maxRemapped  = 512 // uncorrectable rows; A gives a GPU up above
	fullRetired  = 62  // pages at which A takes the table for full (it has 64 entries)
	maxRetired   = 10  // pages; M calls more critical
	minFaults    = 10  // faults of programs on a GPU that make it worth a look
)

// Rules are all of them.
var Rules = []rule.Rule{
	rule.OfHost(codes.GPUMissing, rule.Facts, missing),
	rule.OfState(codes.GPULost, gpu.StateLost, rebootFix, "lost, fallen off the bus (%s)"),
	rule.OfState(codes.GPUNeedsReset, gpu.StateNeedsReset, resetFix, "of no use before a reset%.0s"),
	rule.OfState(codes.GPUSilent, gpu.StateUnknown, LeaveOut, "no proper answer from the driver%.0s"),
	rule.OfGPU(codes.GPURecovery, rule.Facts, recovery),
	rule.OfGPU(codes.ECCUncorrected, rule.Facts, eccUncorrected),
	rule.OfGPU(codes.ECCHistory, rule.Facts, eccHistory),
	rule.OfGPU(codes.ECCModeDiffers, rule.Facts, eccMode),
	rule.OfGPU(codes.RemapFailed, rule.Facts, remapFailed),
	rule.OfGPU(codes.RemapPending, rule.Facts, remapPending),
	rule.OfGPU("", rule.Facts, retired),
	rule.OfGPU(codes.XidSinceBoot, rule.Facts, xids),
	rule.OfAll(codes.XidsUnknown, rule.Plan, xidsUnknown),
	rule.OfGPU(codes.NVLinksDown, rule.Facts, nvlinks),
	rule.OfGPU(codes.FabricNotReady, rule.Facts, fabric),
	rule.OfHost(codes.FabricManager, rule.Facts, fabricManager),
	rule.OfGPU(codes.PCIeNarrow, rule.Facts, pcieNarrow),
	rule.OfGPU(codes.PCIeSlow, rule.Facts, pcieSlow),
	rule.OfGPU(codes.ComputeMode, rule.Facts, computeMode),
	rule.OfGPU(codes.MIGMode, rule.Facts, migMode),
	rule.OfGPU(codes.Throttled, rule.Facts, throttled),
	rule.OfGPU(codes.PersistenceOff, rule.Plan, persistence),
	rule.OfGPU("", rule.Facts, use),
	rule.OfHost(codes.HiddenProcess, rule.Plan, hiddenProcesses),
	rule.OfHost(codes.FewerGPUs, rule.Facts, onBus),
	rule.OfAll(codes.FewerGPUs, rule.Plan, fewerThanSisters),
}

// What to do with GPUs that do not work.
const (
	LeaveOut  = "leave it out with ranks { devices = [...] } or take another host; its operator has to see to it"
	resetFix  = "have it reset, by root and while nobody uses it (nvidia-smi --gpu-reset -i N), or leave it out with ranks { devices = [...] }"
	rebootFix = "the machine needs a reboot; if it happens again, the card, its power or its slot is to be looked at. Until then leave it out with ranks { devices = [...] }"
)

// missing tells of devices of the plan that are not there any more; without a plan, of cards that nothing answers for.
func missing(h *rule.Host) (found rule.Findings) {
	d := h.Facts.Devices
	const again = "plan again: the machine has changed since the plan was made"
	switch {
	case d == nil || !h.UsesGPUs():
		return nil // not looked at
	case h.In.Plan == nil && d.Inventory == nil && d.PCIDevices > 0:
		return h.Find("", "%s on the PCI bus, but nothing answers there", plural.Of(d.PCIDevices, "NVIDIA GPU"))
	case h.In.Plan != nil && d.Inventory == nil:
		return h.Find(again, "nothing can be known of its GPUs: %s", d.None)
	}
	for _, device := range h.Part.Devices {
		there := false
		for _, g := range h.GPUs {
			there = there || g.Holds(device) && (!device.IsInstance() || hasInstance(g, device.UUID))
		}
		if !there {
			found = append(found, rule.Find(rule.Finding{Host: h.Name, GPU: &device.Index}, again, "%s of the plan (%s) is not there any more", device, device.UUID)...)
		}
	}
	return found
}

func hasInstance(g *rule.GPU, uuid string) bool {
	for _, m := range g.MIG.Instances {
		if m.UUID == uuid {
			return true
		}
	}
	return false
}

// recoveryFixes are what the driver's recovery actions ask for.
var recoveryFixes = map[string]string{
	"gpu_reset":       resetFix,
	"node_reboot":     rebootFix,
	"drain_p2p":       "its traffic with other GPUs is broken until it is reset: use it alone, or leave it out",
	"drain_and_reset": "let what runs on the machine's other GPUs end, then have all of them reset",
}

func recovery(g *rule.GPU) rule.Findings {
	if g.Recovery == nil || *g.Recovery == "none" {
		return nil
	}
	fix := recoveryFixes[*g.Recovery]
	if fix == "" {
		fix = LeaveOut
	}
	// Alone on its host a GPU has no traffic with others to be broken.
	alone := *g.Recovery == "drain_p2p" && len(g.Host.Part.Devices) == 1
	return g.Find(fix, "the driver asks for a recovery action: %s", gpu.Spaced(*g.Recovery)).AsIf(alone, rule.Info)
}

// eccNow counts errors since the driver was loaded, which tell about now: M and I fail any.
func eccNow(g *rule.GPU) uint64 {
	return max(gpu.OrZero(g.ECC.Volatile), gpu.OrZero(g.ECC.SRAMVolatile))
}

func eccUncorrected(g *rule.GPU) rule.Findings {
	if eccNow(g) == 0 {
		return nil
	}
	return g.Find(resetFix+". Errors that come back are a reason to replace it",
		"%s since the driver was loaded", plural.Of(int(eccNow(g)), "uncorrected memory error"))
}

// eccHistory is about errors in its life, which tell about replacement (E).
func eccHistory(g *rule.GPU) rule.Findings {
	life := gpu.OrZero(g.ECC.Aggregate)
	if life == 0 || eccNow(g) > 0 {
		return nil
	}
	return g.Find("more than 4 are a reason to ask for a replacement",
		"%s in its life, none since the driver was loaded", plural.Of(int(life), "uncorrected memory error")).AsIf(life <= maxAggregate, rule.Info)
}

// eccMode compares with most of the other GPUs of the kind.
func eccMode(g *rule.GPU) rule.Findings {
	balance := 0
	for _, s := range g.Sisters() {
		switch {
		case gpu.IsTrue(s.ECC.Enabled):
			balance++
		case gpu.IsFalse(s.ECC.Enabled):
			balance--
		}
	}
	on := balance > 0
	if g.ECC.Enabled == nil || *g.ECC.Enabled == on || balance*balance < 4 {
		return nil
	}
	return g.Find("set it as the others have it (nvidia-smi -e 1, by root, then a reset)", "ECC is %s, on its sister GPUs it is %s", onOff[!on], onOff[on])
}

var onOff = map[bool]string{true: "on", false: "off"}

func remapFailed(g *rule.GPU) rule.Findings {
	const replace = "the card is to be replaced; " + LeaveOut
	rows := gpu.OrZero(g.Remapped.Uncorrectable)
	switch {
	case gpu.IsTrue(g.Remapped.Failed):
		return g.Find(replace, "bad memory rows could not be remapped")
	case rows > maxRemapped:
		return g.Find(replace, "%s remapped, and there are few spare ones left", plural.Are(rows, "bad memory row"))
	}
	return nil
}

func remapPending(g *rule.GPU) rule.Findings {
	if !gpu.IsTrue(g.Remapped.Pending) || remapFailed(g) != nil {
		return nil
	}
	return g.Find(resetFix+", before a long job at the latest", "memory rows are to be remapped at the next reset")
}

// retired is about memory pages put out of use, as before Ampere.
func retired(g *rule.GPU) rule.Findings {
	pages := gpu.OrZero(g.Retired.SingleBit) + gpu.OrZero(g.Retired.DoubleBit)
	switch {
	case gpu.IsTrue(g.Retired.Pending):
		return g.Find(resetFix, "memory pages are to be retired at the next reset; %d are already", pages).Of(codes.RetirePending).AsIf(pages >= fullRetired, rule.Fail)
	case pages > maxRetired:
		return g.Find("ask for a replacement", "%d memory pages are retired", pages).Of(codes.RetiredMany)
	}
	return nil
}

// hiddenProcesses is about containers with process numbers of their own.
func hiddenProcesses(h *rule.Host) rule.Findings {
	if !h.Facts.OwnPIDs || len(h.Part.Devices) == 0 {
		return nil
	}
	return h.Find("start the container with the machine's process numbers (docker: --pid=host) to have its GPUs watched",
		"muster runs %s with process numbers of its own: whose processes are on its GPUs cannot be told",
		h.InContainer(fmt.Sprintf("in a container (%s)", h.Facts.Container), "in a pid namespace"))
}

// onBus compares the number of GPUs with the bus. A container or a scheduler may have given a part of the machine; a
// site's own plugin is about others.
func onBus(h *rule.Host) rule.Findings {
	d := h.Facts.Devices
	if d == nil || d.Inventory == nil || d.Visibility.Variable != "" || !h.UsesGPUs() || d.PCIDevices <= len(d.Inventory.GPUs) || h.IsGivenPart() {
		return nil
	}
	all := true // the job would be smaller than anybody thinks
	if job := h.In.Job; job != nil {
		all = job.Hosts[h.At].Devices.Kind == "all" && job.Hosts[h.At].PerHost == 0
	}
	return h.Find("dmesg there says why; a reboot may bring them back. To go on without them name those to use: ranks { devices = [...] }",
		"the driver shows %s, but %d are on the PCI bus: the others did not start or were lost", plural.Of(len(d.Inventory.GPUs), "GPU"), d.PCIDevices).AsIf(all, rule.Fail)
}

// fewerThanSisters compares numbers of GPUs over the hosts that have some of the same kind (M and G expect 8).
func fewerThanSisters(in *rule.Input) (found rule.Findings) {
	for i := range in.Hosts {
		h, best := &in.Hosts[i], &in.Hosts[i]
		for at := range in.Hosts {
			if o := &in.Hosts[at]; h.IsSister(o) && len(o.GPUs) > len(best.GPUs) {
				best = o
			}
		}
		// What is missing on the bus is said with the host.
		if n := len(h.GPUs); n < len(best.GPUs) && h.Facts.Devices.PCIDevices <= n && len(h.Part.Devices) > 0 {
			found = append(found, h.Find("if it should have as many, a card is missing even on the PCI bus: a reboot, or its operator, may bring it back",
				"it has %s of the kind %s, %s has %d", plural.Of(n, "GPU"), h.GPUs[0].Name, best.Name, len(best.GPUs)).AsIf(in.Job.Placement.Equal, rule.Fail)...)
		}
	}
	return found
}
