package gpu

import (
	"fmt"
	"strings"
)

// Nobody is the rank of a process that belongs to no rank of the run.
const Nobody = -1

// Holder is a process that holds memory of a device.
type Holder struct {
	UUID    string  `json:"uuid"` // of the MIG instance, where it is one
	PID     int     `json:"pid"`
	Rank    int     `json:"rank"`            // Nobody: somebody else's
	Child   bool    `json:"child,omitempty"` // of the rank, but not its leader
	Kind    string  `json:"kind"`            // as in Process
	Bytes   *uint64 `json:"bytes,omitempty"`
	User    string  `json:"user,omitempty"`
	Command string  `json:"command,omitempty"`
	// Serves is set for the server of one of the run's own MPS daemons.
	Serves bool `json:"serves,omitempty"`
}

// Holder is the process as a holder of its device; owners are users by pid.
func (g *GPU) Holder(p Process, owners map[int]string) Holder {
	return Holder{
		UUID: g.DeviceOf(p), PID: p.PID, Rank: Nobody, Kind: p.Kind, Bytes: p.Memory,
		User: owners[p.PID], Command: p.Name,
	}
}

// String names the process: "pid 4242 of ann (python train.py)".
func (h Holder) String() string {
	text := fmt.Sprintf("pid %d", h.PID)
	if h.User != "" {
		text += " of " + h.User
	}
	if h.Command != "" {
		text += " (" + h.Command + ")"
	}
	return text
}

// Program is the program's name without its folder and arguments; "" where the driver does
// not know it, as of other containers' processes.
func (h Holder) Program() string {
	name, _, _ := strings.Cut(h.Command, " ")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if strings.HasPrefix(name, "[") {
		return ""
	}
	return name
}

// Usage is a snapshot of who uses the devices of a host.
type Usage struct {
	Holders []Holder `json:"holders,omitempty"`
	// Used is the memory in use on each device, in bytes, by UUID.
	Used map[string]uint64 `json:"used,omitempty"`
	// Blind says why processes cannot be told apart here; "" where they can.
	Blind string `json:"blind,omitempty"`
	// Error says why there is no snapshot.
	Error string `json:"error,omitempty"`
	// MPS is what the daemons of MPS that serve the run report, one for each device.
	MPS []MPSClients `json:"mps,omitempty"`
}

// MPSClients is what a daemon of MPS reports.
type MPSClients struct {
	Device string `json:"device"` // UUID
	// Clients are its clients, by pid, with their ranks: Nobody for others.
	Clients map[int]int `json:"clients,omitempty"`
	Servers []int       `json:"servers,omitempty"`
	// Error says why it reports nothing.
	Error string `json:"error,omitempty"`
}

// Steady is the snapshot without what changes all the time: amounts of memory.
func (u Usage) Steady() Usage {
	u.Used = nil
	holders := make([]Holder, len(u.Holders))
	for i, h := range u.Holders {
		h.Bytes = nil
		holders[i] = h
	}
	u.Holders = holders
	return u
}
