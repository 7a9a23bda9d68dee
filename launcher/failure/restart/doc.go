// Package restart decides what follows a failure: another attempt, with what changed and
// how soon, or the end of the run; and says why in words. It is pure: the history, the
// verdict, the job file's rules and the time in, a decision out.
//
// The rules, in the order in which they are asked:
//  1. Without a restart block there is no second attempt.
//  2. What was wanted, or was nobody's failure, is not restarted.
//  3. What belongs to a host ends the run, with the host named: the next attempt would have
//     the same hosts.
//  4. The rules on "CLASS" that name most of the class decide, else what the class is worth
//     by experience (package class). Several on blocks of one class are a ladder.
//  5. A failure with the same signature under the same environment, arguments and hosts,
//     without progress since, is not restarted again, whatever is left of the budget.
//  6. One budget for the run counts every restart within a window; an attempt that ran long
//     enough clears it.
package restart

import (
	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/progress"
)

// Rules are a restart block. Times are seconds.
type Rules struct {
	Attempts     int     // restarts in all, within the window
	Within       float64 // the window; 0 for the whole run
	Backoff      float64 // before the second restart; doubles with each further one
	HealthyAfter float64 // an attempt that ran this long clears what was counted before
	On           []Rule  // in the file's order
}

// Rule is an on block.
type Rule struct {
	Class    string // or what several classes begin with
	Attempts int    // restarts by this rule within the window; Unset where it says nothing
	// WaitMemory is how long the next attempt waits for GPU memory that others hold; Unset.
	WaitMemory float64
	// Settings are what it changes, by names that the report shows; nil where nothing.
	Settings map[string]string
}

// Unset is what a rule says nothing of.
const Unset = -1

// empty is whether the rule names a class and says nothing of it.
func (r Rule) empty() bool { return r.Attempts == Unset && r.plain() }

// plain is whether it changes nothing.
func (r Rule) plain() bool { return len(r.Settings) == 0 && r.WaitMemory == Unset }

// InForce is what an attempt ran with beside the job file's own settings.
type InForce struct {
	Rules  []int  // of Rules.On, in the order in which they came into force
	Remedy Remedy // muster's own
}

// Remedy is a setting that muster tries by itself.
type Remedy string

// Remedies of fragmentation.
const (
	NoRemedy Remedy = ""
	// Expandable is for torch 2.1 and later: it cures most fragmentation.
	Expandable Remedy = "expandable_segments = true"
	// MaxSplit is for older ones, and where expandable segments are not to be used.
	MaxSplit Remedy = "max_split_size = \"128MiB\""
)

// maxSplit is not so small that the allocator has to ask the driver all the time.
const maxSplit = 128 << 20

// Allocator is the remedy as the allocator's settings, nil without one.
func (r Remedy) Allocator() *allocator.Settings {
	const source = "muster's remedy for oom.fragmentation"
	switch r {
	case Expandable:
		return &allocator.Settings{ExpandableSegments: &allocator.Of[bool]{Value: true, Source: source}}
	case MaxSplit:
		return &allocator.Settings{MaxSplitSize: &allocator.Of[uint64]{Value: maxSplit, Source: source}}
	}
	return nil
}

// Past is an attempt that has failed. Times are seconds on one clock.
type Past struct {
	Began, Ended float64
	Class        string
	Signature    string // failure.Signature
	// Situation is a digest of environment, arguments and hosts, without what every attempt
	// has anew (MASTER_PORT, the attempt's number).
	Situation string
	Steps     *failure.Steps // nil where nothing is known
	Rule      int            // of Rules.On that the restart after it was by; Unset for none
	// Free is set where the restart after it does not count: another MASTER_PORT.
	Free bool
}

// History is what was before the decision.
type History struct {
	Past    []Past // attempts that were restarted, oldest first
	Failed  Past   // the one that the decision is about
	InForce InForce
	Host    string // of the first cause; "" where it has none
	Of      string // what is restarted, where that is not the whole run: "rank" or "task"
	Torch   string // version of torch, "" where it is not known
	// Expandable and MaxSplit are set where the job file has these allocator settings, and
	// MPS where ranks run under it, which expandable segments were never tried with.
	Expandable, MaxSplit, MPS bool
}

// Decision is what follows.
type Decision struct {
	Restart bool
	After   float64 // seconds to wait first
	// WaitMemory is how long the attempt may then wait for GPU memory, 0 for not at all.
	WaitMemory float64
	Rule       int // of Rules.On that it is by; Unset for none
	InForce    InForce
	Changes    map[string]string // of the next attempt against this one
	Reason     string            // in words
	Host       string            // that the failure belongs to, where that ends the run
	Advice     []string          // what the user can change, where the run ends
}

// furthest is how far an attempt came.
func (p Past) furthest() progress.Mark {
	if p.Steps == nil {
		return progress.Nowhere
	}
	return p.Steps.Furthest
}

// known is whether anything is known of its progress.
func (p Past) known() bool {
	return p.Steps != nil && (p.Steps.Furthest.Known() || p.Steps.Checkpoint > 0)
}

// healthy is whether an attempt ran long enough, and did something all the while as far as
// one knows: a hang of an hour is no health.
func (p Past) healthy(after float64) bool {
	if p.Ended-p.Began < after {
		return false
	}
	if p.known() {
		return p.Steps.Progressed()
	}
	c, _ := class.Find(p.Class)
	return !c.Silent
}

// beyond is whether an attempt came further than those before it.
func (p Past) beyond(earlier []Past, healthyAfter float64) bool {
	if !p.known() {
		return p.healthy(healthyAfter)
	}
	if p.Steps.Checkpoint > 0 {
		return true
	}
	for _, e := range earlier {
		if p.furthest().Compare(e.furthest()) <= 0 {
			return false
		}
	}
	return true
}
