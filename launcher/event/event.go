// Package event is what happens in a run, as the coordinator writes it down and
// whoever watches reads it: one JSON object a line. It knows nothing of who makes or
// shows events.
package event

import (
	"encoding/json"
	"time"

	"github.com/muster-dev/muster/launcher/report"
)

// Kind says what happened.
type Kind string

// Kinds of events.
const (
	Linked     Kind = "linked"     // a host's agent and the coordinator have met
	Prepared   Kind = "prepared"   // a host is ready: work folder, setup, command
	Meeting    Kind = "meeting"    // MASTER_ADDR and MASTER_PORT are chosen
	Passed     Kind = "passed"     // an address was passed over for MASTER_ADDR, and why
	Committed  Kind = "committed"  // the run now belongs to the hosts
	Started    Kind = "started"    // a worker runs
	Ended      Kind = "ended"      // a worker ended
	Lost       Kind = "lost"       // a host is not heard any more
	Stopping   Kind = "stopping"   // workers are being ended
	Restarting Kind = "restarting" // an attempt has failed, its number is the event's, and another one follows
	Signalled  Kind = "signalled"  // a signal was passed on to the workers
	Warning    Kind = "warning"
	Found      Kind = "found"  // a check has found something; holds the finding
	Proven     Kind = "proven" // every rank was seen on its GPU
	Shared     Kind = "shared" // other ranks are clients of MPS than before; holds the GPUs of a host
	Over       Kind = "over"   // nothing more will happen; holds the report
)

// Event is something that happened in a run.
type Event struct {
	Seq     uint64          `json:"seq"` // counts from 1
	Time    time.Time       `json:"time"`
	Kind    Kind            `json:"kind"`
	Message string          `json:"message"` // in words, complete by itself
	Host    string          `json:"host,omitempty"`
	Rank    *int            `json:"rank,omitempty"`
	Attempt int             `json:"attempt"`
	PID     int             `json:"pid,omitempty"`
	Log     string          `json:"log,omitempty"`
	Grace   float64         `json:"grace_s,omitempty"` // of Stopping: seconds until SIGKILL
	ByUser  bool            `json:"by_user,omitempty"` // of Stopping: the user wants it
	Failed  bool            `json:"failed,omitempty"`  // of Ended: by itself, not well
	Silent  bool            `json:"silent,omitempty"`  // of Lost: nothing at all is heard from the host
	Report  *report.Report  `json:"report,omitempty"`  // of Over
	Finding *report.Finding `json:"finding,omitempty"` // of Found
	MPS     []report.MPSGPU `json:"mps,omitempty"`     // of Shared
}

// Encode returns the event as a line without its end.
func (e Event) Encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic("events are plain data, which JSON can always express: " + err.Error())
	}
	return b
}
