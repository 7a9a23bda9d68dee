//go:build linux

package mps

import (
	"encoding/json"
	"net"
	"slices"

	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

// client is a client as its server sees it; the server's mu guards it.
type client struct {
	hello
	server     *server
	conn       *net.UnixConn
	namespace  string
	percentage float64
	limits     map[string]uint64
	contexts   []context
	lost       bool // its contexts are, by a fault; it is waited for
}

// context is one of a client's.
type context struct {
	device cuda.Device
	bytes  uint64
}

// settings work out what the client may take: what its server allows, or less where the
// client itself wants less. With mu held.
func (c *client) settings() {
	c.percentage, c.limits = c.server.settings.Percentage, map[string]uint64{}
	if own := c.Settings.Percentage; own > 0 {
		c.percentage = min(c.percentage, own)
	}
	for i, d := range c.server.devices {
		if n := lower(c.server.settings.limit(i, d.UUID), c.Settings.limit(i, d.UUID)); n > 0 {
			c.limits[d.UUID] = n
		}
	}
}

// send writes to the client; one that is gone is noticed by serve. With mu held.
func (c *client) send(a answer) { _ = json.NewEncoder(c.conn).Encode(a) }

// serve does what the client wants until it ends.
func (c *client) serve() {
	requests, s := json.NewDecoder(c.conn), c.server
	for {
		var r request
		err := requests.Decode(&r)
		s.mu.Lock()
		switch {
		case err != nil:
			s.log.line("Server", "Client {%d, %d} exit", c.PID, 0)
			c.leave()
			s.mu.Unlock()
			return
		case r.Do == "context":
			c.send(answer{Server: 1, Error: c.open(r)})
		case r.Do == "fault":
			s.fault(c, r.UUID)
		}
		s.mu.Unlock()
	}
}

// open makes a context, or returns the error. With mu held.
func (c *client) open(r request) (code int) {
	s := c.server
	i := slices.IndexFunc(s.devices, func(d cuda.Device) bool { return d.UUID == r.UUID })
	if i < 0 || c.lost || s.state == faulty {
		return errServerNotReady
	}
	d := s.devices[i]
	contexts, connections := 0, 0
	for _, other := range s.clients {
		for _, context := range other.contexts {
			if context.device.UUID == d.UUID {
				contexts++
				connections += other.Connections
			}
		}
	}
	room := maxClients(s.machine, d)
	switch {
	case contexts >= room:
		return errMaxClients
	case connections+c.Connections > 2*room: // two each, unless a client wants more
		return errMaxConnections
	}
	c.contexts = append(c.contexts, context{d, r.Bytes})
	if len(c.contexts) == 1 {
		s.log.line("Server", "Volta MPS: status of client {%d, %d} is ACTIVE", c.PID, 0)
	}
	s.bookClients(d)
	return 0
}

// bookClients puts down on the server what clients hold of a device older than Volta.
// With mu held.
func (s *server) bookClients(d cuda.Device) {
	if isVolta(s.machine, d) {
		return
	}
	bytes := uint64(0)
	for _, c := range s.clients {
		for _, context := range c.contexts {
			if context.device.UUID == d.UUID {
				bytes += context.bytes
			}
		}
	}
	if err := s.book(d, bytes); err != nil {
		s.log.line("Server", "%v", err)
	}
}

func (c *client) uses(uuids map[string]bool) bool {
	return slices.ContainsFunc(c.contexts, func(context context) bool { return uuids[context.device.UUID] })
}

// leave strikes the client from the list; the second time it does nothing. With mu held.
func (c *client) leave() {
	s := c.server
	i := slices.Index(s.clients, c)
	if i < 0 {
		return
	}
	s.clients = slices.Delete(s.clients, i, i+1)
	c.conn.Close()
	for _, d := range s.devices {
		s.bookClients(d)
	}
	s.recover()
	s.endIfIdle()
}
