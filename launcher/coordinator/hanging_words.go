package coordinator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
)

func lastWords(s message.RankStack) string {
	if len(s.Stderr) > 0 {
		return text(s.Stderr)
	}
	return text(s.Stdout)
}

// mostPlaces is how many ranks are told of one by one.
const mostPlaces = 16

// placesOf says of each rank where it is and what it has written last: first the suspect, if
// there is one, then the one that is behind.
func (b *brain) placesOf(a *asking, suspect *int) []string {
	sorted := slices.SortedStableFunc(slices.Values(a.seen), func(x, y hang.Seen) int { return x.Mark.Compare(y.Mark) })
	if suspect != nil {
		at := slices.IndexFunc(sorted, func(s hang.Seen) bool { return s.Rank == *suspect })
		sorted = slices.Concat(sorted[at:at+1], sorted[:at], sorted[at+1:])
	}
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
	switch frames := a.programs()[s.Rank].Innermost(); {
	case frames != "" && stack.How == "kernel":
		words = append(words, "in the kernel at "+frames)
	case frames != "":
		words = append(words, "by "+stack.How+" in "+frames)
	}
	words = append(words, lastLines(stack)...)
	return fmt.Sprintf("%s on %s: %s", b.rankWords(s.Rank), s.Host, strings.Join(words, ", "))
}

// lastLines are the last line that a rank has written, or one of each of its outputs.
func lastLines(s message.RankStack) (words []string) {
	if line := lastLine(s.Stdout); line != "" {
		words = append(words, "last line "+line)
	}
	if line := lastLine(s.Stderr); line != "" {
		words = append(words, "last on stderr "+line)
	}
	return words
}

// longestLine is how much of a line is told among those of other ranks.
const longestLine = 120

// lastLine is the last line of an output that has more than blanks in it, in quotes; "" where
// there is none. Bars of progress begin their line anew without ending it.
func lastLine(output []byte) string {
	lines := strings.FieldsFunc(text(output), func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if shown := []rune(line); len(shown) > longestLine {
			line = string(shown[:longestLine]) + "..."
		}
		return fmt.Sprintf("%q", line)
	}
	return ""
}

// hangAdvice is what can be done with what was found; nil where no program has said where it
// is, of which the class of a hang says what to do.
func (b *brain) hangAdvice(a *asking, suspect *int) []string {
	programs := a.programs()
	switch {
	case !b.job.Hang.Stacks:
		return []string{"hang { stacks = true } finds out where ranks are"}
	case !slices.ContainsFunc(a.seen, func(s hang.Seen) bool { return programs[s.Rank].At() != "" }):
		return nil
	case suspect == nil:
		return []string{"compare the stacks of the ranks; where all wait in collectives, TORCH_DISTRIBUTED_DEBUG=DETAIL has torch name those that do not match"}
	case programs[*suspect].At() != "":
		return []string{fmt.Sprintf("see why %s is in %s: data that it waits for, a branch that only it takes, its GPU", b.rankWords(*suspect), programs[*suspect].At())}
	}
	return []string{b.unseenAdvice(*suspect, a.stacks[*suspect].PID)}
}

// unseenAdvice is how to find out where a rank is whose program has not said so.
func (b *brain) unseenAdvice(rank, pid int) string {
	host := b.hosts[b.ranks[rank].host].name
	if pid == 0 {
		return fmt.Sprintf("see whether %s answers: it has not said where %s is", host, b.rankWords(rank))
	}
	look := fmt.Sprintf("py-spy dump --pid %d on %s, as root, shows where %s is while it hangs", pid, host, b.rankWords(rank))
	if b.job.Hang.Action != config.HangReport {
		look += "; hang { action = \"report\" } leaves it running"
	}
	return look
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
