package gpu

import (
	"context"
	"time"
)

// EventWatcher is a Prober whose driver reports device errors when they happen. A watch may
// keep the driver open for as long as it lasts: use a prober of its own for it.
type EventWatcher interface {
	// WatchEvents returns what the driver reported since the last call, as soon as there is
	// something, and no event when the wait is over. The first call starts the watch and
	// returns at once: earlier events are not reported. An error ends the watch; the next call
	// starts a new one.
	WatchEvents(ctx context.Context, wait time.Duration) (*Events, error)
}

// Events is what the driver has reported.
type Events struct {
	Events []Event `json:"events"` // in order of arrival
	// Unsupported lists the devices without driver events, with the reason, by UUID or else by
	// PCI address.
	Unsupported map[string]string `json:"unsupported,omitempty"`
}

// Kinds of events.
const (
	EventXid       = "xid"            // an error of NVIDIA's driver, with its number
	EventSingleBit = "ecc_single_bit" // a corrected memory error
	EventDoubleBit = "ecc_double_bit" // an uncorrected one
	EventLost      = "lost"           // the device no longer answers
)

// Event is one report.
type Event struct {
	Kind string `json:"kind"`
	UUID string `json:"uuid"`          // of the GPU; empty where a lost one has none
	PCI  string `json:"pci"`           // in sysfs form, or empty
	GI   *int   `json:"gi,omitempty"`  // the MIG instance concerned; nil: the whole GPU
	CI   *int   `json:"ci,omitempty"`  // likewise
	Xid  int    `json:"xid,omitempty"` // number, of an EventXid
	Text string `json:"text,omitempty"`
	// At is when it arrived, in seconds of the machine's CLOCK_BOOTTIME; 0: unknown.
	At float64 `json:"at,omitempty"`
}
