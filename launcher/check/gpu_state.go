package check

import (
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// devices judges the GPUs of a host one by one.
func (h *hostJudge) devices() {
	h.missing()
	for _, g := range h.used {
		if !h.state(g) {
			continue // it tells nothing else that could be relied on
		}
		h.errors(g)
		h.xids(g)
		h.repairs(g)
		h.settings(g)
		h.links(g)
		if g.isUsed() {
			h.use(g)
		}
	}
}

const (
	leaveOut  = "leave it out with ranks { devices = [...] } or take another host; its operator has to see to it"
	resetFix  = "have it reset, by root and while nobody uses it (nvidia-smi --gpu-reset -i N), or leave it out with ranks { devices = [...] }"
	rebootFix = "the machine needs a reboot; if it happens again, the card, its power or its slot is to be looked at. Until then leave it out with ranks { devices = [...] }"
)

// missing tells of devices of the plan that are not there any more.
func (h *hostJudge) missing() {
	d := h.Facts.Devices
	if d == nil || len(h.part.Devices) == 0 {
		return // not looked at
	}
	const again = "plan again: the machine has changed since the plan was made"
	if d.Inventory == nil {
		h.say(codes.GPUMissing, "", again, "nothing can be known of its GPUs: %s", d.None)
		return
	}
	for _, device := range h.part.Devices {
		there := false
		for _, g := range h.used {
			there = there || holds(g.GPU, device) && (!device.IsInstance() || hasInstance(g.GPU, device.UUID))
		}
		if !there {
			f := Finding{Code: codes.GPUMissing, Host: h.Name, GPU: &device.Index}
			h.add(f, "", again, "%s of the plan (%s) is not there any more", device, device.UUID)
		}
	}
}

func hasInstance(g gpu.GPU, uuid string) bool {
	for _, m := range g.MIG.Instances {
		if m.UUID == uuid {
			return true
		}
	}
	return false
}

// state reports whether a GPU answers, and says so if not (NVML's errors GPU_IS_LOST and
// RESET_REQUIRED; A and G take such machines out of service).
func (h *hostJudge) state(g usedGPU) bool {
	switch g.State {
	case gpu.StateLost:
		h.sayOf(g, codes.GPULost, "", rebootFix, "lost, fallen off the bus (%s)", g.PCI)
	case gpu.StateNeedsReset:
		h.sayOf(g, codes.GPUNeedsReset, "", resetFix, "of no use before a reset")
	case gpu.StateUnknown:
		h.sayOf(g, codes.GPUSilent, "", leaveOut, "no proper answer from the driver")
	}
	return g.State == gpu.StateOK || g.State == ""
}

// recoveryFixes are what the driver's recovery actions ask for.
var recoveryFixes = map[string]string{
	"gpu_reset":       resetFix,
	"node_reboot":     rebootFix,
	"drain_p2p":       "its traffic with other GPUs is broken until it is reset: use it alone, or leave it out",
	"drain_and_reset": "let what runs on the machine's other GPUs end, then have all of them reset",
}

// manyAggregate is how many uncorrected errors in its life make E ask for a replacement.
const manyAggregate = 4

// errors are about memory errors. Those since the driver was loaded tell about now (M and
// I fail any), those of its life about replacement (E).
func (h *hostJudge) errors(g usedGPU) {
	if action := g.Recovery; action != nil && *action != "none" {
		// Alone on its host a GPU has no traffic with others to be broken.
		alone := *action == "drain_p2p" && len(h.part.Devices) == 1
		fix := recoveryFixes[*action]
		if fix == "" {
			fix = leaveOut
		}
		h.sayOf(g, codes.GPURecovery, lowered(Fail, alone, Info), fix, "the driver asks for a recovery action: %s", gpu.Spaced(*action))
	}
	now := max(gpu.OrZero(g.ECC.Volatile), gpu.OrZero(g.ECC.SRAMVolatile))
	if now > 0 {
		h.sayOf(g, codes.ECCUncorrected, "", resetFix+". Errors that come back are a reason to replace it",
			"%s since the driver was loaded", plural.Of(int(now), "uncorrected memory error"))
	} else if life := gpu.OrZero(g.ECC.Aggregate); life > 0 {
		h.sayOf(g, codes.ECCHistory, lowered(Warn, life <= manyAggregate, Info), "more than 4 are a reason to ask for a replacement",
			"%s in its life, none since the driver was loaded", plural.Of(int(life), "uncorrected memory error"))
	}
	if on, known := h.sistersECC(g); known && g.ECC.Enabled != nil && *g.ECC.Enabled != on {
		words := map[bool]string{true: "on", false: "off"}
		h.sayOf(g, codes.ECCModeDiffers, "", "set it as the others have it (nvidia-smi -e 1, by root, then a reset)",
			"ECC is %s, on its sister GPUs it is %s", words[!on], words[on])
	}
}

// sistersECC is how most of the other GPUs of the kind have ECC.
func (h *hostJudge) sistersECC(g usedGPU) (on, known bool) {
	balance := 0
	for _, s := range h.sisters(g) {
		switch {
		case gpu.IsTrue(s.ECC.Enabled):
			balance++
		case gpu.IsFalse(s.ECC.Enabled):
			balance--
		}
	}
	return balance > 0, balance > 1 || balance < -1
}

// sisters are the other GPUs of the same kind on the host that answer.
func (h *hostJudge) sisters(g usedGPU) []usedGPU {
	var all []usedGPU
	for _, s := range h.used {
		if s.at != g.at && s.Name == g.Name && (s.State == gpu.StateOK || s.State == "") {
			all = append(all, s)
		}
	}
	return all
}

const (
	mostRemapped = 512 // uncorrectable rows, above which A gives a GPU up
	fullRetired  = 62  // pages at which A takes the table for full (it has 64 entries)
	manyRetired  = 10  // pages above which M calls it critical
)

// repairs are about memory put out of use: rows since Ampere, pages before.
func (h *hostJudge) repairs(g usedGPU) {
	rows := gpu.OrZero(g.Remapped.Uncorrectable)
	switch {
	case gpu.IsTrue(g.Remapped.Failed):
		h.sayOf(g, codes.RemapFailed, "", "the card is to be replaced; "+leaveOut, "bad memory rows could not be remapped")
	case rows > mostRemapped:
		h.sayOf(g, codes.RemapFailed, "", "the card is to be replaced; "+leaveOut, "%s remapped, and there are few spare ones left", plural.Are(rows, "bad memory row"))
	case gpu.IsTrue(g.Remapped.Pending):
		h.sayOf(g, codes.RemapPending, "", resetFix+", before a long job at the latest", "memory rows are to be remapped at the next reset")
	}
	pages := gpu.OrZero(g.Retired.SingleBit) + gpu.OrZero(g.Retired.DoubleBit)
	if gpu.IsTrue(g.Retired.Pending) {
		full := pages >= fullRetired
		h.sayOf(g, codes.RetirePending, lowered(Fail, !full, Warn), resetFix, "memory pages are to be retired at the next reset; %d are already", pages)
	} else if pages > manyRetired {
		h.sayOf(g, codes.RetiredMany, "", "ask for a replacement", "%d memory pages are retired", pages)
	}
}
