package orders

import (
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/rendezvous"
)

// News is what an agent tells the coordinator. At is the agent's boot clock when it
// happened. One of the other fields is set.
type News struct {
	At       rendezvous.Instant `json:"at"`
	Reached  *Reached           `json:"reached,omitempty"`
	Prepared *Prepared          `json:"prepared,omitempty"`
	PortHeld *PortHeld          `json:"port_held,omitempty"`
	Started  *Started           `json:"started,omitempty"`
	Ended    *Ended             `json:"ended,omitempty"`
	Warning  *Warning           `json:"warning,omitempty"`
	Failing  *Failing           `json:"failing,omitempty"`
	Finished *Finished          `json:"finished,omitempty"`
}

// Failing says that this host ends its workers without having been told to.
type Failing struct {
	Reason string `json:"reason"`
}

// Reached says which of the coordinator's addresses this host reaches. Complete is
// set once all were tried.
type Reached struct {
	Results  []rendezvous.Reach `json:"results"`
	Complete bool               `json:"complete"`
}

// Prepared answers Prepare. Error is empty when the host is ready.
type Prepared struct {
	Error  string `json:"error,omitempty"`
	Code   int    `json:"code,omitempty"`   // setup's exit status
	Output []byte `json:"output,omitempty"` // the end of what setup wrote
	Log    string `json:"log,omitempty"`    // where all of it is
	// Software is what workers are going to run with.
	Software facts.Software `json:"software,omitzero"`
	// Shared names devices that another run has too, where they were not to be claimed.
	Shared []string `json:"shared,omitempty"`
}

// PortHeld answers HoldPort.
type PortHeld struct {
	Attempt int    `json:"attempt"`
	Port    int    `json:"port,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Started says that a worker runs.
type Started struct {
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	PID     int    `json:"pid"`
	Log     string `json:"log"`
}

// Ended says that a worker ended and its output is in the file.
type Ended struct {
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	Code    int    `json:"code"`
	Signal  string `json:"signal,omitempty"` // name of the signal that killed it
	// Sent is the strongest signal that muster itself had sent to it, if any.
	Sent string `json:"sent,omitempty"`
	// Error says why it could not be started at all.
	Error string `json:"error,omitempty"`
	Log   string `json:"log,omitempty"`
	Tail  []byte `json:"tail,omitempty"` // the last lines that it wrote
	// Left describes processes of the rank that had to be ended after it, or could
	// not be.
	Left []string `json:"left,omitempty"`
	// Cut is set when output was still open 2 s after the last known process was gone.
	Cut bool `json:"cut,omitempty"`
}

// Warning is something that the user should know and that ends nothing.
type Warning struct {
	Rank    int    `json:"rank"` // -1: the host
	Message string `json:"message"`
}

// Finished answers Finish. Left names processes that could not be ended.
type Finished struct {
	Left []string `json:"left,omitempty"`
}
