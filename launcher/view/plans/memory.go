package plans

import (
	"fmt"
	"io"
	"strings"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan"
)

// memoryLines show what ranks are estimated to need of their GPUs, those that are alike in
// a line, and what would make it fit.
func memoryLines(w io.Writer, p *plan.Plan) {
	e := p.Memory
	fmt.Fprintf(w, "\nmemory, estimated, in GiB (%s):\n", e.Words)
	memoryTable(w, p)
	for i, assumed := range e.Assumed {
		fmt.Fprintf(w, "%s %s\n", [...]string{"assumed:", "        "}[min(i, 1)], assumed)
	}
	if e.Copied != "" {
		fmt.Fprintf(w, "%s\n", e.Copied)
	}
	if e.Offloaded != nil {
		fmt.Fprintf(w, "kept in the own memory of %s (cpu_offload): %s\n", p.Hosts[e.Offloaded.Host].Name, offloadedText(e.Offloaded))
	}
	remedyLines(w, p)
}

// offloadedText are what a host's own memory is to hold, and what it has.
func offloadedText(o *memory.Offloaded) string {
	if o.Free == nil {
		return gibNumber(o.Need) + ", how much is free is not known"
	}
	return fmt.Sprintf("%s, %s free", gibNumber(o.Need), gibNumber(*o.Free))
}

func memoryTable(w io.Writer, p *plan.Plan) {
	t := terminal.NewTable(w)
	shared := false
	for _, r := range p.Memory.Ranks {
		shared = shared || r.Sharing > 1
	}
	title, need := "RANKS", "NEED"
	if shared {
		title, need = "RANKS\tON A GPU", "NEED OF IT"
	}
	fmt.Fprintf(t, "%s\tPARAMETERS\tGRADIENTS\tOPTIMIZER\tACTIVATIONS\tSTEP\tBUFFERS\tNCCL\tCONTEXT\t%s\tFREE\tVERDICT\n", title, need)
	rows, ranks := alikeRanks(p.Memory, shared)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\n", text.Ranges(ranks[row]), row)
	}
	_ = t.Flush() // into memory
}

// alikeRanks are the rows of the table in the order of their first ranks, and whose they are.
func alikeRanks(e *memory.Estimate, shared bool) (rows []string, ranks map[string][]int) {
	ranks = map[string][]int{}
	for rank, r := range e.Ranks {
		row := memoryRow(e.Stages[r.Stage], r, shared)
		if ranks[row] == nil {
			rows = append(rows, row)
		}
		ranks[row] = append(ranks[row], rank)
	}
	return rows, ranks
}

func memoryRow(p memory.Parts, r memory.Rank, shared bool) string {
	free := "-"
	if r.Free != nil {
		free = gibNumber(*r.Free)
	}
	cells := []string{gibNumber(p.Parameters), gibNumber(p.Gradients), gibNumber(p.Optimizer),
		gibNumber(p.Activations), gibNumber(p.Step), gibNumber(p.Gathered),
		gibSpan(p.NCCLLeast, p.NCCLMost), gibNumber(p.Context), gibSpan(r.Need, r.Max), free, strings.ReplaceAll(string(r.Verdict), "_", " ")}
	if r.Verdict == memory.Unknown {
		cells[len(cells)-1] = "not compared"
	}
	if shared {
		cells = append([]string{fmt.Sprint(r.Sharing)}, cells...)
	}
	return strings.Join(cells, "\t")
}

func gibNumber(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<30)) }

func gibSpan(least, highest uint64) string {
	if a, b := gibNumber(least), gibNumber(highest); a != b {
		return a + "-" + b
	}
	return gibNumber(least)
}

// remedyLines list what makes it fit, then what lessens the need too little by itself.
func remedyLines(w io.Writer, p *plan.Plan) {
	e := p.Memory
	list := func(title string, belongs func(memory.Remedy) bool) {
		for _, r := range e.Remedies {
			if !belongs(r) {
				continue
			}
			if title != "" {
				fmt.Fprintln(w, title)
				title = ""
			}
			fmt.Fprintf(w, "  %s\n", remedyLine(p, r))
		}
	}
	title := "each of these makes it fit, the least costly first:"
	if e.Together != nil {
		fmt.Fprintf(w, "together these make it fit:\n  %s\n", remedyLine(p, *e.Together))
		title = "each of these makes it fit at a higher cost, the least costly first:"
	}
	list(title, func(r memory.Remedy) bool { return r.Fits && !r.Other })
	list("each of these makes it fit, and another model comes out:", func(r memory.Remedy) bool { return r.Fits && r.Other })
	list("these help, but are not enough alone:", func(r memory.Remedy) bool { return !r.Fits })
}

func remedyLine(p *plan.Plan, r memory.Remedy) string {
	line := fmt.Sprintf("%s: needs %s, %s free", r.Change, gibSpan(r.Need, r.Max), gibNumber(r.Free))
	if r.Offloaded != nil {
		line += fmt.Sprintf("; of the own memory of %s %s", p.Hosts[r.Offloaded.Host].Name, offloadedText(r.Offloaded))
	}
	return fmt.Sprintf("%s (cost: %s)", line, r.Cost)
}

type memoryJSON struct {
	// Split is how many ranks share each kind of work, and the communicators are those that
	// NCCL is taken to make on each rank.
	Split         memory.Degrees   `json:"split"`
	Communicators []string         `json:"communicators"`
	Verdict       memory.Verdict   `json:"verdict"` // the worst of the ranks'
	Ranks         []rankMemoryJSON `json:"ranks"`
	Copied        string           `json:"copied,omitempty"` // set where it decides that DDP splits nothing
	// Offloaded is of the host that lacks most, or has least left.
	Offloaded *memory.Offloaded `json:"offloaded,omitempty"`
	Assumed   []string          `json:"assumed"`
	Remedies  []memory.Remedy   `json:"remedies"`           // the least costly first, each by itself
	Together  *memory.Remedy    `json:"together,omitempty"` // where several cost less than each that is enough by itself
}

// rankMemoryJSON is a rank's need in bytes: its parts, and what all ranks on its GPU need.
type rankMemoryJSON struct {
	Number int `json:"rank"`
	memory.Parts
	memory.Rank
}

func memoryOf(p *plan.Plan) *memoryJSON {
	e := p.Memory
	if e == nil {
		return nil
	}
	out := &memoryJSON{Split: e.Degrees, Communicators: append([]string{}, e.Communicators...),
		Verdict: e.Verdict, Ranks: []rankMemoryJSON{},
		Copied: e.Copied, Offloaded: e.Offloaded, Assumed: e.Assumed, Remedies: append([]memory.Remedy{},
			e.Remedies...), Together: e.Together}
	for rank, r := range e.Ranks {
		out.Ranks = append(out.Ranks, rankMemoryJSON{rank, e.Stages[r.Stage], r})
	}
	return out
}
