// Package diagnosis finds out why workers ended: it collects the evidence of their ends and what observers know of
// their devices, has it classified, and says what came first and whether another attempt is worth it.
package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/watch"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/report"
)

// Diagnosis is of the ends of a run's workers.
type Diagnosis struct {
	run       *run.Run
	placement *watch.Placement
	driver    *watch.Driver
	mps       *watch.MPS
}

// New makes a diagnosis by what these observers know.
func New(r *run.Run, placement *watch.Placement, driver *watch.Driver, mps *watch.MPS) *Diagnosis {
	return &Diagnosis{r, placement, driver, mps}
}

// First finds what ended the attempt first; ok is false where nothing failed.
func (d *Diagnosis) First() (found failure.Found, ok bool) {
	var all []failure.RankEvidence
	for rank, k := range d.run.Ranks {
		if k.Ended != nil {
			all = append(all, d.Evidence(rank))
		}
	}
	var events []failure.Event
	if lost := d.run.Lost; lost != nil {
		e := failure.Event{
			Class: lost.Class, Message: lost.Message, Host: lost.Host, Rank: failure.NoRank, At: d.run.Since(lost.At),
			Evidence: lost.Evidence, Advice: lost.Advice,
		}
		if lost.Rank != nil {
			e.Rank = *lost.Rank
		}
		events = append(events, e)
	}
	return failure.First(all, events)
}

// Classify classifies a rank's end.
func (d *Diagnosis) Classify(rank int) failure.Verdict {
	return failure.Classify(d.Evidence(rank).Evidence)
}

// Cause says for the report what came first, and which exit status it asks for.
func (d *Diagnosis) Cause(found failure.Found) (*report.Cause, int) {
	v := found.Verdict
	kind, _ := class.Find(v.Class)
	c := &report.Cause{
		Class: v.Class, Message: v.Message, Host: found.Host, Attempt: d.run.Attempt, Confidence: v.Confidence,
		Evidence: v.Evidence, Numbers: v.Numbers, Notes: v.Notes, Advice: kind.Advice,
	}
	if v.Advice != nil {
		c.Advice = v.Advice
	}
	if found.Rank == failure.NoRank {
		if first := d.run.FirstFailure(); first >= 0 && strings.HasPrefix(v.Class, "mps.") {
			return c, run.WorkerExit(d.run.Ranks[first].Ended)
		}
		return c, run.LossExit(v.Class)
	}
	rank := found.Rank
	k, lost := d.run.Ranks[rank], d.run.Lost
	c.Rank, c.Log, c.Attempt = &rank, k.Log, k.Attempt
	switch {
	case lost != nil && (k.Ended == nil || v.Class == lost.Class): // muster has ended the attempt because of it
		c.Tail = lost.Tail
		return c, run.LossExit(v.Class)
	case k.Ended == nil, v.Class == class.Hang:
		return c, run.LossExit(v.Class)
	}
	c.Tail = run.Text(k.Ended.Tail)
	c.Message = fmt.Sprintf("%s on %s %s", d.run.RankName(rank), found.Host, run.HowEnded(k.Ended))
	if v.Class != class.Exit && v.Class != class.Start { // those say no more than that
		c.Message += ": " + v.Message
	}
	d.mps.Explain(c, rank)
	return c, run.WorkerExit(k.Ended)
}

// Survived is what a worker that ended well had survived: it ran out of GPU memory, say. What it did instead is the
// program's secret, and may be nothing.
func (d *Diagnosis) Survived(rank int) []string {
	e := d.run.Ranks[rank].Ended
	if e == nil || e.Error != "" || e.Code != 0 || e.Signal != "" {
		return nil
	}
	evidence := d.Evidence(rank).Evidence
	evidence.Steps, evidence.Observed = nil, nil
	return failure.Classify(evidence).Notes
}

// maxSurvived is how many different notes are reported.
const maxSurvived = 4

// WarnSurvived reports what each rank has survived.
func WarnSurvived(r *run.Run, survived func(rank int) []string) {
	ranks, more := map[string][]int{}, []int(nil)
	for rank := range r.Ranks {
		for _, note := range survived(rank) {
			if _, known := ranks[note]; known || len(ranks) < maxSurvived {
				ranks[note] = append(ranks[note], rank)
			} else if len(more) == 0 || more[len(more)-1] != rank {
				more = append(more, rank)
			}
		}
	}
	for _, note := range slices.Sorted(maps.Keys(ranks)) {
		r.Warn("", "%s: %s", r.ListRanks(ranks[note]), note)
	}
	if len(more) > 0 {
		r.Warn("", "%s: memory had run out there too, in other words", r.ListRanks(more))
	}
}
