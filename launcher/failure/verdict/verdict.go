// Package verdict says why a worker ended, in words and in numbers.
package verdict

import (
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
)

// Confidences of verdicts.
const (
	Certain = "certain"
	Likely  = "likely"
	Guess   = "guess"
)

// Verdict is why a worker ended.
type Verdict struct {
	Class      string
	Message    string // one sentence, without a full stop
	Confidence string
	Evidence   []string // in words, the strongest first
	// Numbers are bytes and seconds: see the names below.
	Numbers map[string]float64
	// Restart is what another attempt is worth, by all that was seen.
	Restart class.Restart
	// Consequence is set where the cause is another rank's or muster's doing.
	Consequence bool
	Notes       []string // what is good to know and decided nothing
	// Advice is what the user can change in this very case; nil: what the class advises.
	Advice []string

	Exception string // type of the exception that ended it
	Where     string // FILE:LINE of the innermost frame of the user's own
	Said      string // the words that decided
	// Phrase are the known words in it; "" where an exception or a status decided.
	Phrase string
	// Collective is the operation that did not end and its size, of nccl.timeout.
	Collective string
	// Since is when it happened, where that was seen apart from the worker's end; else 0.
	Since float64
	// After is set where muster had sent a signal before the worker ended, but what it
	// wrote is a cause of its own.
	After string
}

// Names of Numbers. A process of another owner is "process_PID" as well.
const (
	NumGPU         = "gpu"             // as the message has it: N of cuda:N
	NumRank        = "rank"            // that the text names
	NumRequested   = "requested"       // bytes that could not be had
	NumTotal       = "total"           // of the device
	NumFree        = "free"            // on the device, as the message has it
	NumAllocated   = "allocated"       // in tensors
	NumReserved    = "reserved"        // taken from the driver by the allocator
	NumUnallocated = "unallocated"     // reserved, and in no tensor
	NumCached      = "cached"          // the same, of PyTorch up to 1.3
	NumLargestFree = "largest_free"    // block of what is unallocated
	NumSelf        = "self"            // all that the process has on the device
	NumAllowed     = "allowed"         // by set_per_process_memory_fraction
	NumOthers      = "other_processes" // on the same device
	NumDeviceUsed  = "device_used"     // by NVML, before the death
	NumDeviceTotal = "device_total"
	NumDeviceAfter = "device_used_after" // by NVML, when it had ended
	NumXid         = "xid"
	NumPort        = "port"
	NumJoined      = "joined"
	NumExpected    = "expected"
	NumSeq         = "seq" // sequence number of the collective
	NumTimeout     = "timeout"
	NumAnonRSS     = "anon_rss"
	NumTotalVM     = "total_vm"
	NumCgroup      = "scope_cgroup" // 1: the limit was a cgroup's, not the host's
	NumLimit       = "memory_limit"
	NumShmTotal    = "shm_total"
	NumShmFree     = "shm_free"
	NumDiskFree    = "disk_free"
	NumDiskTotal   = "disk_total"
)

// Of is a verdict of the class, as far as the table knows.
func Of(name, confidence string) Verdict {
	c, _ := class.Find(name)
	return Verdict{Class: name, Confidence: confidence, Restart: c.Restart, Consequence: c.Consequence,
		Numbers: map[string]float64{}}
}

// AddEvidence adds what decided; empty texts are left out.
func (v *Verdict) AddEvidence(texts ...string) {
	for _, w := range texts {
		if w != "" {
			v.Evidence = append(v.Evidence, w)
		}
	}
}

// AddNote adds what is good to know and decided nothing.
func (v *Verdict) AddNote(text string) {
	if text != "" {
		v.Notes = append(v.Notes, text)
	}
}

// Worst is the less certain of two confidences.
func Worst(a, b string) string {
	for _, c := range []string{Guess, Likely} {
		if a == c || b == c {
			return c
		}
	}
	return Certain
}

// Become changes the class, keeping what was seen.
func (v *Verdict) Become(name, confidence, message string) {
	if v.Class == name {
		v.Confidence = confidence
		return
	}
	changed := Of(name, confidence)
	v.Class, v.Confidence, v.Message = name, confidence, message
	v.Restart, v.Consequence = changed.Restart, changed.Consequence
}

// KeepNumbers takes the numbers of another verdict that this one does not have.
func (v *Verdict) KeepNumbers(from Verdict) {
	for name, n := range from.Numbers {
		if _, known := v.Numbers[name]; !known {
			v.Numbers[name] = n
		}
	}
}

// Excerpt is a text short enough for one line of evidence.
func Excerpt(text string) string {
	const longest = 160
	text = strings.TrimSpace(text)
	if len(text) <= longest {
		return text
	}
	cut := text[:longest]
	if at := strings.LastIndexByte(cut, ' '); at > longest/2 {
		cut = cut[:at]
	}
	return strings.ToValidUTF8(cut, "") + " ..."
}
