package plan

import (
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/plan/device"
)

// OnDevices is what NCCL does for a host's ranks by their devices, why in words, and what to do
// where it does not take them.
func (p *Plan) OnDevices(host int, m Meeting) (verdict nccl.Verdict, why, fix string) {
	return nccl.OnDevices(p.NCCLHost(host, m), p.ncclValue("NCCL_MULTI_RANK_GPU_ENABLE", host, m) == "1")
}

// migNotes tell how NCCL works between MIG devices, where it does.
func (p *Plan) migNotes() []Problem {
	if p.Backend != "nccl" {
		return nil
	}
	var notes []Problem
	for i, h := range p.Hosts {
		if verdict, why, _ := p.OnDevices(i, Meeting{}); verdict == nccl.Works && why != "" {
			notes = append(notes, Problem{Code: nccl.CodeMIG, Host: h.Name, Message: h.Name + ": " + why})
		}
	}
	return notes
}

// PartNames are the MIG devices of a host as people call them, by UUID, in the plan or not.
func (p *Plan) PartNames(host int) map[string]string {
	names := map[string]string{}
	d := p.Facts[host].Devices
	if d == nil || d.Inventory == nil {
		return names
	}
	for i := range d.Inventory.GPUs {
		for _, part := range device.Instances(&d.Inventory.GPUs[i], i) {
			if part.UUID != "" {
				names[part.UUID] = part.String()
			}
		}
	}
	return names
}
