package gpus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/failure/class"
)

// xids are about errors that the driver has reported of a GPU since the boot. Of these it is not known whether a reset
// came after them; a GPU that is of no use now says so itself. What programs have done to themselves says nothing of
// the GPU, unless they are many: then it may be the GPU that gets addresses wrong.
func xids(g *rule.GPU) (found rule.Findings) {
	for _, x := range g.Host.Facts.Devices.Xids {
		if !samePCI(x.PCI, g.PCI) {
			continue
		}
		known, by := class.JudgeXid(x.Number, x.Text)
		if by != 0 && wasReported(g, by) {
			continue // that one is told
		}
		times := fmt.Sprintf("Xid %d", x.Number)
		if x.Count > 1 {
			times += fmt.Sprintf(", %d times", x.Count)
		}
		find := func(fix string) rule.Findings { return g.Find(fix, "%s since the boot: %s", times, known.Meaning) }
		switch {
		case known.Verdict == class.XidStop:
			found = append(found, find("if it was reset since (nvidia-smi --gpu-reset -i N, by root) it may be as good as new; if not, or if it comes back, leave it out with ranks { devices = [...] }")...)
		case known.Verdict == class.XidRestart:
			found = append(found, find("").As(rule.Info)...)
		case known.Verdict == class.XidProgram && x.Count >= minFaults:
			found = append(found, find("if they come from different programs, and not on the other GPUs, it is the GPU that is wrong").As(rule.Info)...)
		}
	}
	return found
}

// wasReported is whether an Xid of a GPU was.
func wasReported(g *rule.GPU, number int) bool {
	for _, x := range g.Host.Facts.Devices.Xids {
		if x.Number == number && samePCI(x.PCI, g.PCI) {
			return true
		}
	}
	return false
}

// samePCI compares an address as the driver writes it (0000:0f:00) with one of sysfs (0000:0f:00.0).
func samePCI(short, full string) bool {
	trimmed, _, _ := strings.Cut(full, ".")
	return full != "" && strings.TrimLeft(short, "0") == strings.TrimLeft(strings.ToLower(trimmed), "0")
}

// xidsUnknown tells on which hosts the kernel's log was not read: nothing known is not nothing wrong.
func xidsUnknown(in *rule.Input) rule.Findings {
	unread := slices.DeleteFunc(slices.Clone(in.Hosts), func(h rule.Host) bool {
		d := h.Facts.Devices
		return d == nil || d.NoXids == "" || d.Inventory == nil || d.Visibility.Variable != "" || len(h.Part.Devices) == 0
	})
	if len(unread) == 0 {
		return nil
	}
	return in.Find("sysctl kernel.dmesg_restrict=0, by root, lets users read the log; dmesg | grep -i xid, by root, shows them",
		"%s: which errors (Xid) the driver has reported since the boot is not known, as the kernel's log cannot be read here (%s)",
		rule.List(rule.Names(unread)), unread[0].Facts.Devices.NoXids)
}
