// Package output finds in what a program wrote why it ended: phrases of allocators, drivers and
// libraries, and exceptions that ended it.
package output

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/lines"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// Said is what a worker's own words come to.
type Said struct {
	Kind     Kind
	at       int
	Verdict  verdict.Verdict
	Survived []Hit
	ending   bool // an exception that ended the program was found
}

// Read reads all that a worker has written. found is false where no word of it says why
// the worker ended.
func Read(w *evidence.Worker) (t Said, found bool) {
	message, stack := errorFile(w.ErrorFile)
	file, inFile := ReadText([]byte(stack+"\n"+message), "its error file")
	stderr, inErr := ReadText(w.Stderr, "its standard error")
	stdout, inOut := ReadText(w.Stdout, "its standard output")
	if inOut && stdout.caughtOnly() && (stderr.ending || file.ending) && !stdout.ending {
		inOut = false // said in passing: the program ended by an exception of another kind
		stdout.Survived = append(stdout.Survived, Hit{Verdict: stdout.Verdict, Survived: "the program ended with another exception"})
	}
	type source struct {
		Said
		found bool
	}
	sources := []source{{stderr, inErr && stderr.ending}, {file, inFile}, {stderr, inErr}, {stdout, inOut}}
	for _, s := range sources {
		if s.found && (!found || s.Kind < t.Kind) {
			t, found = s.Said, true
		}
	}
	t.Survived = slices.Concat(stderr.Survived, stdout.Survived)
	return t, found
}

// caughtOnly is whether programs go on after what was said.
func (t Said) caughtOnly() bool {
	return strings.HasPrefix(t.Verdict.Class, "oom.") || slices.Contains([]string{class.PortInUse, class.DiskFull, class.Storage}, t.Verdict.Class)
}

// errorFile takes apart what PyTorch's @record has written: a message with the stack, or
// the message alone.
func errorFile(text []byte) (message, stack string) {
	var whole struct {
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(text, &whole) != nil || len(whole.Message) == 0 {
		return "", ""
	}
	if json.Unmarshal(whole.Message, &message) == nil {
		return message, ""
	}
	var full struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			Callstack string `json:"py_callstack"`
		} `json:"extraInfo"`
	}
	if json.Unmarshal(whole.Message, &full) != nil {
		return "", ""
	}
	if full.ExtraInfo.Callstack != "" {
		return "", full.ExtraInfo.Callstack // it ends with the message
	}
	return full.Message, ""
}

// ReadText reads one text: what of it came first and says most.
func ReadText(text []byte, source string) (best Said, found bool) {
	log := lines.Read(text)
	hits := hitsOf(log)
	for i := range log.Voices {
		v := &log.Voices[i]
		last := endingOf(v, hits)
		best.ending = best.ending || last != nil
		for _, t := range candidates(v, hits, last) {
			if !found || t.Kind < best.Kind || t.Kind == best.Kind && t.at < best.at {
				best.Kind, best.at, best.Verdict, found = t.Kind, t.at, t.Verdict, true
			}
		}
	}
	for _, h := range hits {
		if h.Survived != "" {
			best.Survived = append(best.Survived, h)
		}
	}
	if found {
		desync(&best, hits)
		best.complete(hits, log.Only())
		best.Verdict.Evidence = append([]string{fmt.Sprintf("%s says %q", source, best.Verdict.Said)}, best.Verdict.Evidence...)
	}
	return best, found
}

// hitsOf finds the phrases of all voices. What is whole only where all lines are read
// together was folded.
func hitsOf(log lines.Log) []Hit {
	var all []Hit
	voices := make([]voice, 0, len(log.Voices)+1)
	for i := range log.Voices {
		voices = append(voices, &log.Voices[i])
	}
	if log.Whole != nil {
		voices = append(voices, log.Whole)
	}
	for _, v := range voices {
		for _, h := range hitsIn(v) {
			i := slices.IndexFunc(all, func(o Hit) bool { return o.at == h.at && o.phrase == h.phrase })
			if i < 0 {
				all = append(all, h)
				continue
			}
			if len(h.Verdict.Numbers) > len(all[i].Verdict.Numbers) {
				all[i].Verdict, all[i].figures = h.Verdict, h.figures
			}
			if all[i].collective.rank == "" {
				all[i].collective.rank = h.collective.rank
			}
		}
	}
	return all
}

