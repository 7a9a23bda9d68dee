package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// diagnose finds what ended the attempt first; ok is false where nothing failed.
func (b *brain) diagnose() (found failure.Found, ok bool) {
	var all []failure.RankEvidence
	for rank, r := range b.ranks {
		if r.ended != nil {
			all = append(all, b.evidenceOf(rank, r))
		}
	}
	var events []failure.Event
	if b.lost != nil {
		event := failure.Event{Class: b.lost.Class, Message: b.lost.Message, Host: b.lost.Host, Rank: failure.NoRank, At: b.since(b.lostAt), Evidence: b.lost.Evidence, Advice: b.lost.Advice}
		if b.lost.Rank != nil {
			event.Rank = *b.lost.Rank
		}
		events = append(events, event)
	}
	return failure.First(all, events)
}

// since is how long an instant is after the beginning of the attempt, in seconds.
func (b *brain) since(at link.Instant) float64 {
	if at == 0 || b.begun == 0 {
		return 0
	}
	return at.Sub(b.begun).Seconds()
}

func (b *brain) evidenceOf(rank int, r *rankState) failure.RankEvidence {
	e := r.ended
	found := failure.RankEvidence{Rank: rank, Host: b.hosts[r.host].name, Evidence: failure.Evidence{
		Code: e.Code, Signal: e.Signal, Sent: e.Sent, At: b.since(r.at),
	}}
	if e.Code == 0 && e.Signal == "" && !cannotBeKilled(e) {
		found.Start = e.Error
	}
	seen := e.Evidence
	if seen == nil {
		found.Stderr = e.Tail
		return found
	}
	found.Worker = *seen
	found.GPUs = b.devicesOf(rank, r.host, seen.Devices)
	found.MPSLimit = b.plan.MPSMemory(r.place)
	if seen.Devices != nil {
		found.NoEvents = seen.Devices.NoEvents
		if d := b.placeOf(rank).Device; d != nil && found.NoEvents == "" {
			found.NoEvents = cmp.Or(seen.Devices.Unsupported[d.UUID], seen.Devices.Unsupported[d.PCI])
		}
	}
	found.Steps = failure.StepsOf(seen, b.job.Progress.Pattern)
	return found
}

// devicesOf are the devices of a rank's host, as they were last seen while it ran and first
// after. seen is what the host has told with its end.
func (b *brain) devicesOf(rank, host int, seen *evidence.Devices) []failure.GPU {
	var all []failure.GPU
	for i, before := range b.plan.Before(host) {
		d := before.Device
		g := failure.GPU{ID: d.ID, Seen: b.seenAs(rank, host, i)}
		for _, r := range b.plan.Ranks[b.plan.Hosts[host].FirstRank : b.plan.Hosts[host].FirstRank+b.plan.Hosts[host].Ranks] {
			if r.Device != nil && r.Device.UUID == d.UUID {
				g.Ranks++
				g.Mine = g.Mine || r.Rank == b.ranks[rank].place
			}
		}
		switch {
		case seen != nil && seen.Before != nil:
			g.Before = useOf(d.UUID, before, seen.Before, rank)
		case b.watch != nil && b.watch.last[host] != nil:
			g.Before = useOf(d.UUID, before, b.watch.last[host].sight, rank)
		default:
			g.Before = useOfPlan(before)
		}
		if seen != nil {
			if seen.After != nil {
				g.After = useOf(d.UUID, before, seen.After, rank)
			}
			if n, counted := seen.ECC[d.UUID]; counted {
				g.ECC = &n
			}
		}
		b.addEvents(&g, host, b.begunOf(rank))
		all = append(all, g)
	}
	return all
}

// seenAs is the number by which a rank calls the device at a place of its host's list; -1
// where it does not see it.
func (b *brain) seenAs(rank, host, at int) int {
	if b.plan.Hosts[host].Visibility == "host" {
		return at
	}
	if d := b.placeOf(rank).Device; d != nil && at < len(b.plan.Hosts[host].Devices) && d.UUID == b.plan.Before(host)[at].Device.UUID {
		return 0
	}
	return -1
}

func useOf(uuid string, before plan.Before, s *gpu.Usage, rank int) *failure.Use {
	used, known := s.Used[uuid]
	if !known {
		return nil
	}
	use := &failure.Use{Total: before.Total, Used: used}
	for _, h := range s.Holders {
		if h.UUID == uuid {
			use.Processes = append(use.Processes, failure.Process{Holder: h, Own: h.Rank == rank})
		}
	}
	return use
}

