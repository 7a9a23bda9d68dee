package check

import (
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
)

// Input is what is known before the start.
type Input struct {
	Job   *config.Job
	Plan  *plan.Plan
	Hosts []Host // in the plan's order
	// MasterAddr is the address of the head host that ranks are to meet at; "" where none
	// is chosen: then the first one that every host reaches counts.
	MasterAddr string
	// LimitsRaised is set where workers get their soft limits of memory that is locked and of
	// open files raised to the hard ones: then the hard ones count.
	LimitsRaised bool
}

// Host is what is known of one host.
type Host struct {
	Name  string
	Facts facts.Host
	// Software is what was found once setup was done; the zero value leaves it to Facts.
	Software facts.Software
	// ClockOffset is how far its clock is ahead, in seconds, of one that is the same for
	// all hosts; nil: not measured. ClockError is how far off that may be.
	ClockOffset *float64
	ClockError  float64
	// Visits are what came of its visits to other hosts, where hosts have visited each other.
	Visits []Visit
	// Reach are the addresses that it has tried, in the order of preference.
	Reach []Reach
}

// Reach is what became of a host's try to reach an address of another.
type Reach struct {
	Of    int    // the host whose address it is; 0: the head host
	Addr  string // IP, with or without a port
	From  string // own IP that the connection left from
	Error string // why not; empty: reached
}

// Visit is what became of a host's visit to another, at the address that ranks use.
type Visit struct {
	Of    int
	Addr  string // IP
	From  string // own IP that it left from; "" where it was not let in
	Error string // why not; empty: reached
	// Stuck is set where it was let in and large packets did not arrive; Passes is the
	// largest packet of a few sizes that did, in bytes; 0: none.
	Stuck  bool
	Passes int
}

// runsWith is what workers are going to run with.
func (h Host) runsWith() facts.Software {
	if h.Software != (facts.Software{}) || h.Facts.Software == nil {
		return h.Software
	}
	return *h.Facts.Software
}
