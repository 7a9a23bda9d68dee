package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// idleMemory is what may be in use of a GPU that nobody computes on: the driver's own, a
// desktop's, traces of clients. The plan and the probe draw the line there too.
const idleMemory = 1 << 30

// use is about who holds the GPU's memory.
func (h *hostJudge) use(g usedGPU) {
	d := h.Facts.Devices
	for _, device := range g.devices {
		if run := d.Taken[device.UUID]; run != "" {
			h.sayOf(g, codes.GPUInUse, h.busySeverity(g, device), fmt.Sprintf("muster ps tells of it; muster stop %s ends it", run), "muster's run %s holds %s", run, thePart(device))
			continue
		}
		s := useOf(g.GPU, device, d.Owners)
		if len(s.holders) > 0 {
			h.sayOf(g, codes.GPUInUse, h.busySeverity(g, device), h.useFix(s), "%s", s.words(device))
		}
		if s.unexplained > idleMemory {
			h.sayOf(g, codes.MemoryUnexplained, h.busySeverity(g, device), h.unexplainedFix(g),
				"%s%s in use that no process here explains", ofPart(device), text.Bytes(s.unexplained))
		}
	}
}

// busySeverity: devices that were chosen as idle have to be, of those that the job file
// names somebody may know; with shared or enough min_free it is meant.
func (h *hostJudge) busySeverity(g usedGPU, d plan.Device) Severity {
	free := h.in.Job.Placement.MinFree
	total, used, reserved := memoryOf(g.GPU, d)
	switch {
	case h.in.Job.WithOthers():
		return Info
	case free > 0 && total != nil && used != nil && *total-min(*total, *used+gpu.OrZero(reserved)) >= free:
		return Info
	case h.part.Claimed:
		return Fail
	}
	return Warn
}

// holding is what is in use of a device, and by whom.
type holding struct {
	used        *uint64
	holders     []gpu.Process
	owners      map[int]string
	unexplained uint64 // bytes that no process tells of
}

// useOf looks at memory and processes. A desktop that shows something on a GPU is no user
// of it, and the server of MPS holds it for its clients.
func useOf(g gpu.GPU, d plan.Device, owners map[int]string) holding {
	_, used, _ := memoryOf(g, d)
	s := holding{used: used, owners: owners}
	explained, told := uint64(0), true
	for _, p := range processesOf(g, d) {
		if p.Memory == nil {
			told = false
		}
		explained += gpu.OrZero(p.Memory)
		if p.Kind != "graphics" && !isMPSServer(p.Name) {
			s.holders = append(s.holders, p)
		}
	}
	if used != nil && told && *used > explained {
		s.unexplained = *used - explained
	}
	return s
}

// isMPSServer tells the server of CUDA's MPS, which works for others.
func isMPSServer(command string) bool { return programWord(command) == "nvidia-cuda-mps-server" }

func memoryOf(g gpu.GPU, d plan.Device) (total, used, reserved *uint64) {
	if !d.IsInstance() {
		return g.Memory.Total, g.Memory.Used, g.Memory.Reserved
	}
	for _, m := range g.MIG.Instances {
		if m.UUID == d.UUID {
			return m.Memory, m.Used, nil
		}
	}
	return nil, nil, nil
}

// processesOf are the processes of a device. Those on a GPU with MIG name their instance.
func processesOf(g gpu.GPU, d plan.Device) []gpu.Process {
	if !d.IsInstance() {
		return g.Processes
	}
	var found []gpu.Process
	for _, p := range g.Processes {
		if at := instanceOf(g, p); at != nil && at.UUID == d.UUID {
			found = append(found, p)
		}
	}
	return found
}

// instanceOf is the MIG instance that a process runs on; nil where that is not told.
func instanceOf(g gpu.GPU, p gpu.Process) *gpu.MIGInstance {
	for i, m := range g.MIG.Instances {
		if p.GI != nil && m.GI != nil && *p.GI == *m.GI && (p.CI == nil || m.CI == nil || *p.CI == *m.CI) {
			return &g.MIG.Instances[i]
		}
	}
	return nil
}