// useOfPlan is what others held when the plan was made, for a worker that was gone before
// anybody looked; nil where that was nothing.
func useOfPlan(before plan.Before) *failure.Use {
	if before.Total == 0 || len(before.Holders) == 0 {
		return nil
	}
	use := &failure.Use{Total: before.Total, Used: before.Used}
	for _, h := range before.Holders {
		use.Processes = append(use.Processes, failure.Process{Holder: h})
	}
	if p := use.Processes; len(p) == 1 && gpu.OrZero(p[0].Bytes) == 0 { // all is that one's
		p[0].Bytes = &use.Used
	}
	return use
}

// mostSurvived is how many different words of workers are told.
const mostSurvived = 4

// flagSurvived tells of workers that ended well although their GPU memory had run out: what
// they did instead is the program's secret, and may be nothing.
func (b *brain) flagSurvived() {
	ranks, more := map[string][]int{}, []int(nil)
	for rank := range b.ranks {
		for _, note := range b.survivedBy(rank) {
			if _, known := ranks[note]; known || len(ranks) < mostSurvived {
				ranks[note] = append(ranks[note], rank)
			} else if len(more) == 0 || more[len(more)-1] != rank {
				more = append(more, rank)
			}
		}
	}
	for _, note := range slices.Sorted(maps.Keys(ranks)) {
		b.warn("", "%s: %s", b.listRanks(ranks[note]), note)
	}
	if len(more) > 0 {
		b.warn("", "%s: memory had run out there too, in other words", b.listRanks(more))
	}
}

// survivedBy is what a worker that ended well had survived.
func (b *brain) survivedBy(rank int) []string {
	r := b.ranks[rank]
	switch {
	case r.alone != nil && r.alone.over:
		return r.alone.survived
	case r.ended == nil || r.ended.Error != "" || r.ended.Code != 0 || r.ended.Signal != "":
		return nil
	}
	seen := b.evidenceOf(rank, r).Evidence
	seen.Steps, seen.Observed = nil, nil
	return failure.Classify(seen).Notes
}

// begunOf is when a rank's attempt began.
func (b *brain) begunOf(rank int) link.Instant {
	if u := b.ranks[rank].alone; u != nil {
		return u.begun
	}
	return 0 // events are those of the attempt
}

// attemptOf is in which attempt a rank is, or where it is none all are.
func (b *brain) attemptOf(rank int) int {
	if rank == failure.NoRank {
		return b.attempt
	}
	return b.ranks[rank].attempt
}

// causeOf words what came first for the report, and says which exit status it asks for.
func (b *brain) causeOf(found failure.Found) (*report.Cause, int) {
	v := found.Verdict
	kind, _ := class.Find(v.Class)
	c := &report.Cause{
		Class: v.Class, Message: v.Message, Host: found.Host, Attempt: b.attemptOf(found.Rank), Confidence: v.Confidence,
		Evidence: v.Evidence, Numbers: v.Numbers, Notes: v.Notes, Advice: kind.Advice,
	}
	if v.Advice != nil {
		c.Advice = v.Advice
	}
	if found.Rank == failure.NoRank {
		if first := b.firstFailure(); first >= 0 && strings.HasPrefix(v.Class, "mps.") { // its end is that of the cause
			return c, workerExit(b.ranks[first].ended)
		}
		return c, lossExit(v.Class)
	}
	r := b.ranks[found.Rank]
	rank := found.Rank
	c.Rank, c.Log = &rank, r.log
	if r.ended == nil || b.lost != nil && v.Class == b.lost.Class { // muster has ended the attempt because of it
		if b.lost != nil {
			c.Tail = b.lost.Tail
		}
		return c, lossExit(v.Class)
	}
	if r.alone != nil && v.Class == class.Hang {
		return c, lossExit(v.Class)
	}
	c.Tail = text(r.ended.Tail)
	c.Message = fmt.Sprintf("%s on %s %s", b.rankWords(rank), found.Host, howEnded(r.ended))
	if v.Class != class.Exit && v.Class != class.Start { // of which that says all
		c.Message += ": " + v.Message
	}
	b.ofMPS(c, found)
	return c, workerExit(r.ended)
}

// workerExit is the exit status that a worker's end makes the run's.
func workerExit(e *message.Ended) int {
	switch {
	case e.Error != "" && e.Code == 0 && e.Signal == "":
		return 127
	case e.Signal != "":
		return 128 + signalNumber(e.Signal)
	}
	return e.Code
}
