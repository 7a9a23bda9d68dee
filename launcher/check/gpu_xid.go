package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// xids are about errors that the driver has reported of a GPU since the boot. Of these it is
// not known whether a reset came after them; a GPU that is of no use now says so itself (see
// state). What programs have done to themselves says nothing of the GPU, unless they are
// many: then it may be the GPU that gets addresses wrong.
func (h *hostJudge) xids(g usedGPU) {
	for _, x := range h.Facts.Devices.Xids {
		if !samePCI(x.PCI, g.PCI) {
			continue
		}
		known, by := class.JudgeXid(x.Number, x.Text)
		if by != 0 && h.reported(g, by) {
			continue // that one is told
		}
		const fix = "if it was reset since (nvidia-smi --gpu-reset -i N, by root) it may be as good as new; if not, or if it comes back, leave it out with ranks { devices = [...] }"
		switch {
		case known.Verdict == class.XidStop:
			h.sayOf(g, codes.XidSinceBoot, "", fix, "%s since the boot: %s", xidWords(x), known.Meaning)
		case known.Verdict == class.XidRestart:
			h.sayOf(g, codes.XidSinceBoot, Info, "", "%s since the boot: %s", xidWords(x), known.Meaning)
		case known.Verdict == class.XidProgram && x.Count >= manyFaults:
			h.sayOf(g, codes.XidSinceBoot, Info, "if they come from different programs, and not on the other GPUs, it is the GPU that is wrong", "%s since the boot: %s", xidWords(x), known.Meaning)
		}
	}
}

// manyFaults is from how many faults of programs on it on a GPU is worth a look.
const manyFaults = 10

func xidWords(x nvidia.Xid) string {
	if x.Count == 1 {
		return fmt.Sprintf("Xid %d", x.Number)
	}
	return fmt.Sprintf("Xid %d, %d times", x.Number, x.Count)
}

// reported is whether an Xid of a GPU was reported.
func (h *hostJudge) reported(g usedGPU, number int) bool {
	return slices.ContainsFunc(h.Facts.Devices.Xids, func(x nvidia.Xid) bool { return x.Number == number && samePCI(x.PCI, g.PCI) })
}

// samePCI compares an address as the driver writes it (0000:0f:00) with one of sysfs
// (0000:0f:00.0).
func samePCI(short, full string) bool {
	trimmed, _, _ := strings.Cut(full, ".")
	return full != "" && strings.TrimLeft(short, "0") == strings.TrimLeft(strings.ToLower(trimmed), "0")
}

// unread tells on which hosts the kernel's log was not read: nothing known is not nothing
// wrong.
func (j *judge) unread() {
	var names []string
	for i, h := range j.in.Hosts {
		if d := h.Facts.Devices; d != nil && d.NoXids != "" && d.Inventory != nil && d.Visibility.Variable == "" && len(j.in.Plan.Hosts[i].Devices) > 0 {
			names = append(names, h.Name)
		}
	}
	if len(names) > 0 {
		why := j.in.Hosts[slices.IndexFunc(j.in.Hosts, func(h Host) bool { return h.Name == names[0] })].Facts.Devices.NoXids
		j.several(codes.XidsUnknown, "", "sysctl kernel.dmesg_restrict=0, by root, lets users read the log; dmesg | grep -i xid, by root, shows them",
			"%s: which errors (Xid) the driver has reported since the boot is not known, as the kernel's log cannot be read here (%s)", text.List(names, mostNamed), why)
	}
}