func thePart(d plan.Device) string {
	if d.IsInstance() {
		return d.String()
	}
	return "it"
}

func ofPart(d plan.Device) string {
	if d.IsInstance() {
		return d.String() + ": "
	}
	return ""
}

// mostHolders is how many processes are named one by one.
const mostHolders = 4

func (s holding) words(d plan.Device) string {
	var names []string
	for i, p := range s.holders {
		if i == mostHolders {
			names = append(names, fmt.Sprintf("%d more", len(s.holders)-mostHolders))
			break
		}
		names = append(names, holderWords(p.Name, p.PID, s.owners[p.PID], p.Memory))
	}
	who := strings.Join(names, ", ")
	if s.used == nil {
		return ofPart(d) + "in use: " + who
	}
	return fmt.Sprintf("%s%s in use: %s", ofPart(d), text.Bytes(*s.used), who)
}

// holderWords name a process: python (pid 4242, ann, 14.2 GiB).
func holderWords(command string, pid int, user string, memory *uint64) string {
	what := fmt.Sprintf("pid %d", pid)
	if user != "" {
		what += ", " + user
	}
	if memory != nil {
		what += ", " + text.Bytes(*memory)
	}
	name := programWord(command)
	if name == "" {
		name = "a process"
	}
	return name + " (" + what + ")"
}

// programWord is a program's name without its folder and arguments; "" where the driver
// does not tell it, as of other containers' processes.
func programWord(command string) string {
	name, _, _ := strings.Cut(command, " ")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if strings.HasPrefix(name, "[") {
		return ""
	}
	return name
}

// useFix tells own processes, which may be left over, from those of others.
func (h *hostJudge) useFix(s holding) string {
	var own, others []string
	for _, p := range s.holders {
		switch user := s.owners[p.PID]; {
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

func (h *hostJudge) unexplainedFix(g usedGPU) string {
	const leak = "another container's or another user's, or what a dead process has left: " +
		"`fuser -v /dev/nvidia*`, by root on the machine, finds it; what nobody holds goes away with a reset"
	if h.Facts.Container != "" {
		return "this is a container, which does not see the processes of others: look on the machine itself. It is " + leak
	}
	return "it is " + leak
}

// counts compares the number of GPUs with the bus. A container or a scheduler may have
// given a part of the machine; a site's own plugin is about others.
func (h *hostJudge) counts() {
	d := h.Facts.Devices
	h.fabricManager()
	if h.hidesProcesses() {
		where := "in a pid namespace"
		if h.Facts.Container != "" {
			where = "in a container (" + h.Facts.Container + ")"
		}
		h.say(codes.HiddenProcess, "", "start the container with the machine's process numbers (docker: --pid=host) to have its GPUs watched",
			"muster runs %s with process numbers of its own: whose processes are on its GPUs cannot be told", where)
	}
	if d == nil || d.Inventory == nil || d.Visibility.Variable != "" || len(h.part.Devices) == 0 || d.PCIDevices <= len(d.Inventory.GPUs) || isGivenPart(h.Facts) {
		return
	}
	// The job would be smaller than anybody thinks.
	all := h.in.Job.Hosts[h.at].Devices.Kind == "all" && h.in.Job.Hosts[h.at].PerHost == 0
	h.say(codes.FewerGPUs, lowered(Fail, !all, Warn), "dmesg there says why; a reboot may bring them back. To go on without them name those to use: ranks { devices = [...] }",
		"the driver shows %s, but %d are on the PCI bus: the others did not start or were lost", plural.Of(len(d.Inventory.GPUs), "GPU"), d.PCIDevices)
}

func (h *hostJudge) hidesProcesses() bool { return h.Facts.OwnPIDs && len(h.part.Devices) > 0 }

// isGivenPart reports whether a host has been given a part of a machine.
func isGivenPart(f facts.Host) bool { return f.Container != "" || f.Environ["SLURM_JOB_ID"] != "" }
