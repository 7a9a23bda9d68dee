// Package report is what remains of a run: how it ended and why. Its JSON form is a
// contract with scripts (see Version). It knows nothing of how a report is made.
package report

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Version counts incompatible changes of the JSON form.
const Version = 1

// Outcomes of a run.
const (
	OK      = "ok"
	Failed  = "failed"
	Stopped = "stopped" // by the user
)

// Exit statuses of muster's own; others are a worker's.
const (
	ExitOK          = 0
	ExitUsage       = 64  // bad flags
	ExitUnreachable = 69  // a host could not be reached, or was lost for good
	ExitInternal    = 70  // a fault of muster itself
	ExitRefused     = 75  // plan, check or setup refused; no worker was started
	ExitJobFile     = 78  // bad job file; nothing was contacted
	ExitTimeout     = 124 // ended as a hang or by a time limit
	ExitHangup      = 129
	ExitInterrupted = 130
	ExitTerminated  = 143
)

// Report is the end of a run. Times are seconds since 1970.
type Report struct {
	Version    int       `json:"version"`
	Run        string    `json:"run"`
	Job        string    `json:"job"`
	Outcome    string    `json:"outcome"`
	Exit       int       `json:"exit"`
	FirstCause *Cause    `json:"first_cause"`
	Attempts   []Attempt `json:"attempts"`
	Ranks      []Rank    `json:"ranks"`
	// Left names processes that could not be ended, and hosts that could not be asked.
	Left     []string `json:"left"`
	Warnings []string `json:"warnings"`
	// Findings are what checks have found, before the start and after it.
	Findings []Finding `json:"findings"`
	// Placement is "proven" once every rank was seen on its GPU, "unproven" where that did
	// not come about, and empty where no rank has one.
	Placement string `json:"placement,omitempty"`
	// MPS are the GPUs that ranks have shared by MPS.
	MPS []MPSGPU `json:"mps,omitempty"`
}

// MPSGPU is a GPU, or a MIG device, that ranks share by CUDA's MPS.
type MPSGPU struct {
	Host    string    `json:"host"`
	Name    string    `json:"name"` // "GPU 0"
	UUID    string    `json:"uuid"`
	Daemon  int       `json:"daemon_pid,omitempty"` // of the run's own
	Servers []int     `json:"server_pids,omitempty"`
	Ranks   []MPSRank `json:"ranks"`
	Others  []int     `json:"other_clients,omitempty"` // pids that are of no rank
}

// MPSRank is a rank's share of such a GPU, and what was last seen of it. Sizes are bytes.
type MPSRank struct {
	Rank    int     `json:"rank"`
	Client  int     `json:"client_pid,omitempty"`               // 0: it was not seen as a client
	Threads float64 `json:"active_thread_percentage,omitempty"` // 0: no limit
	Limit   uint64  `json:"pinned_memory_limit,omitempty"`      // 0: no limit
	Memory  uint64  `json:"memory_used,omitempty"`
	Peak    uint64  `json:"memory_peak,omitempty"`
}

// Unit is what a worker of the run is called: "rank", or "task".
func (r *Report) Unit() string {
	if len(r.Ranks) > 0 && r.Ranks[0].Task != nil {
		return "task"
	}
	return "rank"
}

// NoRestartBlock is the Reason of an attempt after which nothing else could follow.
const NoRestartBlock = "the job file has no restart block"

// Values of Placement.
const (
	PlacementProven   = "proven"
	PlacementUnproven = "unproven"
)

// Finding is something that a check found, and what to do about it; see muster check.
type Finding struct {
	Code     string         `json:"code"` // see package codes
	Severity codes.Severity `json:"severity"`
	Host     string         `json:"host"` // "" where it is about several
	GPU      *int           `json:"gpu"`  // its number in nvidia-smi; null where it is about none or several
	Rank     *int           `json:"rank"` // null where it is about none or several
	// Message says what was seen, complete by itself: it begins with Where, if it is about
	// a place. It may have several lines, the first of which says the whole.
	Message string `json:"message"`
	Fix     string `json:"fix"` // "" where nothing is to be done
	// Attempt is the one in which it was found, and At when, in seconds since 1970; 0: by a
	// check before the start.
	Attempt int     `json:"attempt"`
	At      float64 `json:"at"`
}

// Where is the place that the message begins with, with the colon after it; "" where it
// begins otherwise.
func (f Finding) Where() string {
	switch {
	case f.Host == "":
		return ""
	case f.GPU != nil:
		return fmt.Sprintf("%s GPU %d: ", f.Host, *f.GPU)
	}
	return f.Host + ": "
}

