package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/rendezvous/link"
)

// open opens a door for the other hosts, which stays open until the agent ends.
func (a *agent) open(o *message.Open) {
	listener, err := listenWithin(o.First, o.Last)
	if err != nil {
		a.loop.Report(message.Update{Opened: &message.Opened{Error: err.Error()}})
		return
	}
	a.door = link.OpenDoor(a.identity, o.Pins, listener)
	a.loop.Report(message.Update{Opened: &message.Opened{Port: a.door.Port()}})
}

// listenWithin listens on a port of the range.
func listenWithin(first, last int) (net.Listener, error) {
	count := last - first + 1
	offset := rand.IntN(count)
	var failed error
	for i := range count {
		var l net.Listener
		if l, failed = net.Listen("tcp", ":"+strconv.Itoa(first+(offset+i)%count)); failed == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no port of %d-%d is free: %w", first, last, failed)
}

// visit visits the other hosts, all at once, beside the loop.
func (a *agent) visit(o *message.Visit) {
	go func() {
		results := make([]link.Visit, len(o.Peers))
		var all sync.WaitGroup
		for i, p := range o.Peers {
			all.Go(func() { results[i] = link.VisitPeer(context.Background(), a.identity, p.Pin, p.Addr) })
		}
		all.Wait()
		visited := &message.Visited{}
		for i, p := range o.Peers {
			visited.Results = append(visited.Results, message.VisitOf{Host: p.Host, Visit: results[i]})
		}
		a.loop.Post(func() { a.loop.Report(message.Update{Visited: visited}) })
	}()
}
