package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/check"
	checks "github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/progress"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	// noticeAfter is when a silence is said where the job file has no hang block.
	noticeAfter = 10 * time.Minute
	// stalePulse is how old what a host tells may be to be judged by.
	stalePulse = 15 * time.Second
	// stacksWait is how long hosts may take to find out where ranks are.
	stacksWait = 20 * time.Second
	// stragglerAfter is for how long a rank keeps others waiting before it is said; less where
	// silence itself is less.
	stragglerAfter = 2 * time.Minute
)

// hanging is what is known of ranks in which nothing moves.
type hanging struct {
	pulses map[int]toldPulses // the newest of each host
	said   map[int]bool       // ranks that were told of, and have not moved since
	asking *asking
	blind  link.Instant // since when a host tells nothing of its ranks; 0: all do
	// blindSaid is whether that was said.
	blindSaid bool
	numbers   int
}

type toldPulses struct {
	*message.Pulses
	at link.Instant
}

// pulsed takes in the signs of life of a host's ranks.
func (b *brain) pulsed(host int, p *message.Pulses) {
	if b.hanging.pulses == nil {
		b.hanging.pulses = map[int]toldPulses{}
	}
	b.hanging.pulses[host] = toldPulses{p, b.now}
}

// asking is the question where ranks are that do not move.
type asking struct {
	number int
	since  link.Instant
	seen   []hang.Seen // when they were found
	open   map[int]bool
	stacks map[int]message.RankStack
}

// programs are where the ranks' programs were found.
func (a *asking) programs() map[int]hang.Stack {
	found := map[int]hang.Stack{}
	for rank, s := range a.stacks {
		found[rank] = hang.Stack{How: s.How, Text: s.Text}
	}
	return found
}

// judgeHang looks whether anything still moves.
func (b *brain) judgeHang() {
	if b.phase != running {
		b.hanging.asking = nil
		return
	}
	if a := b.hanging.asking; a != nil {
		if len(a.open) == 0 || b.now.Sub(a.since) > stacksWait {
			b.hanging.asking = nil
			b.concludeHang(a)
		}
		return
	}
	seen, whole := b.pulses()
	silence := noticeAfter
	if b.job.Hang != nil {
		silence = b.job.Hang.Silence
	}
	for _, s := range seen { // what moves again may be told of again
		if s.Still() < silence.Seconds()/2 {
			delete(b.hanging.said, s.Rank)
		}
	}
	if b.places != nil {
		seen = slices.DeleteFunc(seen, func(s hang.Seen) bool { return !hang.Hung([]hang.Seen{s}, silence.Seconds()) || b.hanging.said[s.Rank] })
		if len(seen) > 0 {
			b.hangsNow(seen)
		}
		return
	}
	if b.isBlind(whole, silence) || b.endedWithin(silence) {
		return
	}
	b.judgeStraggler(seen, min(stragglerAfter, silence/2))
	if hang.Hung(seen, silence.Seconds()) && !b.hanging.said[seen[0].Rank] {
		b.hangsNow(seen)
	}
}

// endedWithin reports whether a rank has ended less than so long ago. That has moved those that
// waited for it, and what is known of them may be from before.
func (b *brain) endedWithin(silence time.Duration) bool {
	return slices.ContainsFunc(b.ranks, func(r *rankState) bool { return r.ended != nil && b.now.Sub(r.at) < silence })
}

// isBlind reports whether it cannot be told that nothing moves, because hosts tell nothing of
// their ranks. Where that lasts it is said: the file server of the run's folder may hang.
func (b *brain) isBlind(whole bool, silence time.Duration) bool {
	h := &b.hanging
	if whole {
		h.blind, h.blindSaid = 0, false
		return false
	}
	if h.blind == 0 {
		h.blind = b.now
	}
	if b.now.Sub(h.blind) >= max(silence, stalePulse) && !h.blindSaid {
		h.blindSaid = true
		var silent []string
		for rank, r := range b.ranks {
			_, at, told := b.pulseOf(rank)
			if isOld := !told || b.now.Sub(at) > stalePulse; r.started && r.ended == nil && isOld && !slices.Contains(silent, b.hosts[r.host].name) {
				silent = append(silent, b.hosts[r.host].name)
			}
		}
		b.warn("", "whether ranks still move is not known: %s tells nothing of its ranks since %v (does the file system of ~/.local/state hang there?)", strings.Join(silent, ", "), b.now.Sub(h.blind).Round(time.Second))
	}
	return true
}

