package runs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// tailLines is how many of the last lines of the failed rank are shown.
const tailLines = 20

// failureScreen is the one screen after a failure: what came first, its last lines,
// what muster did then, where everything is.
func failureScreen(st *terminal.Stream, r *report.Report) []byte {
	var b bytes.Buffer
	c := r.FirstCause
	mark := "✗ "
	if r.Outcome == report.Stopped {
		mark = "■ "
	}
	fmt.Fprintf(&b, "\n%s\n", st.Paint("1;31", mark+strings.ReplaceAll(c.Message, "\n", "\n  ")))
	if line := deviceLine(r); line != "" {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if tail := lastOf([]byte(c.Tail), tailLines); len(tail) > 0 {
		fmt.Fprintf(&b, "  its last lines:\n%s", terminal.Indent(tail, "    "))
	}
	b.WriteString(why(c))
	if strings.Contains(c.Tail, duplicateGPU) || strings.Contains(c.Tail, multipleRanks) {
		b.WriteString(deviceTable(r))
	}
	if line := outcomes(r); line != "" {
		fmt.Fprintf(&b, "  %s\n", line)
	} else if line := consequences(r); line != "" {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString(attempts(r))
	b.WriteString(advice(c))
	if c.Log != "" {
		fmt.Fprintf(&b, "  all of its output: %s:%s\n", c.Host, c.Log)
	}
	fmt.Fprintf(&b, "  run %s, exit status %d\n", r.Run, r.Exit)
	return b.Bytes()
}

// why is the class of a failure with what speaks for it, and the figures of one that is
// about memory.
func why(c *report.Cause) string {
	var b strings.Builder
	if len(c.Evidence) > 0 {
		sure := ""
		if c.Confidence != "" && c.Confidence != "certain" {
			sure = ", " + map[string]string{"likely": "likely", "guess": "a guess"}[c.Confidence]
		}
		fmt.Fprintf(&b, "  why (%s%s):\n", c.Class, sure)
		for _, line := range c.Evidence {
			fmt.Fprintf(&b, "    %s\n", terminal.Clean([]byte(line)))
		}
	}
	if line := memoryLine(c.Numbers); line != "" {
		fmt.Fprintf(&b, "  memory: %s\n", line)
	}
	for _, note := range c.Notes {
		fmt.Fprintf(&b, "  note: %s\n", terminal.Clean([]byte(note)))
	}
	return b.String()
}

// memoryFigures are numbers of a cause that say where GPU memory was, in the order in
// which they explain each other.
var memoryFigures = []struct{ name, words string }{
	{"requested", "asked for"}, {"allocated", "in tensors"}, {"reserved", "held by torch"}, {"unallocated", "of that unused"}, {"largest_free", "of that in one piece"},
	{"self", "held by the process"}, {"other_processes", "held by others"}, {"free", "free"}, {"device_used", "of the device in use"},
	{"total", "in all"}, {"device_total", "in all by NVML"},
}

func memoryLine(numbers map[string]float64) string {
	if numbers["requested"] == 0 && numbers["allocated"] == 0 {
		return ""
	}
	var parts []string
	for _, f := range memoryFigures {
		if n, known := numbers[f.name]; known {
			parts = append(parts, fmt.Sprintf("%.2f GiB %s", n/(1<<30), f.words))
		}
	}
	return strings.Join(parts, ", ")
}

func advice(c *report.Cause) string {
	if len(c.Advice) == 0 {
		return ""
	}
	return "  what you can change: " + strings.Join(c.Advice, "; ") + "\n"
}

// What NCCL says of two ranks on one GPU, before 2.30 and since.
const (
	duplicateGPU  = "Duplicate GPU detected"
	multipleRanks = "Multiple Ranks are using the same GPU/Partition"
)

// deviceLine says which card the failed rank calls by its own number.
func deviceLine(r *report.Report) string {
	if r.FirstCause.Rank == nil {
		return ""
	}
	for _, rank := range r.Ranks {
		if g := rank.GPU; rank.Rank == *r.FirstCause.Rank && g != nil {
			return fmt.Sprintf("its device: %s of %s, PCI %s, %s; the rank itself calls it GPU %d (cuda:%d)", g.Name, rank.Host, g.PCI, g.UUID, g.Seen, g.Seen)
		}
	}
	return ""
}

// partsOfOneGPU reports whether two ranks of a host have different devices of one GPU.
func partsOfOneGPU(r *report.Report) bool {
	first := map[string]string{}
	for _, rank := range r.Ranks {
		g := rank.GPU
		if g == nil {
			continue
		}
		key := rank.Host + " " + g.PCI
		if uuid, seen := first[key]; seen && uuid != g.UUID {
			return true
		}
		first[key] = g.UUID
	}
	return false
}

// deviceTable shows the device that each rank was given.
func deviceTable(r *report.Report) string {
	var b strings.Builder
	question := "does the script choose by LOCAL_RANK?"
	if partsOfOneGPU(r) {
		question = "but NCCL takes MIG devices of one GPU for one (since 2.31 not with NCCL_MULTI_RANK_GPU_ENABLE=1): take one per GPU, or backend = \"gloo\""
	}
	fmt.Fprintf(&b, "  the plan gave each rank a device of its own; %s\n", question)
	t := terminal.NewTable(&b)
	fmt.Fprintln(t, "    RANK\tHOST\tCALLS IT\tGPU\tPCI\tUUID")
	for _, rank := range r.Ranks {
		if g := rank.GPU; g != nil {
			fmt.Fprintf(t, "    %d\t%s\tcuda:%d\t%d\t%s\t%s\n", rank.Rank, rank.Host, g.Seen, g.Index, g.PCI, g.UUID)
		}
	}
	_ = t.Flush() // into memory
	return b.String()
}

// lastOf returns the last lines of text, made harmless for a terminal.
func lastOf(text []byte, n int) []byte {
	text = bytes.TrimRight(text, "\n")
	all := bytes.Split(text, []byte("\n"))
	all = all[max(0, len(all)-n):]
	for i, line := range all {
		if j := bytes.LastIndexByte(bytes.TrimRight(line, "\r"), '\r'); j >= 0 {
			line = line[j+1:] // the last version of a line that redraws itself
		}
		all[i] = terminal.Clean(bytes.TrimRight(line, "\r"))
	}
	return bytes.Join(all, []byte("\n"))
}

// outcomes says in a line what became of ranks that do not talk to each other; "" of others.
func outcomes(r *report.Report) string {
	groups := map[string][]int{}
	for _, rank := range r.Ranks {
		if rank.Outcome == "" {
			return ""
		}
		groups[rank.Outcome] = append(groups[rank.Outcome], rank.Rank)
	}
	var parts []string
	for _, o := range []struct{ outcome, words string }{
		{report.OK, "ended well"}, {report.Failed, "failed"}, {report.Stopped, "stopped"}, {report.NotRun, "not started"},
	} {
		ranks := groups[o.outcome]
		switch {
		case len(ranks) == 0:
		case o.outcome == report.OK:
			parts = append(parts, fmt.Sprintf("%d %s", len(ranks), o.words))
		default:
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(ranks), o.words, text.Ranges(ranks)))
		}
	}
	return fmt.Sprintf("of %s: %s", plural.Of(len(r.Ranks), r.Unit()), strings.Join(parts, ", "))
}

