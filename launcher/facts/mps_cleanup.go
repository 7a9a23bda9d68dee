package facts

// MPSThere is what there is of MPS on a host.
type MPSThere struct {
	Processes []MPSProcess `json:"processes,omitempty"`
	// Left says what could not be ended.
	Left []string `json:"left,omitempty"`
}

// States of an MPSProcess.
const (
	MPSServes  = "serves"  // a run that lives, or whoever has started it
	MPSLeft    = "left"    // over from a run that is no more
	MPSStopped = "stopped" // it was, and is ended now
)

// MPSProcess is a daemon of MPS, or a server without one.
type MPSProcess struct {
	PID     int    `json:"pid"`
	Server  bool   `json:"server,omitempty"`
	User    string `json:"user"`
	Run     string `json:"run,omitempty"` // of muster; "": none, or not known
	Device  string `json:"device,omitempty"`
	Pipe    string `json:"pipe,omitempty"`
	State   string `json:"state"`
	Clients []int  `json:"clients,omitempty"`
}
