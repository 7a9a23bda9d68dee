package failure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// RankEvidence is the evidence of one rank.
type RankEvidence struct {
	Rank int
	Host string
	Evidence
}

// Event is what ended an attempt without a worker's having failed by itself: a host or an
// agent that is lost, a hang, an early exit. At is when it happened, not when it was
// noticed, as far as that is known.
type Event struct {
	Class    string
	Message  string
	Host     string // "" where it is about several
	Rank     int    // NoRank where it is about none or several
	At       float64
	Evidence []string
	Advice   []string // as of a Verdict
}

// NoRank is where no rank is meant.
const NoRank = -1

// Found is what came first, and what it led to.
type Found struct {
	Rank    int // NoRank where a host or nobody is the first
	Host    string
	At      float64
	Verdict verdict.Verdict
	// Consequences are the other failures, in their order, the muster's own kills last.
	Consequences []Consequence
}

// Consequence is a failure that is not the first cause.
type Consequence struct {
	Rank    int
	Host    string
	At      float64
	Verdict verdict.Verdict
}

// tier orders failures by what they can be: of a lower tier is the cause, whatever was
// seen first.
type tier int

const (
	causes   tier = iota
	symptoms      // nothing happened in time: some rank is the reason, and it may not know
	lates         // an exception of a rank that muster had sent a signal: it may be of before
	effects       // a peer's end was noticed
	stops         // muster's own
)

func tierOf(v verdict.Verdict) tier {
	c, _ := class.Find(v.Class)
	switch {
	case v.Class == class.Stopped || v.Class == class.None:
		return stops
	case v.After != "" && v.Class == class.UserError:
		return lates
	case v.Consequence:
		return effects
	case c.Symptom:
		return symptoms
	}
	return causes
}

// together is how close in time failures are whose order on several hosts' clocks means
// nothing.
const together = 0.05

// First finds the first cause among all ranks and what else ended the attempt; ok is
// false where nothing failed.
func First(all []RankEvidence, events []Event) (first Found, ok bool) {
	failures := failuresOf(all, events)
	if len(failures) == 0 {
		return Found{Rank: NoRank}, false
	}
	slices.SortStableFunc(failures, func(a, b Consequence) int {
		return cmp.Or(cmp.Compare(tierOf(a.Verdict), tierOf(b.Verdict)),
			cmp.Compare(a.At, b.At), cmp.Compare(a.Rank, b.Rank))
	})
	best := 0
	for i, f := range failures {
		isSame := tierOf(f.Verdict) == tierOf(failures[0].Verdict) && f.At <= failures[0].At+together
		if isSame && rating(f.Verdict) > rating(failures[best].Verdict) {
			best = i
		}
	}
	chosen := failures[best]
	first = Found{chosen.Rank, chosen.Host, chosen.At, chosen.Verdict, slices.Delete(failures, best, best+1)}
	first.suspect(all)
	return first, true
}

// rating tells apart what came at the same time: a host before what it took along, the surer
// one, and who ended by itself before whom muster has ended.
func rating(v verdict.Verdict) int {
	c, _ := class.Find(v.Class)
	rating := 2 * slices.Index([]string{verdict.Guess, verdict.Likely, verdict.Certain}, v.Confidence)
	if c.Owner == class.Host {
		rating += 6
	}
	if v.After == "" {
		rating++
	}
	return rating
}

func failuresOf(all []RankEvidence, events []Event) []Consequence {
	var failures []Consequence
	for _, r := range all {
		if v := Classify(r.Evidence); v.Class != class.None {
			at := r.At
			if v.Since > 0 {
				at = min(at, v.Since)
			}
			failures = append(failures, Consequence{r.Rank, r.Host, at, v})
		}
	}
	for _, e := range events {
		v := verdict.Of(e.Class, verdict.Certain)
		v.Message, v.Advice = e.Message, e.Advice
		v.AddEvidence(e.Evidence...)
		failures = append(failures, Consequence{e.Rank, e.Host, e.At, v})
	}
	return failures
}

// suspect looks, where ranks only waited for each other, for the one they waited for.
func (f *Found) suspect(all []RankEvidence) {
	if f.Verdict.Class != class.NCCLTimeout {
		return
	}
	reported, verdicts := []int{f.Rank}, []verdict.Verdict{f.Verdict}
	for _, c := range f.Consequences {
		if c.Verdict.Class == class.NCCLTimeout {
			reported, verdicts = append(reported, c.Rank), append(verdicts, c.Verdict)
		}
	}
	if v, ok := output.Diverged(reported, verdicts); ok {
		f.diverged(v)
		return
	}
	var silent []string
	for _, r := range all {
		if !slices.Contains(reported, r.Rank) {
			silent = append(silent, fmt.Sprint(r.Rank))
		}
	}
	if len(silent) > 0 && len(silent) <= len(all)/2 {
		f.Verdict.AddEvidence(fmt.Sprintf("rank %s did not report the time-out: look there first", strings.Join(silent, ", ")))
	}
}

// diverged makes the verdict of ranks that were in different collectives.
func (f *Found) diverged(v verdict.Verdict) {
	v.Said = f.Verdict.Said
	v.Evidence = append(v.Evidence, f.Verdict.Evidence...)
	rank := int(v.Numbers[verdict.NumRank])
	for i, c := range f.Consequences {
		if c.Rank == rank {
			f.Consequences[i] = Consequence{f.Rank, f.Host, f.At, f.Verdict}
			f.Rank, f.Host, f.At = c.Rank, c.Host, c.At
			break
		}
	}
	f.Verdict = v
}