// pulses are those of the ranks that run, as of now; whole is unset where one is missing or
// old.
func (b *brain) pulses() (seen []hang.Seen, whole bool) {
	whole = true
	for rank, r := range b.ranks {
		if !r.started || r.ended != nil || r.lost || r.alone != nil && r.alone.over {
			continue
		}
		p, at, ok := b.pulseOf(rank)
		if !ok || b.now.Sub(at) > stalePulse {
			whole = false
			continue
		}
		mark := progress.Nowhere
		if r.observed != nil {
			mark = r.observed.Progress
		}
		seen = append(seen, hang.Seen{Pulse: p, Host: b.hosts[r.host].name, Mark: mark})
	}
	return seen, whole && len(seen) > 0
}

// pulseOf is a rank's newest pulse, as it was told at an instant. What has passed since it
// was taken is not added: nobody has looked meanwhile.
func (b *brain) pulseOf(rank int) (p hang.Pulse, at link.Instant, ok bool) {
	r := b.ranks[rank]
	told, known := b.hanging.pulses[r.host]
	if !known {
		return p, 0, false
	}
	for _, one := range told.Ranks {
		if one.Rank == rank && one.Attempt == r.attempt {
			return one, told.at, true
		}
	}
	return p, 0, false
}

// hangsNow notes that ranks do not move, and asks where they are if that is wanted.
func (b *brain) hangsNow(seen []hang.Seen) {
	if b.hanging.said == nil {
		b.hanging.said = map[int]bool{}
	}
	for _, s := range seen {
		b.hanging.said[s.Rank] = true
	}
	if b.job.Hang == nil {
		b.warn("", "%s; hang { silence = \"10m\" } finds out where they are, and ends or restarts the run where action says so", b.silenceWords(seen))
		return
	}
	b.hanging.numbers++
	a := &asking{number: b.hanging.numbers, since: b.now, seen: seen, open: map[int]bool{}, stacks: map[int]message.RankStack{}}
	b.hanging.asking = a
	byHost := map[int][]int{}
	for _, s := range seen {
		byHost[b.ranks[s.Rank].host] = append(byHost[b.ranks[s.Rank].host], s.Rank)
	}
	signal := b.job.Hang.Signal
	if signal == config.NoSignal {
		signal = ""
	}
	for host, ranks := range byHost {
		a.open[host] = true
		b.send(host, message.Command{Stacks: &message.Stacks{Number: a.number, Ranks: ranks, Deep: b.job.Hang.Stacks, Signal: signal}})
	}
	// What comes of it is told by a finding, or is the cause of the end.
	b.say(event.Event{Kind: event.Warning, Message: b.silenceWords(seen) + "; finding out where they are"})
}

// stacksTaken takes in where the ranks of a host are.
func (b *brain) stacksTaken(host int, s *message.StacksTaken) {
	a := b.hanging.asking
	if a == nil || s.Number != a.number {
		return
	}
	delete(a.open, host)
	for rank, stack := range s.Ranks {
		a.stacks[rank] = stack
	}
}

// silenceWords say for how long nothing has moved, and in which ranks.
func (b *brain) silenceWords(seen []hang.Seen) string {
	still := seen[0].Still()
	for _, s := range seen {
		still = min(still, s.Still())
	}
	return fmt.Sprintf("no output, no progress and no work of %s for %v", b.ranksWords(seen), time.Duration(still*float64(time.Second)).Round(time.Second))
}

func (b *brain) ranksWords(seen []hang.Seen) string {
	var ranks []int
	for _, s := range seen {
		ranks = append(ranks, s.Rank)
	}
	if len(ranks) > 1 && len(ranks) == len(b.ranks) {
		return fmt.Sprintf("all %d ranks", len(ranks))
	}
	return b.listRanks(ranks)
}

// hangsOn are those of the ranks that were found silent in which nothing has moved since.
// Ranks that work together hang together or not at all.
func (b *brain) hangsOn(seen []hang.Seen) []hang.Seen {
	on := slices.DeleteFunc(slices.Clone(seen), func(s hang.Seen) bool {
		r := b.ranks[s.Rank]
		if r.attempt != s.Attempt || !r.started || r.ended != nil || r.lost {
			return true
		}
		p, _, ok := b.pulseOf(s.Rank)
		return ok && p.Still() < s.Still()
	})
	if b.places == nil && len(on) < len(seen) {
		return nil
	}
	return on
}

