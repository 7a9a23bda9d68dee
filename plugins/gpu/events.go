package gpu

import (
	"context"
	"time"
)

// EventWatcher is what a Prober is too where the driver tells it of errors of devices
// when they happen. A watch may keep the driver open for as long as it lasts; so whoever
// watches does it by a prober of its own.
type EventWatcher interface {
	// WatchEvents returns what was reported since the call before, as soon as there is
	// something, and with no event once it has waited in vain. The first call begins to
	// watch and returns at once: what happened earlier is not told. Its error means that
	// nobody watches any more; the next call begins anew.
	WatchEvents(ctx context.Context, wait time.Duration) (*Events, error)
}

// Events is what the driver has reported.
type Events struct {
	Events []Event `json:"events"` // in their order
	// Deaf says of which devices nothing is heard, and why, by UUID or else by PCI address.
	Deaf map[string]string `json:"deaf,omitempty"`
}

// Kinds of events.
const (
	EventXid       = "xid"            // an error of NVIDIA's driver, with its number
	EventSingleBit = "ecc_single_bit" // an error of memory that was corrected
	EventDoubleBit = "ecc_double_bit" // one that could not be
	EventLost      = "lost"           // the device does not answer any more
)

// Event is one report.
type Event struct {
	Kind string `json:"kind"`
	UUID string `json:"uuid"`          // of the GPU; empty where a lost one does not tell
	PCI  string `json:"pci"`           // in sysfs form, or empty
	GI   *int   `json:"gi,omitempty"`  // the MIG instance that it is about; nil: the whole GPU
	CI   *int   `json:"ci,omitempty"`  // likewise
	Xid  int    `json:"xid,omitempty"` // number, of an EventXid
	Text string `json:"text,omitempty"`
	// At is when it was heard, in seconds of the machine's CLOCK_BOOTTIME; 0: not told.
	At float64 `json:"at,omitempty"`
}
