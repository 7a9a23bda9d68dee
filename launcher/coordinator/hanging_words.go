package coordinator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/orders"
)

func lastWords(s orders.RankStack) string {
	if len(s.Stderr) > 0 {
		return text(s.Stderr)
	}
	return text(s.Stdout)
}

// mostPlaces is how many ranks are told of one by one.
const mostPlaces = 16

// placesOf says of each rank where it is, the one that is behind first.
func (b *brain) placesOf(a *asking) []string {
	sorted := slices.SortedStableFunc(slices.Values(a.seen), func(x, y hang.Seen) int { return x.Mark.Compare(y.Mark) })
	var lines []string
	for i, s := range sorted {
		if i == mostPlaces {
			lines = append(lines, fmt.Sprintf("and %d more", len(sorted)-i))
			break
		}
		lines = append(lines, b.placeWords(s, a))
	}
	return append(lines, b.stackWords(sorted, a)...)
}

// stackWords say where stacks are to be found, and why there are none of the program.
func (b *brain) stackWords(sorted []hang.Seen, a *asking) []string {
	var lines, reasons []string
	for i, s := range sorted {
		stack := a.stacks[s.Rank]
		if stack.File != "" && i == 0 {
			lines = append(lines, fmt.Sprintf("all of its stack: %s:%s; those of the others lie beside their output too", s.Host, stack.File))
		}
		if stack.Recorder != "" && len(lines) < mostPlaces {
			lines = append(lines, fmt.Sprintf("torch's flight recorder has written what rank %d did last: %s:%s", s.Rank, s.Host, stack.Recorder))
		}
		if stack.Why != "" && !slices.Contains(reasons, stack.Why) {
			reasons = append(reasons, stack.Why)
		}
	}
	for _, why := range reasons {
		lines = append(lines, "no stack of the program: "+why)
	}
	return lines
}

func (b *brain) placeWords(s hang.Seen, a *asking) string {
	words := []string{fmt.Sprintf("silent for %.0f s", s.Quiet())}
	if s.Mark.Known() {
		words = slices.Insert(words, 0, "at "+s.Mark.String())
	}
	switch {
	case s.Spins:
		words = append(words, "its GPU busy without traffic, as NCCL's kernels wait")
	case s.Device != nil:
		words = append(words, "its GPU at rest")
	}
	stack, found := a.stacks[s.Rank]
	if !found {
		words = append(words, "its host has not said where it is")
		return fmt.Sprintf("%s on %s: %s", b.rankWords(s.Rank), s.Host, strings.Join(words, ", "))
	}
	words = append(words, fmt.Sprintf("pid %d %s", stack.PID, stateWords(stack.State)))
	switch frames := hang.Innermost(stack.How, stack.Text); {
	case frames != "" && stack.How == "kernel":
		words = append(words, "in the kernel at "+frames)
	case frames != "":
		words = append(words, "by "+stack.How+" in "+frames)
	}
	return fmt.Sprintf("%s on %s: %s", b.rankWords(s.Rank), s.Host, strings.Join(words, ", "))
}

// stateWords say what a state of the kernel's means.
func stateWords(state string) string {
	switch {
	case strings.HasPrefix(state, "T"), strings.HasPrefix(state, "t"):
		return "is stopped (SIGSTOP or a debugger): kill -CONT has it go on"
	case strings.HasPrefix(state, "D"):
		return "waits for a device or a file system (" + state + ")"
	}
	return "is " + state
}
