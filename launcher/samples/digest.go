package samples

import (
	"cmp"
	"fmt"
	"slices"
)

// Phases of an attempt for which peaks are kept apart: loading and the first steps often
// take more than what follows.
const (
	PhaseStart = "start"  // its first ten minutes
	PhaseLater = "steady" // what follows
)

// PhaseOf is the phase of an attempt after so many seconds of it.
func PhaseOf(age float64) string {
	if age < WarmUp {
		return PhaseStart
	}
	return PhaseLater
}

// Digest is what is told about a host now and then; all samples stay there.
type Digest struct {
	Attempt int     `json:"attempt"`
	Age     float64 `json:"age_s"`           // of the attempt, in seconds awake
	Every   float64 `json:"every_s"`         // seconds between two samples of devices
	Why     string  `json:"why,omitempty"`   // why nothing is known of devices
	Ranks   []Rank  `json:"ranks,omitempty"` // that run
	// Others are processes that hold memory of the ranks' devices and are of no rank.
	Others []Holder `json:"others,omitempty"`
}

// Rank is how a rank stands.
type Rank struct {
	Rank      int      `json:"rank"`
	Attempt   int      `json:"attempt"`
	GPU       *int     `json:"gpu"`             // its number in nvidia-smi, of a MIG instance that of its GPU; null: none, or not known
	Total     float64  `json:"total,omitempty"` // memory of its device in bytes; 0: not known
	Processes int      `json:"processes"`
	Now       Values   `json:"now"`
	Peaks     []Peak   `json:"peaks"` // of the attempt, by phase
	Growth    []Growth `json:"growth,omitempty"`
}

// Peak is the most that a rank had of everything, not at one time.
type Peak struct {
	Attempt int    `json:"attempt"`
	Phase   string `json:"phase"`
	Max     Values `json:"most"`
}

// Holder is a process that holds memory of a device.
type Holder struct {
	Device string  `json:"device"` // UUID
	Rank   int     `json:"rank"`   // -1: somebody else's
	PID    int     `json:"pid"`
	User   string  `json:"user,omitempty"`
	Name   string  `json:"name,omitempty"`
	Bytes  *uint64 `json:"bytes"`
}

// Raise takes values into the peak of an attempt's phase.
func Raise(peaks []Peak, attempt int, phase string, v Values) []Peak {
	at := slices.IndexFunc(peaks, func(p Peak) bool { return p.Attempt == attempt && p.Phase == phase })
	if at < 0 {
		peaks, at = append(peaks, Peak{Attempt: attempt, Phase: phase, Max: None()}), len(peaks)
	}
	peaks[at].Max.raise(v)
	return peaks
}

// Highest are the largest values of peaks.
func Highest(peaks []Peak) Values {
	most := None()
	for _, p := range peaks {
		most.raise(p.Max)
	}
	return most
}

// Held is what a rank holds of its device: what its processes do or, where the driver does
// not tell them apart, what is in use of it.
func (v Values) Held() (float64, bool) {
	if n, known := v.Get(Process); known {
		return n, true
	}
	return v.Get(DeviceUsed)
}

// Uneven is a rank that holds far more of its device than the others do of theirs.
type Uneven struct {
	Rank   int
	Held   float64 // bytes, at most
	Others float64 // the median of the others
}

// A rank stands out if it has held so many times what the others have, and so much more.
const (
	unevenTimes = 1.5
	unevenBytes = 2 << 30
)

// Imbalance finds the ranks whose peak is far over the median of all others'. It takes the
// peaks by rank; three ranks are the fewest of which one can stand out, or two that differ.
func Imbalance(peaks map[int]Values) []Uneven {
	var found []Uneven
	for rank, v := range peaks {
		own, known := v.Held()
		var others []float64
		for other, v := range peaks {
			if n, is := v.Held(); is && other != rank {
				others = append(others, n)
			}
		}
		if !known || len(others) == 0 {
			continue
		}
		slices.Sort(others)
		middle := others[len(others)/2]
		if own >= unevenTimes*middle && own-middle >= unevenBytes {
			found = append(found, Uneven{rank, own, middle})
		}
	}
	slices.SortFunc(found, func(a, b Uneven) int { return cmp.Compare(a.Rank, b.Rank) })
	return found
}

// Words say which rank stands out and what that may be, and what to do about it.
func (u Uneven) Words() (message, fix string) {
	return fmt.Sprintf("rank %d has held up to %s of its device, the other ranks about %s of theirs: tensors made on the wrong device, an uneven split of layers, or uneven batches",
			u.Rank, Size(u.Held), Size(u.Others)),
		"look at what only this rank does: loading a checkpoint to a device without map_location, logging, the first or last pipeline stage"
}

// Overview is what all hosts have told last of an attempt.
type Overview struct {
	Attempt int          `json:"attempt"`
	Hosts   []HostDigest `json:"hosts"`
}

// HostDigest is what a host has told so many seconds ago.
type HostDigest struct {
	Host string  `json:"host"`
	Ago  float64 `json:"ago_s"`
	Digest
}

// Of is what is known of a rank, and what its host has told beside it.
func (o *Overview) Of(rank int) (r Rank, host HostDigest, known bool) {
	if o == nil {
		return r, host, false
	}
	for _, h := range o.Hosts {
		for _, r := range h.Ranks {
			if r.Rank == rank {
				return r, h, true
			}
		}
	}
	return r, host, false
}
