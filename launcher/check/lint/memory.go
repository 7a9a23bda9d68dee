package lint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// memoryLacking warns where ranks are estimated to need more memory than there is.
func memoryLacking(p *plan.Plan) []plan.Problem {
	if p.MemoryError != nil {
		return []plan.Problem{problem("memory_layout", "",
			"%swhat ranks need of memory cannot be estimated: %v; change the size, or the number of ranks",
			placeOf(p, p.MemoryError), p.MemoryError)}
	}
	e := p.Memory
	if e == nil {
		return nil
	}
	var lacking []plan.Problem
	if e.Verdict == memory.TooLarge {
		lacking = append(lacking, doesNotFit(p))
	}
	if o := e.Offloaded; !o.Fits() {
		h := p.Hosts[o.Host]
		lacking = append(lacking, problem("memory_does_not_fit", h.Name,
			"%s: the host's own memory is estimated to be too small for what cpu_offload leaves to it: %s for %s; %s available",
			h.Name, text.GiB(o.Need), plural.Of(h.Ranks, "rank"), text.GiB(*o.Free)))
	}
	return lacking
}

// placeOf is where the job file has the group that does not come out even.
func placeOf(p *plan.Plan, err error) string {
	var found *memory.Contradiction
	if !errors.As(err, &found) {
		return ""
	}
	groups := p.Config.Placement.Groups
	at := slices.IndexFunc(groups, func(g config.Group) bool { return g.Name == found.Group })
	return groups[at].Range.String() + ": "
}

// doesNotFit says what does not fit, why, and the least costly change that helps.
func doesNotFit(p *plan.Plan) plan.Problem {
	e := p.Memory
	var ranks []int
	for rank, r := range e.Ranks {
		if r.Verdict == memory.TooLarge {
			ranks = append(ranks, rank)
		}
	}
	worst, host := e.Ranks[e.Worst], p.Ranks[ranks[0]].Host
	who, each, name := text.Numbered("rank", ranks), "", p.Hosts[host].Name
	if len(ranks) > 1 {
		each = "up to "
	}
	if slices.ContainsFunc(ranks, func(rank int) bool { return p.Ranks[rank].Host != host }) {
		name = ""
	} else {
		who = name + ": " + who
	}
	message := fmt.Sprintf("%s: memory is estimated not to fit: %s%s needed of a GPU%s, %s free: %s too little",
		who, each, text.GiB(worst.Need), sharers(worst), text.GiB(*worst.Free), shortBy(worst))
	if e.Copied != "" {
		message += "; " + e.Copied
	}
	remedy := "nothing that muster knows of makes it fit on GPUs like these"
	if r := e.Cheapest(); r != nil {
		remedy = fmt.Sprintf("what would fit at the least cost: %s (then %s)", r.Change, text.GiB(r.Need))
	}
	return problem("memory_does_not_fit", name, "%s; %s; muster plan shows what it is made of", message, remedy)
}

// shortBy is how much a rank's GPU is short, in smaller units where it is little.
func shortBy(r memory.Rank) string {
	if short := r.Need - *r.Free; short < 1<<30/10 {
		return fmt.Sprintf("%.1f MiB", float64(short)/(1<<20))
	}
	return text.GiB(r.Need - *r.Free)
}

func sharers(r memory.Rank) string {
	if r.Sharing < 2 {
		return ""
	}
	return fmt.Sprintf(" that %d ranks share", r.Sharing)
}

// memoryNotes report what is only just enough, and what is not compared.
func memoryNotes(p *plan.Plan) []plan.Problem {
	e := p.Memory
	switch {
	case e == nil:
		return nil
	case e.Verdict == memory.Tight:
		worst := e.Ranks[e.Worst]
		return []plan.Problem{problem("memory_tight", "",
			"memory is estimated to be tight: rank %d needs %s to %s of a GPU%s, %s free",
			e.Worst, text.GiB(worst.Need), text.GiB(worst.Most), sharers(worst), text.GiB(*worst.Free))}
	case slices.ContainsFunc(e.Ranks, func(r memory.Rank) bool { return r.Verdict == memory.Unknown }):
		return []plan.Problem{problem("memory_unknown", "", "memory: some ranks have no GPU, "+
			"or one that does not tell its free memory: what they need is not compared with anything")}
	}
	return nil
}
