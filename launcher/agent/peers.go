//go:build linux

package agent

import (
	"context"
	"sync"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/mtu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// peers checks which hosts of the run reach each other.
type peers struct {
	identity *link.Identity
	loop     *loop.Loop
	server   *mtu.Server // nil: not listening
}

// listen lets the other hosts check that they reach this one, until close or the agent's end.
func (p *peers) listen(c *message.Open) {
	listener, err := listenWithin(c.First, c.Last)
	if err != nil {
		p.loop.Report(message.Update{Opened: &message.Opened{Error: err.Error()}})
		return
	}
	p.server = mtu.Serve(p.identity, c.Pins, listener)
	p.loop.Report(message.Update{Opened: &message.Opened{Port: p.server.Port()}})
}

// check checks that this host reaches the others, all at once. It runs beside the loop.
func (p *peers) check(c *message.Visit) *message.Visited {
	visited := &message.Visited{Results: make([]message.VisitOf, len(c.Peers))}
	var all sync.WaitGroup
	for i, peer := range c.Peers {
		all.Go(func() {
			result := mtu.Check(context.Background(), p.identity, peer.Pin, peer.Addr)
			visited.Results[i] = message.VisitOf{Host: peer.Host, Result: result}
		})
	}
	all.Wait()
	return visited
}

func (p *peers) close() {
	if p.server != nil {
		p.server.Close()
	}
}
