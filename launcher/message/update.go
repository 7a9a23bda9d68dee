package message

import (
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Update is what an agent reports to the coordinator. At is the agent's boot clock when it
// happened. One of the other fields is set.
type Update struct {
	At       link.Instant    `json:"at"`
	Reached  *Reached        `json:"reached,omitempty"`
	Prepared *Prepared       `json:"prepared,omitempty"`
	PortHeld *PortHeld       `json:"port_held,omitempty"`
	Served   *Served         `json:"served,omitempty"`
	MPSLost  *MPSLost        `json:"mps_lost,omitempty"`
	Started  *Started        `json:"started,omitempty"`
	Ended    *Ended          `json:"ended,omitempty"`
	Warning  *Warning        `json:"warning,omitempty"`
	Usage    *DeviceUsage    `json:"usage,omitempty"`
	Samples  *samples.Digest `json:"samples,omitempty"`
	Observed *Observed       `json:"observed,omitempty"`
	Opened   *Opened         `json:"opened,omitempty"`
	Visited  *Visited        `json:"visited,omitempty"`
	Device   *DeviceEvent    `json:"device,omitempty"`
	Pulses   *Pulses         `json:"pulses,omitempty"`
	Stacks   *StacksTaken    `json:"stacks,omitempty"`
	Failing  *Failing        `json:"failing,omitempty"`
	Finished *Finished       `json:"finished,omitempty"`
}

// Observed is what workers tell of themselves, at most once a second.
type Observed struct {
	Ranks map[int]RankObserved `json:"ranks"` // of which something is new
}

// RankObserved is the newest that the worker of a rank has told of itself.
type RankObserved struct {
	Attempt int             `json:"attempt"`
	Latest  *observe.Latest `json:"latest"`
}

// Pulses are when the ranks of a host have last given signs of life.
type Pulses struct {
	Ranks []hang.Pulse `json:"ranks"`
}

// StacksTaken answers Stacks.
type StacksTaken struct {
	Number int               `json:"number"`
	Ranks  map[int]RankStack `json:"ranks"` // that run
}

// RankStack is where a rank's program is.
type RankStack struct {
	Stdout []byte `json:"stdout,omitempty"` // the end of each
	Stderr []byte `json:"stderr,omitempty"`
	PID    int    `json:"pid"`           // of the process that was looked at
	State  string `json:"state"`         // as the kernel has it: "S (sleeping) in futex_wait_queue"
	How    string `json:"how,omitempty"` // the stack was found: "py-spy", "faulthandler", "kernel"
	Text   string `json:"text,omitempty"`
	Why    string `json:"why,omitempty"`  // there is no stack of the program
	File   string `json:"file,omitempty"` // where all of it is
	// Recorder is the file that torch's flight recorder has written.
	Recorder string `json:"recorder,omitempty"`
}

// Failing says that this host ends its workers without having been told to.
type Failing struct {
	Reason string `json:"reason"`
}

// Reached says which of the coordinator's addresses this host reaches. Complete is
// set once all were tried.
type Reached struct {
	Results  []link.Reach `json:"results"`
	Complete bool         `json:"complete"`
}

// Prepared answers Prepare. Error is empty when the host is ready.
type Prepared struct {
	Error  string `json:"error,omitempty"`
	Code   int    `json:"code,omitempty"`   // setup's exit status
	Output []byte `json:"output,omitempty"` // the end of what setup wrote
	Log    string `json:"log,omitempty"`    // where all of it is
	// Software is what workers are going to run with.
	Software facts.Software `json:"software,omitzero"`
	// Taken is set where the error is that another run has taken a device meanwhile.
	Taken bool `json:"taken,omitempty"`
	// Warnings are what the user should know of the host's getting ready.
	Warnings []string `json:"warnings,omitempty"`
	// Environ is what the environment after setup tells: see facts.Telling.
	Environ map[string]string `json:"environ,omitempty"`
	// Shared names devices that another run has too, where they were not to be claimed.
	Shared []string `json:"shared,omitempty"`
}

// PortHeld answers HoldPort.
type PortHeld struct {
	Attempt int    `json:"attempt"`
	Port    int    `json:"port,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Served answers Serve. Error is empty where all daemons answer and have their limits.
type Served struct {
	Number int    `json:"number"`
	Error  string `json:"error,omitempty"`
	// Tail is what the daemon that Error is about has said last, and Log where all of it is.
	Tail []byte `json:"tail,omitempty"`
	Log  string `json:"log,omitempty"`
	// Folders are where the daemons are, by the device's UUID.
	Folders map[string]MPSFolders `json:"folders,omitempty"`
	// Warnings are what the user should know of them.
	Warnings []string `json:"warnings,omitempty"`
}

// MPSFolders are where a daemon of MPS has its sockets and its logs.
type MPSFolders struct {
	Pipe string `json:"pipe"`
	Log  string `json:"log,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// MPSLost says that ranks have lost their daemon or server of MPS, or their contexts to a
// fault of one of them; the host has ended those ranks.
type MPSLost struct {
	Attempt int      `json:"attempt"`
	Device  string   `json:"device"` // UUID
	Fault   bool     `json:"fault,omitempty"`
	Message string   `json:"message"`
	Locals  []int    `json:"locals"`          // places on the host that share the server
	Lines   []string `json:"lines,omitempty"` // the last of its logs
	Log     string   `json:"log,omitempty"`   // where those are
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
	// Peaks is the most memory that it has used in the attempt, by phase.
	Peaks []samples.Peak `json:"peaks,omitempty"`
	// Evidence is what else is known of its end; nil of one that could not be started.
	Evidence *evidence.Worker `json:"evidence,omitempty"`
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

// DeviceUsage is a snapshot of who uses the host's devices while workers run.
type DeviceUsage struct {
	Attempt int `json:"attempt"`
	// Asked is the number of the Look that this answers; 0: nobody asked.
	Asked int `json:"asked,omitempty"`
	gpu.Usage
}

// DeviceEvent is what the driver has reported of a device of the host while an attempt ran. It happened at the At of
// its Update. The UUID is that of the MIG instance, where it is about one.
type DeviceEvent struct {
	Attempt int `json:"attempt"`
	gpu.Event
}
