// Package submission is what a launcher hands to the coordinator of a run. Both ends know the
// job file, which the other messages of a run do not.
package submission

import (
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/rendezvous/link"
)

// MaxMessage bounds a message on the control socket, in bytes: a submission has the facts of
// all hosts, and a report a line for each of a sweep's tasks.
const MaxMessage = 256 << 20

// Run is a submitted run: all that decides it.
type Run struct {
	ID     string        `json:"run"`
	Source config.Source `json:"source"`
	Hosts  []Host        `json:"hosts"`  // in the job file's order
	Digest string        `json:"digest"` // of the plan that the launcher made
	Check  Check         `json:"check"`
}

// Check says whether hosts are checked before the start.
type Check string

const (
	CheckFirst Check = ""     // what fails keeps the run from starting
	CheckNone  Check = "none" // it starts whatever checks would find
	CheckOnly  Check = "only" // hosts are made ready and checked, and nothing starts
)

// Host is a submitted host: it has an agent.
type Host struct {
	Name  string     `json:"name"`
	Pin   link.Pin   `json:"pin"`
	Facts facts.Host `json:"facts"`
	// ClockOffset is how far its clock is ahead of the launcher's, in seconds, and ClockError
	// by how much that may be wrong.
	ClockOffset float64 `json:"clock_offset"`
	ClockError  float64 `json:"clock_error"`
}
