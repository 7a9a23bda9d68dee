package coordinator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// deviceEvent is what the driver of a host has reported within the attempt.
type deviceEvent struct {
	*message.DeviceEvent
	at link.Instant
}

// deviceReported takes in what a host's driver reports of a device. By itself it ends nothing: it
// is told, and counts when a worker dies.
func (b *brain) deviceReported(host int, e *message.DeviceEvent, at link.Instant) {
	if e.Attempt != b.attempt || b.phase != running && b.phase != stopping {
		return
	}
	devices := b.concerned(host, e)
	if len(devices) == 0 {
		return // nobody's of this run
	}
	if b.events == nil {
		b.events = map[int][]deviceEvent{}
	}
	again := slices.ContainsFunc(b.events[host], func(o deviceEvent) bool { return *o.DeviceEvent == *e })
	b.events[host] = append(b.events[host], deviceEvent{e, at})
	if words := eventWords(e); words != "" && b.phase == running && !again {
		var names []string
		for _, d := range devices {
			names = append(names, fmt.Sprintf("%v (%s)", d, d.UUID))
		}
		b.warn(b.hosts[host].name, "%s: %s", strings.Join(names, ", "), words)
	}
}

// concerned are the devices of the run that an event is about: one, or all MIG instances of
// a GPU.
func (b *brain) concerned(host int, e *message.DeviceEvent) []plan.Device {
	var same, around []plan.Device
	for _, before := range b.plan.Before(host) {
		switch d := before.Device; {
		case e.UUID != "" && e.UUID == d.UUID:
			same = append(same, d)
		case e.PCI != "" && e.PCI == d.PCI:
			around = append(around, d)
		}
	}
	if len(same) > 0 || e.UUID != "" && strings.HasPrefix(e.UUID, "MIG-") {
		return same
	}
	return around
}

// eventWords is what the user is told of an event; "" for what comes of another one.
func eventWords(e *message.DeviceEvent) string {
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

// addEvents gives a device what the driver has reported of it since an instant.
func (b *brain) addEvents(g *failure.GPU, host int, since link.Instant) {
	var double uint64
	for _, e := range b.events[host] {
		if e.at < since || !slices.ContainsFunc(b.concerned(host, e.DeviceEvent), func(d plan.Device) bool { return d.UUID == g.UUID && d.PCI == g.PCI }) {
			continue
		}
		switch e.Kind {
		case gpu.EventXid:
			g.Xids = append(g.Xids, failure.Xid{Number: e.Xid, At: b.since(e.at), Text: e.Text})
		case gpu.EventDoubleBit:
			double++
		case gpu.EventLost:
			if g.Lost == "" {
				g.Lost, g.LostAt = e.Text, b.since(e.at)
			}
		}
	}
	if double > 0 && (g.ECC == nil || *g.ECC < double) {
		g.ECC = &double
	}
}
