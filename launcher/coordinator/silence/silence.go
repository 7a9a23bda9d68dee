// Package silence finds ranks in which nothing moves. It observes the signs of life that hosts report, asks where
// silent ranks are in their programs, and says which one is the one to look at.
package silence

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/watch"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/progress"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// noticeAfter is when a silence is reported where the job file has no hang block.
	noticeAfter = 10 * time.Minute
	// stalePulse is how old what a host reports may be to be judged by.
	stalePulse = 15 * time.Second
	// stacksWait is how long hosts may take to find out where ranks are.
	stacksWait = 20 * time.Second
	// stragglerAfter is for how long a rank keeps others waiting before it is reported; less where silence itself is
	// less.
	stragglerAfter = 2 * time.Minute
)

// Watch observes the ranks of a run.
type Watch struct {
	run      *run.Run
	memory   *watch.Memory
	meeting  func() plan.Meeting // of the attempt
	together bool                // ranks wait for each other: they hang together or not at all

	pulses    map[int]pulses // the newest of each host
	said      map[int]bool   // ranks that were reported and have not moved since
	inquiry   *inquiry
	blind     link.Instant // since when a host reports nothing of its ranks; 0: all do
	blindSaid bool
	number    int // of the last inquiry
}

type pulses struct {
	*message.Pulses
	at link.Instant
}

// inquiry is the question where ranks are that do not move.
type inquiry struct {
	number int
	since  link.Instant
	silent []hang.Seen // as they were found
	open   map[int]bool
	stacks map[int]message.RankStack
}

// programs are where the ranks' programs were found.
func (q *inquiry) programs() map[int]hang.Stack {
	found := map[int]hang.Stack{}
	for rank, s := range q.stacks {
		found[rank] = hang.Stack{How: s.How, Text: s.Text}
	}
	return found
}

// still is for how many seconds nothing has moved in any of them.
func still(silent []hang.Seen) float64 {
	least := silent[0].Still()
	for _, s := range silent {
		least = min(least, s.Still())
	}
	return least
}

// Verdict is that ranks hang and are to be ended: one, or all.
type Verdict struct {
	*report.Cause
	Of int          // the first of the silent ranks
	At link.Instant // when something moved last
}

// New observes a run; together is set where its ranks wait for each other.
func New(r *run.Run, memory *watch.Memory, meeting func() plan.Meeting, together bool) *Watch {
	return &Watch{
		run: r, memory: memory, meeting: meeting, together: together, pulses: map[int]pulses{}, said: map[int]bool{},
	}
}

// TakePulses takes in the signs of life of a host's ranks.
func (w *Watch) TakePulses(host int, p *message.Pulses) { w.pulses[host] = pulses{p, w.run.Now} }

// TakeStacks takes in where the ranks of a host are.
func (w *Watch) TakeStacks(host int, s *message.StacksTaken) {
	if w.inquiry == nil || s.Number != w.inquiry.number {
		return
	}
	delete(w.inquiry.open, host)
	for rank, stack := range s.Ranks {
		w.inquiry.stacks[rank] = stack
	}
}

// Judge looks whether anything still moves, and returns what is to be ended.
func (w *Watch) Judge() []Verdict {
	if w.run.Phase != run.Running {
		w.inquiry = nil
		return nil
	}
	if q := w.inquiry; q != nil {
		if len(q.open) > 0 && w.run.Now.Sub(q.since) <= stacksWait {
			return nil
		}
		w.inquiry = nil
		return w.conclude(q)
	}
	seen, whole := w.seen()
	silence := noticeAfter
	if w.run.Job.Hang != nil {
		silence = w.run.Job.Hang.Silence
	}
	for _, s := range seen { // what moves again may be reported again
		if s.Still() < silence.Seconds()/2 {
			delete(w.said, s.Rank)
		}
	}
	if silent := w.silent(seen, whole, silence); len(silent) > 0 {
		w.inquire(silent)
	}
	return nil
}

// silent are the ranks that hang and were not reported yet.
func (w *Watch) silent(seen []hang.Seen, whole bool, silence time.Duration) []hang.Seen {
	if !w.together {
		return slices.DeleteFunc(seen, func(s hang.Seen) bool {
			return !hang.Hung([]hang.Seen{s}, silence.Seconds()) || w.said[s.Rank]
		})
	}
	if w.isBlind(whole, silence) || w.endedWithin(silence) {
		return nil
	}
	w.judgeStraggler(seen, min(stragglerAfter, silence/2))
	if !hang.Hung(seen, silence.Seconds()) || w.said[seen[0].Rank] {
		return nil
	}
	return seen
}

// endedWithin reports whether a rank has ended less than so long ago. That has moved those that waited for it, and
// what is known of them may be from before.
func (w *Watch) endedWithin(silence time.Duration) bool {
	return slices.ContainsFunc(w.run.Ranks, func(k *run.Rank) bool {
		return k.Ended != nil && w.run.Now.Sub(k.At) < silence
	})
}

// isBlind reports whether nobody can say that nothing moves, because hosts report nothing of their ranks. Where
// that lasts it is reported: the file server of the run's folder may hang.
func (w *Watch) isBlind(whole bool, silence time.Duration) bool {
	if whole {
		w.blind, w.blindSaid = 0, false
		return false
	}
	if w.blind == 0 {
		w.blind = w.run.Now
	}
	if w.run.Now.Sub(w.blind) < max(silence, stalePulse) || w.blindSaid {
		return true
	}
	w.blindSaid = true
	var hosts []string
	for rank, k := range w.run.Ranks {
		if k.Started && k.Ended == nil && !w.isFresh(rank) && !slices.Contains(hosts, w.run.HostOf(rank)) {
			hosts = append(hosts, w.run.HostOf(rank))
		}
	}
	since := w.run.Now.Sub(w.blind).Round(time.Second)
	w.run.Warn("", "whether ranks still move is not known: %s tells nothing of its ranks since %v "+
		"(does the file system of ~/.local/state hang there?)", strings.Join(hosts, ", "), since)
	return true
}

