package silence

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
)

const (
	maxPlaces = 16  // ranks, or hosts, that are named one by one
	maxLine   = 120 // of a line of output that is quoted among those of other ranks
)

// cause says what was found out.
func (w *Watch) cause(q *inquiry) *report.Cause {
	c := &report.Cause{Class: class.Hang, Message: w.silenceText(q.silent), Attempt: w.run.Attempt}
	if suspect, named := hang.Blame(q.silent, q.programs()); named {
		rank := suspect.Rank
		c.Rank, c.Host, c.Log, c.Attempt = &rank, suspect.Host, w.run.Ranks[rank].Log, w.run.Ranks[rank].Attempt
		if len(q.silent) > 1 {
			c.Message += fmt.Sprintf("; %s on %s is the one to look at: %s",
				w.run.RankName(rank), suspect.Host, suspect.Why)
		}
		stack := q.stacks[rank]
		if c.Tail = run.Text(stack.Stderr); len(stack.Stderr) == 0 {
			c.Tail = run.Text(stack.Stdout)
		}
	}
	c.Evidence = append(w.places(q, c.Rank), w.known(q.silent)...)
	c.Advice = w.advice(q, c.Rank)
	return c
}

// silenceText says for how long nothing has moved, and in which ranks.
func (w *Watch) silenceText(silent []hang.Seen) string {
	passed := time.Duration(still(silent) * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("no output, no progress and no work of %s for %v", w.ranksText(silent), passed)
}

func (w *Watch) ranksText(silent []hang.Seen) string {
	var ranks []int
	for _, s := range silent {
		ranks = append(ranks, s.Rank)
	}
	if len(ranks) > 1 && len(ranks) == len(w.run.Ranks) {
		return fmt.Sprintf("all %d ranks", len(ranks))
	}
	return w.run.ListRanks(ranks)
}

// places says of each rank where it is and what it has written last: first the suspect, if there is one, then the
// one that is behind.
func (w *Watch) places(q *inquiry, suspect *int) []string {
	sorted := slices.Clone(q.silent)
	slices.SortStableFunc(sorted, func(x, y hang.Seen) int { return x.Mark.Compare(y.Mark) })
	if suspect != nil {
		at := slices.IndexFunc(sorted, func(s hang.Seen) bool { return s.Rank == *suspect })
		sorted = slices.Concat(sorted[at:at+1], sorted[:at], sorted[at+1:])
	}
	var lines []string
	for i, s := range sorted {
		if i == maxPlaces {
			lines = append(lines, fmt.Sprintf("and %d more", len(sorted)-i))
			break
		}
		lines = append(lines, w.place(s, q))
	}
	return append(lines, stackFiles(sorted, q)...)
}

// stackFiles says where stacks are, and why there are none of the program.
func stackFiles(sorted []hang.Seen, q *inquiry) []string {
	var lines, reasons []string
	for i, s := range sorted {
		stack := q.stacks[s.Rank]
		if stack.File != "" && i == 0 {
			lines = append(lines, "all of its stack: "+s.Host+":"+stack.File+
				"; those of the others lie beside their output too")
		}
		if stack.Recorder != "" && len(lines) < maxPlaces {
			lines = append(lines, fmt.Sprintf("torch's flight recorder has written what rank %d did last: %s:%s",
				s.Rank, s.Host, stack.Recorder))
		}
		if why := "no stack of the program: " + stack.Why; stack.Why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return append(lines, reasons...)
}

func (w *Watch) place(s hang.Seen, q *inquiry) string {
	var parts []string
	if s.Mark.Known() {
		parts = append(parts, "at "+s.Mark.String())
	}
	parts = append(parts, fmt.Sprintf("silent for %.0f s", s.Quiet()))
	switch {
	case s.Spins:
		parts = append(parts, "its GPU busy without traffic, as NCCL's kernels wait")
	case s.Device != nil:
		parts = append(parts, "its GPU at rest")
	}
	if stack, found := q.stacks[s.Rank]; found {
		parts = append(parts, stackParts(stack, q.programs()[s.Rank].Innermost())...)
	} else {
		parts = append(parts, "its host has not said where it is")
	}
	return fmt.Sprintf("%s on %s: %s", w.run.RankName(s.Rank), s.Host, strings.Join(parts, ", "))
}

// stackParts says where a program is, and the last line of each of its outputs.
func stackParts(stack message.RankStack, frames string) []string {
	parts := []string{fmt.Sprintf("pid %d %s", stack.PID, stateText(stack.State))}
	switch {
	case frames != "" && stack.How == "kernel":
		parts = append(parts, "in the kernel at "+frames)
	case frames != "":
		parts = append(parts, "by "+stack.How+" in "+frames)
	}
	if line := lastLine(stack.Stdout); line != "" {
		parts = append(parts, "last line "+line)
	}
	if line := lastLine(stack.Stderr); line != "" {
		parts = append(parts, "last on stderr "+line)
	}
	return parts
}

// lastLine is the last line of an output that has more than blanks in it, in quotes; "" where there is none.
// Progress bars start their line again without ending it.
func lastLine(output []byte) string {
	lines := strings.FieldsFunc(run.Text(output), func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if shown := []rune(line); len(shown) > maxLine {
			line = string(shown[:maxLine]) + "..."
		}
		return fmt.Sprintf("%q", line)
	}
	return ""
}

// stateText says what a state of the kernel's means.
func stateText(state string) string {
	switch {
	case strings.HasPrefix(state, "T"), strings.HasPrefix(state, "t"):
		return "is stopped (SIGSTOP or a debugger): kill -CONT has it go on"
	case strings.HasPrefix(state, "D"):
		return "waits for a device or a file system (" + state + ")"
	}
	return "is " + state
}

// advice is what can be done with what was found; nil where no program has said where it is: the class of a hang has
// advice for that.
func (w *Watch) advice(q *inquiry, suspect *int) []string {
	programs := q.programs()
	switch {
	case !w.run.Job.Hang.Stacks:
		return []string{"hang { stacks = true } finds out where ranks are"}
	case !slices.ContainsFunc(q.silent, func(s hang.Seen) bool { return programs[s.Rank].At() != "" }):
		return nil
	case suspect == nil:
		return []string{"compare the stacks of the ranks; where all wait in collectives, " +
			"TORCH_DISTRIBUTED_DEBUG=DETAIL has torch name those that do not match"}
	case programs[*suspect].At() != "":
		return []string{fmt.Sprintf("see why %s is in %s: data that it waits for, a branch that only it takes, its GPU",
			w.run.RankName(*suspect), programs[*suspect].At())}
	}
	return []string{w.unseenAdvice(*suspect, q.stacks[*suspect].PID)}
}

// unseenAdvice is how to find out where a rank is whose program has not said so.
func (w *Watch) unseenAdvice(rank, pid int) string {
	host, name := w.run.HostOf(rank), w.run.RankName(rank)
	if pid == 0 {
		return fmt.Sprintf("see whether %s answers: it has not said where %s is", host, name)
	}
	look := fmt.Sprintf("py-spy dump --pid %d on %s, as root, shows where %s is while it hangs", pid, host, name)
	if w.run.Job.Hang.Action != config.HangReport {
		look += "; hang { action = \"report\" } leaves it running"
	}
	return look
}
