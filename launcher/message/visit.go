package message

import (
	"github.com/muster-dev/muster/launcher/mtu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Open opens a port of the range to the hosts with these pins. Answered by Opened.
type Open struct {
	First int        `json:"first"`
	Last  int        `json:"last"`
	Pins  []link.Pin `json:"pins"`
}

// Opened answers Open.
type Opened struct {
	Port  int    `json:"port,omitempty"`
	Error string `json:"error,omitempty"`
}

// Visit has the host visit others. Answered by Visited.
type Visit struct {
	Peers []Peer `json:"peers"`
}

// Peer is a host that has opened a port.
type Peer struct {
	Host int      `json:"host"`
	Pin  link.Pin `json:"pin"`
	Addr string   `json:"addr"` // with the port
}

// Visited answers Visit.
type Visited struct {
	Results []VisitOf `json:"results"`
}

// VisitOf is the check of the way to a host.
type VisitOf struct {
	Host int `json:"host"`
	mtu.Result
}
