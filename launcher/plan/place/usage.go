package place

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// candidates are the devices that can be had, and why others cannot.
type candidates struct {
	idle    []device.Device
	reasons []string // a line for each of the others
	busy    int      // how many of those are only busy
}

// candidatesOf parts devices into those that can be had and the others.
func candidatesOf(s *site, allowed []device.Device) candidates {
	var c candidates
	for _, d := range allowed {
		why, use := device.Unusable(s.card(d)), busy(s, d)
		switch {
		case why != "":
			c.reasons = append(c.reasons, fmt.Sprintf("  %s %s", d, why))
		case use != "" && !s.job.WithOthers():
			c.reasons = append(c.reasons, fmt.Sprintf("  %s is busy: %s", d, use))
			c.busy++
		default:
			c.idle = append(c.idle, d)
		}
	}
	return c
}

// table says why devices cannot be had, a line each.
func (c candidates) table() string { return strings.Join(c.reasons, "\n") }

// minFreeHint advises min_free where that would help.
func (c candidates) minFreeHint(s *site, before string) string {
	if c.busy == 0 || s.job.Placement.MinFree > 0 {
		return ""
	}
	return before + "min_free = \"40GiB\" takes GPUs with that much free memory"
}

// busy says what a device is used for already; "" where it is idle. Both memory and processes are looked at: those of
// another container do not show in the list.
func busy(s *site, d device.Device) string {
	if run := s.devices.Taken[d.UUID]; run != "" {
		return fmt.Sprintf("muster's run %s holds it", run)
	}
	g := s.card(d)
	total, used, reserved := device.MemoryOf(g, d)
	if free := s.job.Placement.MinFree; free > 0 && total != nil && used != nil {
		if left := *total - min(*total, *used+gpu.OrZero(reserved)); left < free {
			return fmt.Sprintf("%s free of %s, less than min_free", text.GiB(left), text.GiB(*total))
		}
		return ""
	}
	var holders []string
	for _, p := range device.Processes(g, d) {
		if p.Kind != "graphics" {
			holders = append(holders, g.Holder(p, s.devices.Owners).String())
		}
	}
	if used == nil {
		return strings.Join(holders, ", ")
	}
	unexplained := *used
	for _, p := range device.Besides(g, d) {
		unexplained -= min(unexplained, gpu.OrZero(p.Memory))
	}
	switch {
	case len(holders) > 0:
		return fmt.Sprintf("%s in use by %s", text.GiB(*used), strings.Join(holders, ", "))
	case unexplained > gpu.IdleMemory:
		return fmt.Sprintf(
			"%s in use that no process here explains: somebody's in another container, or what a dead process has left",
			text.GiB(unexplained))
	}
	return ""
}

// noteUnknown names devices that are taken for idle because nothing is known of their use.
func noteUnknown(s *site, share Share) {
	var unknown []string
	for _, d := range share.Devices {
		g := s.card(d)
		if _, used, _ := device.MemoryOf(g, d); used == nil && g.Processes == nil {
			unknown = append(unknown, d.String())
		}
	}
	if len(unknown) > 0 {
		s.note("use_unknown", "%s: whether somebody uses %s is not known: neither memory nor processes are told",
			s.host.Name, strings.Join(unknown, ", "))
	}
}
