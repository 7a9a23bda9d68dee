package plan

import (
	"slices"

	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Before is what a device was used for when the plan was made.
type Before struct {
	Device Device
	Total  uint64       // bytes; 0 where that was not known
	Used   uint64       // the same
	PIDs   map[int]bool // of processes that held memory of it
	// Holders are these processes, as far as anything is known of them.
	Holders []gpu.Holder
}

// Before are the devices of a host's ranks, each once.
func (p *Plan) Before(host int) []Before {
	var all []Before
	devices, known := p.Hosts[host].Devices, p.Facts[host].Devices
	for i, d := range devices {
		if slices.ContainsFunc(devices[:i], d.Same) {
			continue
		}
		g := &known.Inventory.GPUs[d.Card]
		total, used, _ := device.MemoryOf(g, d)
		b := Before{Device: d, Total: gpu.OrZero(total), Used: gpu.OrZero(used), PIDs: map[int]bool{}}
		for _, held := range device.Processes(g, d) {
			b.PIDs[held.PID] = true
			b.Holders = append(b.Holders, g.Holder(held, known.Owners))
		}
		all = append(all, b)
	}
	return all
}