// Words are the finding as a sentence.
func (f Finding) Words() string {
	if f.Fix == "" {
		return f.Message
	}
	return f.Message + "; " + f.Fix
}

// Cause is what came first.
type Cause struct {
	Class    string             `json:"class"`
	Message  string             `json:"message"` // one sentence
	Host     string             `json:"host,omitempty"`
	Rank     *int               `json:"rank,omitempty"`
	Attempt  int                `json:"attempt"`
	Evidence []string           `json:"evidence"`
	Numbers  map[string]float64 `json:"numbers"`
	Log      string             `json:"log,omitempty"`
	// Confidence says how sure that is: "certain", "likely" or "guess"; empty where there is
	// nothing to doubt.
	Confidence string   `json:"confidence,omitempty"`
	Notes      []string `json:"notes,omitempty"`  // good to know, and no reason
	Advice     []string `json:"advice,omitempty"` // what the user can change, the best and least costly first
	Tail       string   `json:"tail,omitempty"`   // the last lines of its output; bytes that are no UTF-8 replaced
}

// Attempt is one start of all workers.
type Attempt struct {
	Attempt int     `json:"attempt"`
	Started float64 `json:"started"`
	Ended   float64 `json:"ended"`
	Outcome string  `json:"outcome"`
	Class   string  `json:"class,omitempty"`
	Message string  `json:"message,omitempty"` // why it failed
	// Decision is what was done after it, and Reason why.
	Decision string            `json:"decision,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Changes  map[string]string `json:"changes"` // of the next attempt against this one
}

// Rank is a rank over all attempts, or a task.
type Rank struct {
	Rank int    `json:"rank"`
	Host string `json:"host"` // "" of a task that was not started
	GPU  *GPU   `json:"gpu"`  // null: none
	Ends []End  `json:"ends"`
	// MemoryPeak is the most memory of its device that it held in all attempts, in bytes, or,
	// where the driver does not tell processes apart, that was in use of it; null: not known.
	MemoryPeak *float64 `json:"memory_peak"`
	// Peaks is the most of everything that was measured, by attempt and phase.
	Peaks []samples.Peak `json:"peaks"`
	// Task are the words of the task, and Outcome what became of a rank that is of no others'
	// concern: OK, Failed, Stopped or NotRun. Only of jobs whose ranks do not talk to each
	// other.
	Task    []string `json:"task,omitempty"`
	Outcome string   `json:"outcome,omitempty"`
}

// NotRun is the outcome of a task that was never started.
const NotRun = "not_run"

// GPU is the device of a rank, by all its names.
type GPU struct {
	Name string `json:"name"` // as muster's tables have it: "GPU 5", "MIG device 0 of GPU 1"
	gpu.ID
	Seen int `json:"seen_as"` // as the rank's own programs show it: N of cuda:N
}

// End is how a worker ended.
type End struct {
	Attempt         int      `json:"attempt"`
	Exit            int      `json:"exit"` // null where there is none: see MarshalJSON
	Signal          string   `json:"signal,omitempty"`
	StoppedByMuster string   `json:"stopped_by_muster,omitempty"` // the strongest signal that muster sent
	Log             string   `json:"log"`
	Error           string   `json:"error,omitempty"` // why it could not be started, or what is not known
	Left            []string `json:"left,omitempty"`
	// Observed is the newest that the worker has told of itself; nil where that was nothing.
	Observed *observe.Latest `json:"observed,omitempty"`
	// Class, Message, Decision, Reason and Changes are as those of an Attempt; of ranks that
	// do not talk to each other only, whose attempts are their own.
	Class    string            `json:"class,omitempty"`
	Message  string            `json:"message,omitempty"`
	Decision string            `json:"decision,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Changes  map[string]string `json:"changes,omitempty"`
}

// MarshalJSON has null for the exit status of a worker that has none: a signal has ended it, or
// it was never started, or its end is not known. 0 would say that it ended well.
func (e End) MarshalJSON() ([]byte, error) {
	type plain End
	if e.Signal == "" && (e.Error == "" || e.Exit != 0) {
		return json.Marshal(plain(e))
	}
	return json.Marshal(struct {
		plain
		Exit *int `json:"exit"`
	}{plain: plain(e)})
}

// Seconds turns a time into the form that reports use.
func Seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