// isFresh reports whether a rank's newest pulse can be judged by.
func (w *Watch) isFresh(rank int) bool {
	_, at, ok := w.pulseOf(rank)
	return ok && w.run.Now.Sub(at) <= stalePulse
}

// seen are the pulses of the ranks that run, as of now; whole is unset where one is missing or old.
func (w *Watch) seen() (seen []hang.Seen, whole bool) {
	whole = true
	for rank, k := range w.run.Ranks {
		if !k.Started || k.Ended != nil || k.Lost {
			continue
		}
		if !w.isFresh(rank) {
			whole = false
			continue
		}
		p, _, _ := w.pulseOf(rank)
		mark := progress.Nowhere
		if k.Observed != nil {
			mark = k.Observed.Progress
		}
		seen = append(seen, hang.Seen{Pulse: p, Host: w.run.HostOf(rank), Mark: mark})
	}
	return seen, whole && len(seen) > 0
}

// pulseOf is a rank's newest pulse, as it was reported at an instant. What has passed since it was taken is not
// added: nobody has looked meanwhile.
func (w *Watch) pulseOf(rank int) (p hang.Pulse, at link.Instant, ok bool) {
	k := w.run.Ranks[rank]
	newest, known := w.pulses[k.Host]
	if !known {
		return p, 0, false
	}
	for _, one := range newest.Ranks {
		if one.Rank == rank && one.Attempt == k.Attempt {
			return one, newest.at, true
		}
	}
	return p, 0, false
}

// inquire reports that ranks do not move, and asks where they are if the job file wants that.
func (w *Watch) inquire(silent []hang.Seen) {
	for _, s := range silent {
		w.said[s.Rank] = true
	}
	block := w.run.Job.Hang
	if block == nil {
		w.run.Warn("", "%s; hang { silence = \"10m\" } finds out where they are, and ends or restarts the run "+
			"where action says so", w.silenceText(silent))
		return
	}
	w.number++
	w.inquiry = &inquiry{
		number: w.number, since: w.run.Now, silent: silent, open: map[int]bool{}, stacks: map[int]message.RankStack{},
	}
	byHost := map[int][]int{}
	for _, s := range silent {
		host := w.run.Ranks[s.Rank].Host
		byHost[host] = append(byHost[host], s.Rank)
	}
	signal := block.Signal
	if signal == config.NoSignal {
		signal = ""
	}
	for host, ranks := range byHost {
		w.inquiry.open[host] = true
		ask := &message.Stacks{Number: w.number, Ranks: ranks, Deep: block.Stacks, Signal: signal}
		w.run.Send(host, message.Command{Stacks: ask})
	}
	// What comes of it is a finding or the cause of the end: no warning to keep.
	w.run.Say(event.Event{Kind: event.Warning, Message: w.silenceText(silent) + "; finding out where they are"})
}

// stillSilent are those of the silent ranks in which nothing has moved since they were found.
func (w *Watch) stillSilent(silent []hang.Seen) []hang.Seen {
	on := slices.DeleteFunc(slices.Clone(silent), func(s hang.Seen) bool {
		k := w.run.Ranks[s.Rank]
		if k.Attempt != s.Attempt || !k.Started || k.Ended != nil || k.Lost {
			return true
		}
		p, _, ok := w.pulseOf(s.Rank)
		return ok && p.Still() < s.Still()
	})
	if w.together && len(on) < len(silent) {
		return nil
	}
	return on
}

// conclude does what the job file wants with ranks that do not move.
func (w *Watch) conclude(q *inquiry) []Verdict {
	found := q.silent
	if q.silent = w.stillSilent(found); len(q.silent) == 0 {
		text := w.ranksText(found) + ": moved or ended meanwhile; nothing is done"
		w.run.Say(event.Event{Kind: event.Warning, Message: text})
		return nil
	}
	for i, s := range q.silent { // how far each is, where only its output says so
		stack, answered := q.stacks[s.Rank]
		if !answered || s.Mark.Known() {
			continue
		}
		output := &evidence.Worker{Stdout: stack.Stdout, Stderr: stack.Stderr}
		if steps := failure.StepsOf(output, w.run.Job.Progress.Pattern); steps != nil {
			q.silent[i].Mark = steps.Furthest
		}
	}
	if w.together {
		return w.judge(q)
	}
	var all []Verdict
	for _, s := range q.silent {
		one := *q
		one.silent = []hang.Seen{s}
		all = append(all, w.judge(&one)...)
	}
	return all
}

// judge reports a hang, or has it ended.
func (w *Watch) judge(q *inquiry) []Verdict {
	cause := w.cause(q)
	if w.run.Job.Hang.Action == config.HangReport {
		w.run.FindGraded(check.Silent(cause))
		return nil
	}
	at := w.run.Now.Add(-time.Duration(still(q.silent) * float64(time.Second)))
	return []Verdict{{Cause: cause, Of: q.silent[0].Rank, At: at}}
}

// judgeStraggler reports a rank that keeps the others waiting.
func (w *Watch) judgeStraggler(seen []hang.Seen, after time.Duration) {
	s, ok := hang.Straggler(seen, after.Seconds())
	if !ok {
		return
	}
	f := check.Straggler(s.Rank, w.run.RankName(s.Rank), s.Host, s.Why)
	w.run.FindOnce(fmt.Sprintf("straggler %d", s.Rank), f)
}