// complete adds what other lines say of the same.
func (t *Said) complete(hits []Hit, only int) {
	if _, known := t.Verdict.Numbers[verdict.NumRank]; known {
		return
	}
	for _, h := range hits {
		if n, ok := h.Verdict.Numbers[verdict.NumRank]; ok && h.Verdict.Class == t.Verdict.Class {
			t.Verdict.Numbers[verdict.NumRank] = n
			return
		}
	}
	if only != lines.NoRank {
		t.Verdict.Numbers[verdict.NumRank] = float64(only)
	}
}

// candidates are what one voice gives for a cause.
func candidates(v voice, hits []Hit, last *ending) []Said {
	var all []Said
	further := -1
	if slices.ContainsFunc(hits, func(h Hit) bool { return h.caught && h.of == v.Rank }) {
		further = advanced(v)
	}
	for i := range hits {
		h := &hits[i]
		if h.of != v.Rank {
			continue
		}
		if h.findSurvived(last, further); h.Survived != "" {
			continue
		}
		t := Said{Kind: h.Kind, at: h.at, Verdict: h.Verdict}
		if last != nil && last.explained && h.at >= last.first {
			frame, _ := last.Innermost()
			t.Verdict.Exception, t.Verdict.Where = last.Type, frame.String()
		}
		all = append(all, t)
	}
	if last != nil && !last.explained {
		t := Said{Kind: kindOf(last.Verdict.Class), at: last.Last, Verdict: last.Verdict}
		if v.Rank != lines.NoRank {
			t.Verdict.Numbers[verdict.NumRank] = float64(v.Rank)
		}
		all = append(all, t)
	}
	return all
}

// kindOf is how much an exception of the class says.
func kindOf(name string) Kind {
	c, _ := class.Find(name)
	switch {
	case c.Symptom:
		return Symptom
	case c.Consequence:
		return Effect
	case name == class.NCCLSystem:
		return Vague
	}
	return Cause
}

// desync: where ranks wait for each other in different collectives of the same number,
// none of them is late, and the program has diverged.
func desync(t *Said, hits []Hit) {
	var seen []collective
	for _, h := range hits {
		if h.collective.seq != "" {
			seen = append(seen, h.collective)
		}
	}
	odd, others := oddOne(seen)
	if odd == nil || t.Verdict.Class != class.NCCLTimeout {
		return
	}
	v := desyncOf(*odd, others)
	v.Said, v.Collective = t.Verdict.Said, t.Verdict.Collective
	t.Verdict, t.Kind = v, Cause
}

func desyncOf(odd, other collective) verdict.Verdict {
	v := verdict.Of(class.NCCLDesync, verdict.Certain)
	v.Message = fmt.Sprintf("ranks were in different collectives of the same number %s: rank %s in %s, rank %s in %s", odd.seq, odd.rank, odd.words(), other.rank, other.words())
	h := Hit{Verdict: v}
	h.rank(odd.rank)
	h.number(verdict.NumSeq, odd.seq)
	return h.Verdict
}

func (c collective) words() string {
	if c.numel == "" {
		return c.op
	}
	return fmt.Sprintf("%s of %s elements", c.op, c.numel)
}

// oddOne is the rank whose collective differs from what others of the same number are in;
// of two that differ it is the one seen last.
func oddOne(seen []collective) (odd *collective, other collective) {
	for i := range seen {
		c := &seen[i]
		agree, differ := 0, -1
		for j, o := range seen {
			switch {
			case o.rank == c.rank || o.seq != c.seq:
			case o.op == c.op && o.numel == c.numel:
				agree++
			default:
				differ = j
			}
		}
		if differ >= 0 && agree == 0 {
			odd, other = c, seen[differ]
		}
	}
	return odd, other
}

// Diverged is the verdict on ranks that wait for each other in different collectives of the
// same number, by the verdicts on each; ok is false where none differs.
func Diverged(ranks []int, verdicts []verdict.Verdict) (v verdict.Verdict, ok bool) {
	var seen []collective
	for i, v := range verdicts {
		op, numel, _ := strings.Cut(v.Collective, " ")
		if seq, known := v.Numbers[verdict.NumSeq]; known && op != "" {
			seen = append(seen, collective{rank: fmt.Sprint(ranks[i]), seq: fmt.Sprintf("%.0f", seq), op: op, numel: numel})
		}
	}
	odd, other := oddOne(seen)
	if odd == nil {
		return v, false
	}
	return desyncOf(*odd, other), true
}
