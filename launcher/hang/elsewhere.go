package hang

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// waitPlaces are files whose functions, in a program in which nothing moves, wait for other
// ranks or for a GPU that does: torch's own, down to any operation, as the queue of a GPU that
// waits in NCCL fills up, JAX's and Horovod's. What of torch reads data or writes files is not
// among them.
var (
	waitPlaces = regexp.MustCompile(`(?:^|/)(?:torch/(?:distributed|nn|autograd|cuda|optim|amp|futures|_inductor)/|` +
		`torch/(?:_tensor|_tensor_str|functional|_ops|_C)\b|triton/|jax/_src/|jaxlib/|horovod/)|/torchinductor_`)
	fileWork = regexp.MustCompile(`(?:^|/)torch/distributed/checkpoint/`)
)

// whereabouts is where a rank is by its stack.
type whereabouts struct {
	Seen
	at    frame // the innermost; without function where that is not known
	waits bool  // for others, or for its GPU
}

// unknown is 1 where a rank is at a place that is not known, else 0.
func (w whereabouts) unknown() int {
	if w.at.function == "" {
		return 1
	}
	return 0
}

func whereaboutsOf(s Seen, stack Stack) whereabouts {
	w := whereabouts{Seen: s, waits: s.Spins}
	if stack.How == "kernel" { // which does not say what the program does
		return w
	}
	if frames := stack.frames(1); len(frames) > 0 {
		w.at = frames[0]
		starts := w.at.function == "_lazy_init" // of CUDA, before there is anything to wait for
		w.waits = w.waits || waitPlaces.MatchString(w.at.place) && !fileWork.MatchString(w.at.place) && !starts
	}
	return w
}

// oneElsewhere is the rank that by the stacks is elsewhere, while the others wait for each
// other: the only one, or of many one of a few. A stack shows nothing of what a program's own
// line calls in C, such as loss.item(); so where none is known to wait, only the one counts
// that is not at the line where all others are.
func oneElsewhere(all []Seen, stacks map[int]Stack) (Suspect, bool) {
	var waiting, elsewhere []whereabouts
	for _, s := range all {
		if w := whereaboutsOf(s, stacks[s.Rank]); w.waits {
			waiting = append(waiting, w)
		} else {
			elsewhere = append(elsewhere, w)
		}
	}
	if len(waiting) == 0 {
		return oneAtAnotherLine(elsewhere)
	}
	if len(elsewhere) == 0 || len(elsewhere) > min(3, max(1, len(all)/4)) {
		return Suspect{}, false
	}
	slices.SortStableFunc(elsewhere, func(a, b whereabouts) int { return cmp.Compare(a.unknown(), b.unknown()) })
	first, others := elsewhere[0], "the others wait in "+functionsOf(waiting)
	if first.unknown() > 0 {
		why := "by the stacks " + others + ", and where it is could not be found out"
		return Suspect{first.Seen, why}, len(elsewhere) == 1
	}
	if len(elsewhere) == 1 {
		why := fmt.Sprintf("by the stacks it alone is elsewhere, in %s, while %s", first.at, others)
		return Suspect{first.Seen, why}, true
	}
	var also []string
	for _, w := range elsewhere[1:] {
		also = append(also, fmt.Sprintf("rank %d", w.Rank))
	}
	why := fmt.Sprintf("by the stacks it is elsewhere, in %s, as %s is too, while %s",
		first.at, strings.Join(also, " and "), others)
	return Suspect{first.Seen, why}, true
}

// oneAtAnotherLine is the rank that is not where all others are, of which there are several.
func oneAtAnotherLine(all []whereabouts) (Suspect, bool) {
	for i, w := range all {
		others := slices.Delete(slices.Clone(all), i, i+1)
		if len(others) < 2 || others[0].unknown()+w.unknown() > 0 || w.at == others[0].at {
			continue
		}
		if !slices.ContainsFunc(others, func(o whereabouts) bool { return o.at != others[0].at }) {
			why := fmt.Sprintf("by the stacks it alone is in %s, while the others are all in %s", w.at, others[0].at)
			return Suspect{w.Seen, why}, true
		}
	}
	return Suspect{}, false
}

// maxFunctions is how many functions that ranks wait in are named.
const maxFunctions = 3

// functionsOf names the functions that ranks wait in.
func functionsOf(waiting []whereabouts) string {
	var names []string
	for _, w := range waiting {
		name := w.at.function
		if w.Spins && !waitPlaces.MatchString(w.at.place) {
			name = "NCCL on their GPUs"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := len(names); n > maxFunctions {
		names = append(names[:maxFunctions], fmt.Sprintf("%d more functions", n-maxFunctions))
	}
	return strings.Join(names, ", ")
}