// concludeHang does what the job file wants of ranks that do not move.
func (b *brain) concludeHang(a *asking) {
	found := a.seen
	if a.seen = b.hangsOn(found); len(a.seen) == 0 {
		b.say(event.Event{Kind: event.Warning, Message: b.ranksWords(found) + ": moved or ended meanwhile; nothing is done"})
		return
	}
	for rank, stack := range a.stacks { // how far each is, where only its output says so
		i := slices.IndexFunc(a.seen, func(s hang.Seen) bool { return s.Rank == rank })
		if i >= 0 && !a.seen[i].Mark.Known() {
			if steps := failure.StepsOf(&evidence.Worker{Stdout: stack.Stdout, Stderr: stack.Stderr}, b.job.Progress.Pattern); steps != nil {
				a.seen[i].Mark = steps.Furthest
			}
		}
	}
	if b.places != nil {
		for _, s := range a.seen {
			one := *a
			one.seen = []hang.Seen{s}
			b.actOnHang(&one)
		}
		return
	}
	b.actOnHang(a)
}

func (b *brain) actOnHang(a *asking) {
	cause, still := b.causeOfHang(a)
	if b.job.Hang.Action == config.HangReport {
		f := report.Finding{Code: checks.Silent, Severity: checks.Warn, Host: cause.Host, Rank: cause.Rank, Message: cause.Message + "\n  " + strings.Join(cause.Evidence, "\n  "), Fix: strings.Join(cause.Advice, "; ")}
		for _, f := range check.Apply([]report.Finding{f}, b.job.Check) {
			b.find(f)
		}
		return
	}
	at := b.now.Add(-time.Duration(still * float64(time.Second)))
	if b.places != nil {
		rank := a.seen[0].Rank
		b.ranks[rank].alone.hung = &failure.Event{Class: class.Hang, Message: cause.Message, Host: cause.Host, Rank: rank, At: b.since(at), Evidence: cause.Evidence, Advice: cause.Advice}
		b.send(b.ranks[rank].host, message.Command{Stop: &message.Stop{Reason: "it hangs", Ranks: []int{rank}}})
		return
	}
	b.lost, b.lostAt = cause, at
	b.stopAll("nothing moves any more", false)
}

// causeOfHang words what was found out. still is for how many seconds nothing has moved.
func (b *brain) causeOfHang(a *asking) (cause *report.Cause, still float64) {
	c := &report.Cause{Class: class.Hang, Message: b.silenceWords(a.seen), Attempt: b.attempt}
	still = a.seen[0].Still()
	for _, s := range a.seen {
		still = min(still, s.Still())
	}
	if suspect, named := hang.Blame(a.seen, a.programs()); named {
		rank := suspect.Rank
		r := b.ranks[rank]
		c.Rank, c.Host, c.Log, c.Attempt = &rank, suspect.Host, r.log, r.attempt
		if len(a.seen) > 1 {
			c.Message += fmt.Sprintf("; %s on %s is the one to look at: %s", b.rankWords(rank), suspect.Host, suspect.Why)
		}
		c.Tail = lastWords(a.stacks[rank])
	}
	c.Evidence = append(b.placesOf(a, c.Rank), b.hangFacts(a.seen)...)
	c.Advice = b.hangAdvice(a, c.Rank)
	return c, still
}

// endsByHang reports whether a failure is a hang that the job file wants no restart after.
func (b *brain) endsByHang(found failure.Found) bool {
	return found.Verdict.Class == class.Hang && b.job.Hang != nil && b.job.Hang.Action == config.HangStop
}

// judgeStraggler tells of a rank that keeps the others waiting.
func (b *brain) judgeStraggler(seen []hang.Seen, after time.Duration) {
	s, ok := hang.Straggler(seen, after.Seconds())
	if !ok || b.places != nil {
		return
	}
	rank := s.Rank
	b.findOnce(fmt.Sprintf("straggler %d", rank), report.Finding{
		Code: checks.Straggler, Severity: checks.Warn, Host: s.Host, Rank: &rank,
		Message: fmt.Sprintf("%s on %s keeps the others waiting: %s", b.rankWords(rank), s.Host, s.Why),
		Fix:     "see what only it does (its data, a checkpoint, an evaluation), and whether its GPU or host is slower: muster check --collective",
	})
}
