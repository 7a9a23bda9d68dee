package coordinator

import (
	"net"
	"strconv"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/rendezvous/link"
)

// mostVisiting is up to how many hosts visit each other: the visits grow with the square.
const mostVisiting = 32

// visiting is how far hosts are with visiting each other.
type visiting struct {
	asked, sent bool
	opened      map[int]*message.Opened
	visited     map[int]*message.Visited
}

// haveVisited has every host visit every other where hosts are only checked, and reports
// whether all that can be known of that is. Hosts bound their visits themselves; one that is
// lost is not waited for.
func (b *brain) haveVisited() bool {
	if b.checking != submission.CheckOnly || len(b.hosts) < 2 || len(b.hosts) > mostVisiting || len(b.pins) < len(b.hosts) || b.plan.Backend == "none" || b.plan.Independent {
		return true
	}
	v := &b.visiting
	if !v.asked {
		v.asked, v.opened, v.visited = true, map[int]*message.Opened{}, map[int]*message.Visited{}
		for i := range b.hosts {
			b.send(i, message.Command{Open: &message.Open{First: b.firstPort, Last: b.lastPort, Pins: b.pins}})
		}
	}
	if !v.sent && b.allOf(func(host int) bool { return v.opened[host] != nil }) {
		v.sent = true
		for i := range b.hosts {
			b.send(i, message.Command{Visit: b.visitsOf(i)})
		}
	}
	return v.sent && b.allOf(func(host int) bool { return v.visited[host] != nil })
}

// opened: a host has opened to others, or could not.
func (b *brain) opened(host int, o *message.Opened) {
	b.visiting.opened[host] = o
	if o.Error != "" {
		b.warn(b.hosts[host].name, "whether all others reach it is not checked: %s", o.Error)
	}
}

// allOf is whether something holds of every host that takes part.
func (b *brain) allOf(holds func(host int) bool) bool {
	for i, h := range b.hosts {
		if !h.gone && !holds(i) {
			return false
		}
	}
	return true
}

// visitsOf are a host's visits to all others that have opened, at the address by which they
// came to the head host: the one that ranks use.
func (b *brain) visitsOf(host int) *message.Visit {
	order, m := &message.Visit{}, b.meeting()
	for i := range b.hosts {
		opened := b.visiting.opened[i]
		addr := m.Locals[i]
		if i == 0 {
			addr = m.MasterAddr
		}
		if i != host && opened != nil && opened.Error == "" && addr != "" {
			order.Peers = append(order.Peers, message.Peer{Host: i, Pin: b.pins[i], Addr: net.JoinHostPort(addr, strconv.Itoa(opened.Port))})
		}
	}
	return order
}

// visitsBy are what came of a host's visits.
func (b *brain) visitsBy(host int) map[int]link.Visit {
	found := map[int]link.Visit{}
	if told := b.visiting.visited[host]; told != nil {
		for _, v := range told.Results {
			found[v.Host] = v.Visit
		}
	}
	return found
}
