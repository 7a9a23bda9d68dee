package lint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// memoryFits warns where GPUs have less memory than the job's ranks are estimated to need, or hosts less than what is
// offloaded to them.
func memoryFits(in *rule.Input) (found rule.Findings) {
	if err := in.Plan.MemoryError; err != nil {
		return in.Find("", "%swhat ranks need of memory cannot be estimated: %v; change the size, or the number of ranks", placeOf(in.Job, err), err).Of("memory_layout")
	}
	e := in.Plan.Memory
	if e == nil {
		return nil
	}
	if e.Verdict == memory.TooLarge {
		found = append(found, tooLarge(in.Plan)...)
	}
	if o := e.Offloaded; !o.Fits() {
		found = append(found, in.Hosts[o.Host].Find("", "the host's own memory is estimated to be too small for what cpu_offload leaves to it: %s for %s; %s available",
			text.GiB(o.Need), plural.Of(in.Plan.Hosts[o.Host].Ranks, "rank"), text.GiB(*o.Free))...)
	}
	return found.Of("memory_does_not_fit")
}

// placeOf is where the job file has the group that does not come out even.
func placeOf(job *config.Job, err error) string {
	var found *memory.Contradiction
	if !errors.As(err, &found) {
		return ""
	}
	at := slices.IndexFunc(job.Placement.Groups, func(g config.Group) bool { return g.Name == found.Group })
	return job.Placement.Groups[at].Range.String() + ": "
}

// tooLarge says what does not fit, why, and the least costly change that helps. It is about a host where that has all
// ranks that lack memory.
func tooLarge(p *plan.Plan) rule.Findings {
	var ranks []int
	where := rule.Finding{}
	for rank, r := range p.Memory.Ranks {
		if r.Verdict != memory.TooLarge {
			continue
		}
		switch host := p.Hosts[p.Ranks[rank].Host].Name; {
		case len(ranks) == 0:
			where.Host = host
		case where.Host != host:
			where.Host = ""
		}
		ranks = append(ranks, rank)
	}
	worst := p.Memory.Ranks[p.Memory.Worst]
	each, copied := "", ""
	if len(ranks) > 1 {
		each = "up to "
	}
	short := text.GiB(worst.Need - *worst.Free)
	if lack := worst.Need - *worst.Free; lack < 1<<30/10 {
		short = fmt.Sprintf("%.1f MiB", float64(lack)/(1<<20))
	}
	if p.Memory.Copied != "" {
		copied = p.Memory.Copied + "; "
	}
	remedy := "nothing that muster knows of makes it fit on GPUs like these"
	if r := p.Memory.Cheapest(); r != nil {
		remedy = fmt.Sprintf("what would fit at the least cost: %s (then %s)", r.Change, text.GiB(r.Need))
	}
	return rule.Find(where, "", "%s: memory is estimated not to fit: %s%s needed of a GPU%s, %s free: %s too little; %s%s; muster plan shows what it is made of",
		text.Numbered("rank", ranks), each, text.GiB(worst.Need), sharing(worst), text.GiB(*worst.Free), short, copied, remedy)
}

func sharing(r memory.Rank) string {
	if r.Sharing < 2 {
		return ""
	}
	return fmt.Sprintf(" that %d ranks share", r.Sharing)
}

// memoryNotes tell of what is only just enough, and of what is not compared.
func memoryNotes(in *rule.Input) rule.Findings {
	e := in.Plan.Memory
	if e == nil {
		return nil
	}
	worst := e.Ranks[e.Worst]
	switch {
	case e.Verdict == memory.Tight:
		return in.Find("", "memory is estimated to be tight: rank %d needs %s to %s of a GPU%s, %s free",
			e.Worst, text.GiB(worst.Need), text.GiB(worst.Max), sharing(worst), text.GiB(*worst.Free)).Of("memory_tight").As(rule.Info)
	case slices.ContainsFunc(e.Ranks, func(r memory.Rank) bool { return r.Verdict == memory.Unknown }):
		return in.Find("", "memory: some ranks have no GPU, or one that does not tell its free memory: what they need is not compared with anything").Of("memory_unknown").As(rule.Info)
	}
	return nil
}
