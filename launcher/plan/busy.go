package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// idleMemory is what may be in use on a GPU that nobody computes on: the driver's own, and
// traces of its clients. In bytes.
const idleMemory = 1 << 30

// busy says what a device is used for already; "" where it is idle. Both memory and
// processes are looked at: those of another container do not show in the list.
func (c *chooser) busy(d Device) string {
	if run := c.devices.Taken[d.UUID]; run != "" {
		return fmt.Sprintf("muster's run %s holds it", run)
	}
	g := c.card(d)
	total, used, reserved := memoryOf(g, d)
	if free := c.job.Placement.MinFree; free > 0 && total != nil && used != nil {
		if left := *total - min(*total, *used+gpu.OrZero(reserved)); left < free {
			return fmt.Sprintf("%s free of %s, less than min_free", bytesWord(left), bytesWord(*total))
		}
		return ""
	}
	processes := onDevice(g, d)
	var words []string
	for _, p := range processes {
		if p.Kind != "graphics" {
			words = append(words, c.holder(p))
		}
	}
	if used == nil {
		return strings.Join(words, ", ")
	}
	unexplained := *used - min(*used, explained(besides(g, d, processes)))
	switch {
	case len(words) > 0:
		return fmt.Sprintf("%s in use by %s", bytesWord(*used), strings.Join(words, ", "))
	case unexplained > idleMemory:
		return fmt.Sprintf("%s in use that no process here explains: somebody's in another container, or what a dead process has left", bytesWord(unexplained))
	}
	return ""
}

// noteUnknown tells of devices that are taken for idle because nothing is told of them.
func (c *chooser) noteUnknown(s share) {
	var unknown []string
	for _, d := range s.devices {
		g := c.card(d)
		if _, used, _ := memoryOf(g, d); used == nil && g.Processes == nil {
			unknown = append(unknown, d.String())
		}
	}
	if len(unknown) > 0 {
		c.note("use_unknown", "%s: whether somebody uses %s is not known: neither memory nor processes are told", c.host.Name, strings.Join(unknown, ", "))
	}
}

// holder names a process, and whose it is where that can be seen.
func (c *chooser) holder(p gpu.Process) string {
	words := fmt.Sprintf("pid %d", p.PID)
	if user := c.devices.Owners[p.PID]; user != "" {
		words += " of " + user
	}
	if p.Name != "" {
		words += " (" + p.Name + ")"
	}
	return words
}

// memoryOf is the memory of a device in bytes: a GPU's, or that of its MIG instance; nil
// where it is not told.
func memoryOf(g gpu.GPU, d Device) (total, used, reserved *uint64) {
	if !d.IsInstance() {
		return g.Memory.Total, g.Memory.Used, g.Memory.Reserved
	}
	for _, m := range g.MIG.Instances {
		if m.Index == d.MIG {
			return m.Memory, m.Used, nil
		}
	}
	return nil, nil, nil
}

// onDevice are the processes of a device. Those on a GPU with MIG name their instance.
func onDevice(g gpu.GPU, d Device) []gpu.Process {
	if d.MIG == wholeGPU {
		return g.Processes
	}
	var found []gpu.Process
	for _, m := range g.MIG.Instances {
		for _, p := range g.Processes {
			if m.Index == d.MIG && sameID(p.GI, m.GI) && sameID(p.CI, m.CI) {
				found = append(found, p)
			}
		}
	}
	return found
}

// besides are the processes that a device's memory in use is of: those of the other compute
// instances too that have it in common.
func besides(g gpu.GPU, d Device, processes []gpu.Process) []gpu.Process {
	gi := gpuInstance(g, d)
	if gi == nil {
		return processes
	}
	var found []gpu.Process
	for _, p := range g.Processes {
		if sameID(p.GI, gi) {
			found = append(found, p)
		}
	}
	return found
}

// gpuInstance is the GPU instance of a MIG device, whose memory its compute instances have in
// common; nil for a GPU, or where it is not told.
func gpuInstance(g gpu.GPU, d Device) *int {
	for _, m := range g.MIG.Instances {
		if d.IsInstance() && m.Index == d.MIG {
			return m.GI
		}
	}
	return nil
}

func sameID(a, b *int) bool { return a != nil && b != nil && *a == *b }

func explained(processes []gpu.Process) uint64 {
	sum := uint64(0)
	for _, p := range processes {
		sum += gpu.OrZero(p.Memory)
	}
	return sum
}

func bytesWord(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// Before is what a device was used for when the plan was made.
type Before struct {
	Device Device
	Total  uint64       // bytes; 0 where that was not known
	Used   uint64       // the same
	PIDs   map[int]bool // of processes that held memory of it
	// Holders are these processes, as far as anything is known of them.
	Holders []gpu.Holder
}

// Before tells of the devices of a host's ranks, each once.
func (p *Plan) Before(host int) []Before {
	var all []Before
	for i, d := range p.Hosts[host].Devices {
		if slices.ContainsFunc(p.Hosts[host].Devices[:i], d.same) {
			continue
		}
		g := p.facts[host].Devices.Inventory.GPUs[d.card]
		total, used, _ := memoryOf(g, d)
		b := Before{Device: d, Total: gpu.OrZero(total), Used: gpu.OrZero(used), PIDs: map[int]bool{}}
		for _, process := range onDevice(g, d) {
			b.PIDs[process.PID] = true
			b.Holders = append(b.Holders, gpu.Holder{
				UUID: d.UUID, PID: process.PID, Rank: gpu.Nobody, Kind: process.Kind, Bytes: process.Memory, User: p.facts[host].Devices.Owners[process.PID], Command: process.Name,
			})
		}
		all = append(all, b)
	}
	return all
}
