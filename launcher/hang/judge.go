package hang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/observe"
)

// Seen is a rank's pulse with what is known of how far it is.
type Seen struct {
	Pulse
	Host string
	Mark observe.Mark // observe.Nowhere where that is not known
}

// Hung reports whether nothing has moved in any rank for so many seconds. None is still
// where there is none.
func Hung(all []Seen, silence float64) bool {
	for _, s := range all {
		if s.Still() < silence {
			return false
		}
	}
	return len(all) > 0
}

// Suspect is the rank that the others most likely wait for, and why it is named.
type Suspect struct {
	Seen
	Why string
}

// Blame finds the rank that stopped first: the one that is behind, or else the only one
// whose device does not wait in a collective, or else the one that by the stacks is elsewhere,
// or else the one that was silent first. ok is false where all are alike.
func Blame(all []Seen, stacks map[int]Stack) (suspect Suspect, ok bool) {
	if behind, ok := oneBehind(all); ok {
		return behind, true
	}
	if alone, ok := oneThatDoesNotSpin(all); ok {
		return alone, true
	}
	if elsewhere, ok := oneElsewhere(all, stacks); ok {
		return elsewhere, true
	}
	return firstSilent(all)
}

// oneBehind is the rank that is not as far as all others of which that is known.
func oneBehind(all []Seen) (Suspect, bool) {
	known := slices.DeleteFunc(slices.Clone(all), func(s Seen) bool { return !s.Mark.Known() })
	if len(known) < 2 {
		return Suspect{}, false
	}
	slices.SortStableFunc(known, func(a, b Seen) int { return a.Mark.Compare(b.Mark) })
	if known[0].Mark.Compare(known[1].Mark) == 0 {
		return Suspect{}, false
	}
	why := fmt.Sprintf("it is at %s, the others at %s", known[0].Mark, known[1].Mark)
	if known[len(known)-1].Mark.Compare(known[1].Mark) > 0 {
		why += " or later"
	}
	return Suspect{known[0], why}, true
}

func oneThatDoesNotSpin(all []Seen) (Suspect, bool) {
	var still []Seen
	for _, s := range all {
		if !s.Spins {
			still = append(still, s)
		}
	}
	if len(all) < 2 || len(still) != 1 || still[0].Device == nil {
		return Suspect{}, false
	}
	return Suspect{still[0], "its GPU does nothing, while the others' wait in a collective"}, true
}

// apart is how many seconds lie at least between ranks of which one was silent first.
const apart = 1

func firstSilent(all []Seen) (Suspect, bool) {
	if len(all) == 0 {
		return Suspect{}, false
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Seen) int { return cmp.Compare(b.Quiet(), a.Quiet()) })
	first := sorted[0]
	if len(sorted) == 1 {
		return Suspect{first, "it is the only one"}, true
	}
	before := first.Quiet() - sorted[1].Quiet()
	return Suspect{first, fmt.Sprintf("it was silent first, %.0f s before the others", before)}, before >= apart
}

// Straggler finds a rank that keeps the others waiting without being hung: of ranks that
// tell how far they are the one that has not moved for so many seconds while the others have,
// or the one whose GPU computes while all others' spin.
func Straggler(all []Seen, seconds float64) (Suspect, bool) {
	if len(all) < 2 {
		return Suspect{}, false
	}
	if behind, ok := oneBehind(all); ok && behind.Told >= seconds {
		moving := 0
		for _, s := range all {
			if s.Rank != behind.Rank && s.Told < seconds/2 {
				moving++
			}
		}
		if moving == len(all)-1 {
			return behind, true
		}
	}
	alone, ok := oneThatDoesNotSpin(all)
	if !ok || *alone.Device > 2 {
		return Suspect{}, false
	}
	for _, s := range all {
		if s.Rank != alone.Rank && (s.Device == nil || *s.Device < seconds) {
			return Suspect{}, false
		}
	}
	alone.Why = "its GPU computes, while the others' wait for it in a collective"
	return alone, true
}
