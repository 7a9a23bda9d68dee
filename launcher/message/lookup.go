package message

import "encoding/json"

// Lookup is what a head host knows of a run.
type Lookup struct {
	Known   bool              `json:"known"`
	Control string            `json:"control,omitempty"` // path of the control socket; empty: no coordinator answers
	Journal []json.RawMessage `json:"journal,omitempty"` // the run's events
	// Observed is the newest that all ranks have told; nil where that is not known any more.
	Observed *Observed `json:"observed,omitempty"`
}

// Output is a piece of what a rank has written.
type Output struct {
	Rank int    `json:"rank"`
	Lane uint32 `json:"lane"`
	Data []byte `json:"data,omitempty"`
	End  bool   `json:"end,omitempty"` // there is no more for now
}
