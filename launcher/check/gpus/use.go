package gpus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// use is about who holds a GPU's memory, or that of the plan's MIG devices on it.
func use(g *rule.GPU) (found rule.Findings) {
	if g.Host.In.Plan == nil {
		return useOf(g).find(g, "")
	}
	for _, device := range g.Devices {
		u := useOf(g, device)
		if run := g.Host.Facts.Devices.Taken[device.UUID]; run != "" {
			found = append(found, g.Find(fmt.Sprintf("muster ps tells of it; muster stop %s ends it", run), "muster's run %s holds %s", run, u.part("it", "")).Of(codes.GPUInUse).As(busySeverity(g.Host, u))...)
			continue
		}
		found = append(found, u.find(g, u.part("", ": ")).As(busySeverity(g.Host, u))...)
	}
	return found
}

// busySeverity: devices that were chosen as idle have to be, of those that the job file names somebody may know; with
// shared or enough min_free it is meant.
func busySeverity(h *rule.Host, u usage) rule.Severity {
	free := h.In.Job.Placement.MinFree
	switch {
	case h.In.Job.WithOthers():
		return rule.Info
	case free > 0 && u.total != nil && u.used != nil && *u.total-min(*u.total, *u.used+gpu.OrZero(u.reserved)) >= free:
		return rule.Info
	case h.Part.Claimed:
		return rule.Fail
	}
	return rule.Warn
}

// usage is what is in use of a device, and by whom.
type usage struct {
	device                *plan.Device // nil: the whole GPU
	total, used, reserved *uint64
	holders               []gpu.Process
	unexplained           uint64 // bytes that no process tells of
}

// useOf looks at memory and processes of a GPU, or of a device on it. A desktop that shows something on a GPU is no
// user of it, and the server of MPS holds it for its clients.
func useOf(g *rule.GPU, devices ...plan.Device) usage {
	u := usage{total: g.Memory.Total, used: g.Memory.Used, reserved: g.Memory.Reserved}
	processes := g.Processes
	if len(devices) > 0 && devices[0].IsInstance() {
		u.device = &devices[0]
		u.total, u.used, u.reserved = device.MemoryOf(&g.GPU, *u.device)
		isElsewhere := func(p gpu.Process) bool { return g.DeviceOf(p) != u.device.UUID }
		processes = slices.DeleteFunc(slices.Clone(processes), isElsewhere)
	}
	explained, told := uint64(0), true
	for _, p := range processes {
		told = told && p.Memory != nil
		explained += gpu.OrZero(p.Memory)
		if p.Kind != "graphics" && !rule.IsMPSServer(p.Name) {
			u.holders = append(u.holders, p)
		}
	}
	if u.used != nil && told && *u.used > explained {
		u.unexplained = *u.used - explained
	}
	return u
}

// part names the device where it is a part of a GPU.
func (u usage) part(whole, after string) string {
	if u.device == nil {
		return whole
	}
	return u.device.String() + after
}

func (u usage) find(g *rule.GPU, part string) (found rule.Findings) {
	owners := g.Host.Facts.Devices.Owners
	if len(u.holders) > 0 {
		var names []string
		for _, p := range u.holders {
			names = append(names, rule.Describe(p.Name, p.PID, owners[p.PID], p.Memory))
		}
		size := ""
		if u.used != nil {
			size = text.Bytes(*u.used) + " "
		}
		found = append(found, g.Find(useFix(g.Host, u.holders), "%s%sin use: %s", part, size, rule.Holders(names)).Of(codes.GPUInUse)...)
	}
	if u.unexplained > gpu.IdleMemory {
		fix := g.Host.InContainer("this is a container, which does not see the processes of others: look on the machine itself. It is ", "it is ") +
			"another container's or another user's, or what a dead process has left: " +
			"`fuser -v /dev/nvidia*`, by root on the machine, finds it; what nobody holds goes away with a reset"
		found = append(found, g.Find(fix, "%s%s in use that no process here explains", part, text.Bytes(u.unexplained)).Of(codes.MemoryUnexplained)...)
	}
	return found
}

// useFix tells own processes, which may be left over, from those of others.
func useFix(h *rule.Host, holders []gpu.Process) string {
	var own, others []string
	for _, p := range holders {
		switch user := h.Facts.Devices.Owners[p.PID]; {
		case user == "":
		case user == h.Facts.User:
			own = append(own, fmt.Sprint(p.PID))
		case !slices.Contains(others, user):
			others = append(others, user)
		}
	}
	const choose = "choose other GPUs (ranks { devices = ... }), or say that sharing is meant (shared = true)"
	switch {
	case len(own) > 0 && len(others) == 0:
		return fmt.Sprintf("it is your own: if it is left over, kill %s on %s; or %s", strings.Join(own, " "), h.Name, choose)
	case len(others) > 0:
		return fmt.Sprintf("ask %s; or %s", strings.Join(others, " and "), choose)
	}
	return choose
}
