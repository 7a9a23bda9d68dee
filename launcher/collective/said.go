package collective

import (
	"bytes"
	"encoding/json"
)

// States of a phase.
const (
	OK     = "ok"
	Hung   = "hung"   // nothing came of it within its time
	Late   = "late"   // the others did not come
	Failed = "failed" // Error says how
)

// Unusable is the fault of a rank whose torch cannot use CUDA, or has no NCCL.
const Unusable = "Unusable"

// Phases of a rank.
const (
	Torch   = "torch" // it is loaded
	Compute = "compute"
	All     = "all" // an all-reduce of all ranks; those of pairs are "round N"
)

// Said is what a rank has said of a phase.
type Said struct {
	Phase   string  `json:"phase"`
	Rank    int     `json:"rank"`
	State   string  `json:"state"`
	Error   string  `json:"error"`
	Fault   string  `json:"fault"` // the kind of an error of the program's own, and no network's or card's; else ""
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"` // of the best try; of an all-reduce its slowest rank's
	Wrong   int     `json:"wrong"`   // numbers of the result that are not what they must be
	Version string  `json:"version"` // of torch
	Name    string  `json:"name"`    // of the GPU
	PCIe    *PCIe   `json:"pcie"`    // while it was used; nil: not known
}

// PCIe are the files of sysfs-bus-pci about a link, their first word: "16.0" (GT/s), "8".
type PCIe struct {
	Speed    string `json:"current_link_speed"`
	SpeedMax string `json:"max_link_speed"`
	Width    string `json:"current_link_width"`
	WidthMax string `json:"max_link_width"`
}

// maxLine bounds a line that is waited for; what is longer is not the script's.
const maxLine = 16 << 10

// Reader takes what a rank writes, in pieces, and finds what the script says among it.
type Reader struct{ part []byte }

// Take returns what has become complete by this piece.
func (r *Reader) Take(piece []byte) (all []Said) {
	r.part = append(r.part, piece...)
	for {
		line, rest, complete := bytes.Cut(r.part, []byte("\n"))
		if !complete {
			break
		}
		r.part = rest
		if s := (Said{}); json.Unmarshal(line, &s) == nil && s.Phase != "" {
			all = append(all, s)
		}
	}
	if len(r.part) > maxLine {
		r.part = nil
	}
	return all
}