// maxAttempts is how many attempts that were followed by another are told of one by one.
const maxAttempts = 12

// attempts says of each attempt that was followed by another how it ended and what was done,
// and why the last was not.
func attempts(r *report.Report) string {
	lines := again(r)
	if n := len(lines) - maxAttempts; n > 0 {
		lines = append([]string{plural.Of(n, "earlier attempt") + " before these"}, lines[n:]...)
	}
	if n := len(r.Attempts); n > 0 && r.Outcome == report.Failed {
		if last := r.Attempts[n-1]; last.Decision == "end" && last.Reason != "" && last.Reason != report.NoRestartBlock && last.Reason != r.FirstCause.Message {
			lines = append(lines, "not started again: "+last.Reason)
		}
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", terminal.Clean([]byte(line)))
	}
	return b.String()
}

// again is a line for each attempt that was followed by another, of ranks that do not talk to
// each other for each of theirs.
func again(r *report.Report) (lines []string) {
	for _, a := range r.Attempts {
		if a.Decision == "restart" {
			lines = append(lines, againText(fmt.Sprintf("attempt %d", a.Attempt), a.Class, a.Message, a.Reason))
		}
	}
	for _, rank := range r.Ranks {
		for _, end := range rank.Ends {
			if end.Decision == "restart" {
				lines = append(lines, againText(fmt.Sprintf("%s %d, attempt %d", r.Unit(), rank.Rank, end.Attempt), end.Class, end.Message, end.Reason))
			}
		}
	}
	return lines
}

// againText are such a line. The reason has what was changed.
func againText(which, class, message, reason string) string {
	message, _, _ = strings.Cut(message, "\n")
	if message != "" {
		message += "; "
	}
	return fmt.Sprintf("%s (%s): %sstarted again: %s", which, class, message, reason)
}

// consequences says in a line what became of the other ranks in the last attempt.
func consequences(r *report.Report) string {
	last := 0
	for _, rank := range r.Ranks {
		if n := len(rank.Ends); n > 0 {
			last = max(last, rank.Ends[n-1].Attempt)
		}
	}
	groups := map[string][]int{}
	for _, rank := range r.Ranks {
		n := len(rank.Ends)
		if isFirst := r.FirstCause.Rank != nil && *r.FirstCause.Rank == rank.Rank; n == 0 || isFirst ||
			rank.Ends[n-1].Attempt < last {
			continue
		}
		how := became(rank.Ends[n-1])
		groups[how] = append(groups[how], rank.Rank)
	}
	var parts []string
	for how, ranks := range groups {
		parts = append(parts, text.Numbered("rank", ranks)+": "+how)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func became(e report.End) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.StoppedByMuster != "":
		return "stopped by muster (" + e.StoppedByMuster + ")"
	case e.Signal != "":
		return "killed by " + e.Signal + " afterwards"
	case e.Exit != 0:
		return fmt.Sprintf("ended with status %d afterwards", e.Exit)
	}
	return "ended well"
}
