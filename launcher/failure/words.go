package failure

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/lines"
	"github.com/muster-dev/muster/launcher/failure/progress"
)

type voice = *lines.Voice

// hit is a phrase that was found.
type hit struct {
	*phrase
	place      int // in the voice's Flat
	at         int // line
	of         int // rank that the line names, lines.NoRank for none
	verdict    Verdict
	figures    figures
	collective collective
	// survived is why the program is taken to have gone on after it; "" if it has not.
	survived string
}

// maxHits bounds how often a phrase is looked at in one voice: the first and the last
// count, those between say no more.
const maxHits = 32

// hitsIn finds all phrases of a voice, in their order.
func hitsIn(v voice) []hit {
	var hits []hit
	for i := range phrases {
		p := &phrases[i]
		for _, text := range p.any {
			for _, place := range places(v.Flat, text) {
				if h, ok := p.at(v, place); ok {
					h.verdict.Phrase = text
					h.verdict.Said = excerpt(v.Around(place, len(text)))
					hits = append(hits, h)
				}
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.place - b.place })
	return slices.CompactFunc(hits, func(a, b hit) bool { return a.place == b.place })
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
func (p *phrase) at(v voice, place int) (hit, bool) {
	line := v.LineAt(place)
	h := hit{phrase: p, place: place, at: line.At, of: line.Rank}
	var m []string
	if p.form != nil {
		if m = p.form.FindStringSubmatch(v.Near(place, reach)); m == nil {
			return h, false
		}
	}
	h.verdict = of(p.class, Certain)
	if p.restart != "" {
		h.verdict.Restart = p.restart
	}
	if p.sure != "" {
		h.verdict.Confidence = p.sure
	}
	h.verdict.Message = p.says
	if p.read != nil {
		p.read(&h, v, m)
	}
	if c, _ := class.Find(h.verdict.Class); h.verdict.Message == "" {
		h.verdict.Message = c.Meaning
	}
	if _, told := h.verdict.Numbers[NumRank]; !told && h.of != lines.NoRank {
		h.verdict.Numbers[NumRank] = float64(h.of)
	}
	return h, true
}

// excerpt is a text short enough for one line of evidence.
func excerpt(text string) string {
	const longest = 160
	text = strings.TrimSpace(text)
	if len(text) <= longest {
		return text
	}
	cut := text[:longest]
	if at := strings.LastIndexByte(cut, ' '); at > longest/2 {
		cut = cut[:at]
	}
	return strings.ToValidUTF8(cut, "") + " ..."
}

// findSurvived marks what the program has said and then gone on from: a handler caught it.
// last is the exception that ended the program, and advanced the last line that told of
// progress.
func (h *hit) findSurvived(last *ending, advanced int) {
	switch {
	case !h.caught:
	case last != nil && !last.explained && h.at < last.first:
		h.survived = "the program went on after it and ended with another exception"
	case h.at < advanced:
		h.survived = "the program made further steps after it"
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
