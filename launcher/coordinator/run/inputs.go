package run

import (
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Input is something that happened: one of the types below.
type Input any

// Inputs of a run's state machine.
type (
	// Joined: the link to a host is up, for the first time or again.
	Joined struct{ Host int }
	// Dropped: the link to a host ended or was reset.
	Dropped struct {
		Host int
		Why  string
	}
	// Empty: a host's keeper has ended, so nothing of the run is left there.
	Empty struct{ Host int }
	// Update: an agent reported something, at an instant of the coordinator's clock.
	Update struct {
		Host int
		At   link.Instant
		*message.Update
	}
	// Tick: time has passed. Heard says when a host was last heard.
	Tick struct {
		Heard func(host int) (link.Instant, bool)
	}
	// Stop: the user wants an end.
	Stop struct {
		Exit   int
		Reason string
		Kill   bool
		Drain  bool // what runs may end by itself
	}
	// Signal is to be passed on to the leader of each rank.
	Signal struct{ Name string }
	// Attended: the launcher watches the run, so it may begin.
	Attended struct{}
	// LauncherLeft: nobody watches the run any more.
	LauncherLeft struct{}
	// KeeperDied: the keeper beside the coordinator, which would end this host's processes if the agent cannot.
	KeeperDied struct{}
	// Flushed: readers of output have read it, or have left.
	Flushed struct{}
	// Fault is muster's own.
	Fault struct{ Err error }
	// JournalFailed: events do not reach the journal.
	JournalFailed struct{ Err error }
	// Pace: hosts are to report samples that often.
	Pace struct{ message.Pace }
)

// Action is something that the loop is to do. One field is set.
type Action struct {
	Send  *Send
	Event *event.Event
	Began *Began
	Wrap  bool           // wait for readers of output, then report Flushed
	End   *report.Report // the run is over
}

// Send is a command for a host.
type Send struct {
	Host    int
	Command message.Command
}

// Began says that workers of an attempt are being started, so that their output is asked for.
type Began struct {
	Attempt int
	Ranks   []int
}

// Output is which attempts of a rank have output that somebody may want.
type Output struct {
	First, Last int
	Over        bool // nothing more will come
}
