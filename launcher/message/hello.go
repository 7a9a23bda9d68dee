// Package message is the contract between the parts of a run: what launcher, coordinator and agents send each other,
// as plain structs in JSON. Both ends are of the same build, so there is one version.
package message

import (
	"encoding/json"
	"fmt"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/rendezvous/link"
)

// FromAgent is a line that an agent says to the launcher over the standard output
// it was started with. One field is set.
type FromAgent struct {
	Hello       *Hello `json:"hello,omitempty"`
	Coordinator *Ready `json:"coordinator,omitempty"` // the coordinator beside it is up
	Error       string `json:"error,omitempty"`       // why there will be no more
}

// Hello is an agent's first line.
type Hello struct {
	Version string     `json:"version"`
	Pin     link.Pin   `json:"pin"`
	Facts   facts.Host `json:"facts"`
	Clock   float64    `json:"clock"` // seconds since 1970 on the host when this was said
	// Environment is what workers would find there, where it was asked for.
	Environment map[string]string `json:"environment,omitempty"`
}

// Plugin is a site's own prober of devices; see config.Plugin.
type Plugin struct {
	Name   string   `json:"name"`
	Path   string   `json:"path"`
	Args   []string `json:"args,omitempty"`
	SHA256 string   `json:"sha256"`
}

// Ready is the coordinator's first word.
type Ready struct {
	Pin     link.Pin `json:"pin"`
	Port    int      `json:"port"`            // TCP port on all addresses of the head host
	Control string   `json:"control"`         // path of the control socket
	Error   string   `json:"error,omitempty"` // why there is no coordinator
}

// ToAgent is a line that the launcher says to an agent. Before the Join an empty one
// comes every second; their end ends the agent.
type ToAgent struct {
	Join *Join `json:"join,omitempty"`
}

// Join tells an agent where its coordinator is.
type Join struct {
	Name        string   `json:"name"` // the host's name in the job file
	Head        string   `json:"head"` // that of the host where the coordinator is
	Coordinator link.Pin `json:"coordinator"`
	Addrs       []string `json:"addrs"` // host:port candidates, best first
}

// Encode turns a message into bytes.
func Encode(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("messages of this package are plain data, which JSON can always express: %v", err))
	}
	return b
}
