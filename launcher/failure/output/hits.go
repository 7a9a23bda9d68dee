package output

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/lines"
	"github.com/muster-dev/muster/launcher/failure/progress"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

type voice = *lines.Voice

// hit is a phrase that was found.
type Hit struct {
	*phrase
	place      int // in the voice's Flat
	at         int // line
	of         int // rank that the line names, lines.NoRank for none
	Verdict    verdict.Verdict
	figures    figures
	collective collective
	// survived is why the program is taken to have gone on after it; "" if it has not.
	Survived string
}

// maxHits bounds how often a phrase is looked at in one voice: the first and the last
// count, those between say no more.
const maxHits = 32

// hitsIn finds all phrases of a voice, in their order.
func hitsIn(v voice) []Hit {
	var hits []Hit
	for i := range phrases {
		p := &phrases[i]
		for _, text := range p.any {
			for _, place := range places(v.Flat, text) {
				if h, ok := p.at(v, place); ok {
					h.Verdict.Phrase = text
					h.Verdict.Said = verdict.Excerpt(v.Around(place, len(text)))
					hits = append(hits, h)
				}
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return a.place - b.place })
	return slices.CompactFunc(hits, func(a, b Hit) bool { return a.place == b.place })
}

func places(flat, text string) []int {
	var found []int
	for from := 0; len(found) < maxHits; {
		at := strings.Index(flat[from:], text)
		if at < 0 {
			return found
		}
		found = append(found, from+at)
		from += at + len(text)
	}
	if last := strings.LastIndex(flat, text); last > found[maxHits-1] {
		found[maxHits-1] = last
	}
	return found
}

// at makes a hit of the phrase, if its form fits.
func (p *phrase) at(v voice, place int) (Hit, bool) {
	line := v.LineAt(place)
	h := Hit{phrase: p, place: place, at: line.At, of: line.Rank}
	var m []string
	if p.form != nil {
		if m = p.form.FindStringSubmatch(v.Near(place, reach)); m == nil {
			return h, false
		}
	}
	h.Verdict = verdict.Of(p.class, verdict.Certain)
	if p.restart != "" {
		h.Verdict.Restart = p.restart
	}
	if p.sure != "" {
		h.Verdict.Confidence = p.sure
	}
	h.Verdict.Message = p.says
	if p.read != nil {
		p.read(&h, v, m)
	}
	if c, _ := class.Find(h.Verdict.Class); h.Verdict.Message == "" {
		h.Verdict.Message = c.Meaning
	}
	if _, told := h.Verdict.Numbers[verdict.NumRank]; !told && h.of != lines.NoRank {
		h.Verdict.Numbers[verdict.NumRank] = float64(h.of)
	}
	return h, true
}

// findSurvived marks what the program has said and then gone on from: a handler caught it.
// last is the exception that ended the program, and advanced the last line that told of
// progress.
func (h *Hit) findSurvived(last *ending, advanced int) {
	switch {
	case !h.caught:
	case last != nil && !last.explained && h.at < last.first:
		h.Survived = "the program went on after it and ended with another exception"
	case h.at < advanced:
		h.Survived = "the program made further steps after it"
	}
}

// advanced is the last line in which the voice told of progress that it had not told of
// before; -1 where there is none.
func advanced(v voice) int {
	at := -1
	c := progress.NewCounter(progress.Pattern{})
	for _, line := range v.Lines {
		if line.Source {
			continue
		}
		if further := c.Line(line.Text); further && c.First() != c.Furthest() {
			at = line.At
		}
	}
	return at
}
