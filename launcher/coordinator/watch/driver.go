package watch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Driver keeps what the drivers of hosts report of devices. By itself that ends nothing: it counts when a worker
// dies.
type Driver struct {
	run    *run.Run
	events map[int][]driverEvent // of the attempt, by host
}

type driverEvent struct {
	*message.DeviceEvent
	at link.Instant
}

// NewDriver is an observer without events.
func NewDriver(r *run.Run) *Driver { return &Driver{run: r, events: map[int][]driverEvent{}} }

// Begin forgets the attempt before.
func (d *Driver) Begin() { clear(d.events) }

// Take takes in an event of a host's driver.
func (d *Driver) Take(host int, e *message.DeviceEvent, at link.Instant) {
	if e.Attempt != d.run.Attempt || d.run.Phase != run.Running && d.run.Phase != run.Stopping {
		return
	}
	devices := d.concerned(host, e)
	if len(devices) == 0 {
		return // it is about no device of this run
	}
	again := slices.ContainsFunc(d.events[host], func(o driverEvent) bool { return *o.DeviceEvent == *e })
	d.events[host] = append(d.events[host], driverEvent{e, at})
	text := eventText(e)
	if text == "" || d.run.Phase != run.Running || again {
		return
	}
	var names []string
	for _, device := range devices {
		names = append(names, fmt.Sprintf("%v (%s)", device, device.UUID))
	}
	d.run.Warn(d.run.Hosts[host].Name, "%s: %s", strings.Join(names, ", "), text)
}

// concerned are the devices of the run that an event is about: one, or all MIG instances of a GPU.
func (d *Driver) concerned(host int, e *message.DeviceEvent) []plan.Device {
	var same, around []plan.Device
	for _, before := range d.run.Plan.Before(host) {
		switch device := before.Device; {
		case e.UUID != "" && e.UUID == device.UUID:
			same = append(same, device)
		case e.PCI != "" && e.PCI == device.PCI:
			around = append(around, device)
		}
	}
	if len(same) > 0 || e.UUID != "" && strings.HasPrefix(e.UUID, "MIG-") {
		return same
	}
	return around
}

// eventText is what the user reads of an event; "" for one that another one explains.
func eventText(e *message.DeviceEvent) string {
	switch e.Kind {
	case gpu.EventXid:
		x := class.FindXid(e.Xid)
		if x.Verdict == class.XidEffect {
			return ""
		}
		return fmt.Sprintf("the driver reported Xid %d: %s", e.Xid, x.Meaning)
	case gpu.EventSingleBit:
		return "an error of its memory was corrected"
	case gpu.EventDoubleBit:
		return "an error of its memory could not be corrected"
	case gpu.EventLost:
		return "it does not answer any more: " + e.Text
	}
	return ""
}

// AddTo gives a device what the driver has reported of it since an instant.
func (d *Driver) AddTo(g *failure.GPU, host int, since link.Instant) {
	var double uint64
	for _, e := range d.events[host] {
		isAbout := func(o plan.Device) bool { return o.UUID == g.UUID && o.PCI == g.PCI }
		if e.at < since || !slices.ContainsFunc(d.concerned(host, e.DeviceEvent), isAbout) {
			continue
		}
		switch e.Kind {
		case gpu.EventXid:
			g.Xids = append(g.Xids, failure.Xid{Number: e.Xid, At: d.run.Since(e.at), Text: e.Text})
		case gpu.EventDoubleBit:
			double++
		case gpu.EventLost:
			if g.Lost == "" {
				g.Lost, g.LostAt = e.Text, d.run.Since(e.at)
			}
		}
	}
	if double > 0 && (g.ECC == nil || *g.ECC < double) {
		g.ECC = &double
	}
}
