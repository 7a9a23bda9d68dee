package failure

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/lines"
)

// told is what a worker's own words come to.
type told struct {
	kind     kind
	at       int
	verdict  Verdict
	survived []hit
	ending   bool // an exception that ended the program was found
}

// listen reads all that a worker has written. found is false where no word of it says why
// the worker ended.
func listen(e Evidence) (t told, found bool) {
	message, stack := errorFile(e.ErrorFile)
	file, inFile := hear([]byte(stack+"\n"+message), "its error file")
	stderr, inErr := hear(e.Stderr, "its standard error")
	stdout, inOut := hear(e.Stdout, "its standard output")
	if inOut && stdout.caughtOnly() && (stderr.ending || file.ending) && !stdout.ending {
		inOut = false // said in passing: the program ended by an exception of another kind
		stdout.survived = append(stdout.survived, hit{verdict: stdout.verdict, survived: "the program ended with another exception"})
	}
	type source struct {
		told
		found bool
	}
	sources := []source{{stderr, inErr && stderr.ending}, {file, inFile}, {stderr, inErr}, {stdout, inOut}}
	for _, s := range sources {
		if s.found && (!found || s.kind < t.kind) {
			t, found = s.told, true
		}
	}
	t.survived = slices.Concat(stderr.survived, stdout.survived)
	return t, found
}

// caughtOnly is whether programs go on after what was said.
func (t told) caughtOnly() bool {
	return strings.HasPrefix(t.verdict.Class, "oom.") || slices.Contains([]string{class.PortInUse, class.DiskFull, class.Storage}, t.verdict.Class)
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

// hear reads one text: what of it came first and says most.
func hear(text []byte, source string) (best told, found bool) {
	log := lines.Read(text)
	hits := hitsOf(log)
	for i := range log.Voices {
		v := &log.Voices[i]
		last := endingOf(v, hits)
		best.ending = best.ending || last != nil
		for _, t := range candidates(v, hits, last) {
			if !found || t.kind < best.kind || t.kind == best.kind && t.at < best.at {
				best.kind, best.at, best.verdict, found = t.kind, t.at, t.verdict, true
			}
		}
	}
	for _, h := range hits {
		if h.survived != "" {
			best.survived = append(best.survived, h)
		}
	}
	if found {
		desync(&best, hits)
		best.complete(hits, log.Only())
		best.verdict.Evidence = append([]string{fmt.Sprintf("%s says %q", source, best.verdict.Said)}, best.verdict.Evidence...)
	}
	return best, found
}

// hitsOf finds the phrases of all voices. What is whole only where all lines are read
// together was folded.
func hitsOf(log lines.Log) []hit {
	var all []hit
	voices := make([]voice, 0, len(log.Voices)+1)
	for i := range log.Voices {
		voices = append(voices, &log.Voices[i])
	}
	if log.Whole != nil {
		voices = append(voices, log.Whole)
	}
	for _, v := range voices {
		for _, h := range hitsIn(v) {
			i := slices.IndexFunc(all, func(o hit) bool { return o.at == h.at && o.phrase == h.phrase })
			if i < 0 {
				all = append(all, h)
				continue
			}
			if len(h.verdict.Numbers) > len(all[i].verdict.Numbers) {
				all[i].verdict, all[i].figures = h.verdict, h.figures
			}
			if all[i].collective.rank == "" {
				all[i].collective.rank = h.collective.rank
			}
		}
	}
	return all
}

// complete adds what other lines say of the same.
func (t *told) complete(hits []hit, only int) {
	if _, known := t.verdict.Numbers[NumRank]; known {
		return
	}
	for _, h := range hits {
		if n, ok := h.verdict.Numbers[NumRank]; ok && h.verdict.Class == t.verdict.Class {
			t.verdict.Numbers[NumRank] = n
			return
		}
	}
	if only != lines.NoRank {
		t.verdict.Numbers[NumRank] = float64(only)
	}
}

// candidates are what one voice gives for a cause.
func candidates(v voice, hits []hit, last *ending) []told {
	var all []told
	further := -1
	if slices.ContainsFunc(hits, func(h hit) bool { return h.caught && h.of == v.Rank }) {
		further = advanced(v)
	}
	for i := range hits {
		h := &hits[i]
		if h.of != v.Rank {
			continue
		}
		if h.findSurvived(last, further); h.survived != "" {
			continue
		}
		t := told{kind: h.kind, at: h.at, verdict: h.verdict}
		if last != nil && last.explained && h.at >= last.first {
			frame, _ := last.Innermost()
			t.verdict.Exception, t.verdict.Where = last.Type, frame.String()
		}
		all = append(all, t)
	}
	if last != nil && !last.explained {
		t := told{kind: kindOf(last.verdict.Class), at: last.Last, verdict: last.verdict}
		if v.Rank != lines.NoRank {
			t.verdict.Numbers[NumRank] = float64(v.Rank)
		}
		all = append(all, t)
	}
	return all
}

// kindOf is how much an exception of the class says.
func kindOf(name string) kind {
	c, _ := class.Find(name)
	switch {
	case c.Symptom:
		return symptom
	case c.Consequence:
		return effect
	case name == class.NCCLSystem:
		return vague
	}
	return cause
}

// desync: where ranks wait for each other in different collectives of the same number,
// none of them is late, and the program has diverged.
func desync(t *told, hits []hit) {
	var seen []collective
	for _, h := range hits {
		if h.collective.seq != "" {
			seen = append(seen, h.collective)
		}
	}
	odd, others := oddOne(seen)
	if odd == nil || t.verdict.Class != class.NCCLTimeout {
		return
	}
	v := desyncOf(*odd, others)
	v.Said, v.Collective = t.verdict.Said, t.verdict.Collective
	t.verdict, t.kind = v, cause
}

func desyncOf(odd, other collective) Verdict {
	v := of(class.NCCLDesync, Certain)
	v.Message = fmt.Sprintf("ranks were in different collectives of the same number %s: rank %s in %s, rank %s in %s", odd.seq, odd.rank, odd.words(), other.rank, other.words())
	h := hit{verdict: v}
	h.rank(odd.rank)
	h.number(NumSeq, odd.seq)
	return h.verdict
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
