package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/collective"
)

// fault is an error of ranks' own program, of which all say the same.
type fault struct {
	collective.Said
	ranks []int
}

// faults tells of errors of the ranks' own program, each once however many ranks have it: a
// torch that is missing or cannot use its GPUs. What the others waited for was that, and no
// cable. It reports whether there are any.
func (c *collectiveJudge) faults() bool {
	var all []fault
	for _, s := range c.Said {
		if s.Fault == "" || s.Rank < 0 || s.Rank >= len(c.Plan.Ranks) {
			continue
		}
		at := slices.IndexFunc(all, func(f fault) bool {
			return f.Fault == s.Fault && firstLine(f.Error) == firstLine(s.Error)
		})
		if at < 0 {
			at, all = len(all), append(all, fault{Said: s})
		}
		if !slices.Contains(all[at].ranks, s.Rank) {
			all[at].ranks = append(all[at].ranks, s.Rank)
		}
	}
	for _, f := range all {
		c.fault(f)
	}
	return len(all) > 0
}

// fault is what is said of one.
func (c *collectiveJudge) fault(f fault) {
	where, place := c.placeOf(f.ranks)
	switch first := firstLine(f.Error); {
	case f.Phase == collective.Torch:
		c.add(where, "say whose torch it is: python = \"~/venv/bin/python\" in the job, or a setup that puts it into PATH; without --collective the check needs none",
			"torch, by which ranks measure whatever the job's own program is, cannot be loaded %s: %s", place, first)
	case f.Fault == collective.Unusable:
		c.add(where, "python -c 'import torch; torch.zeros(1, device=\"cuda\")' shows it there too, with the job's setup: where torch.version.cuda is None it is a torch without CUDA, else it needs a driver (nvidia-smi), or a newer one; ranks { backend = \"gloo\" } measures without GPUs",
			"torch cannot use CUDA %s: %s", place, first)
	default:
		c.add(where, "that is an error of the program, and not of what lies between hosts", "ranks could not measure %s: %s: %s", place, f.Fault, first)
	}
}

// placeOf is where ranks are: a rank, a host, or several hosts in words.
func (c *collectiveJudge) placeOf(ranks []int) (where Finding, place string) {
	where.Code = codes.CollectiveFailed
	var names []string
	var hosts []int
	for _, rank := range ranks {
		if h := c.Plan.Ranks[rank].Host; !slices.Contains(hosts, h) {
			hosts, names = append(hosts, h), append(names, c.Plan.Hosts[h].Name)
		}
	}
	switch {
	case len(hosts) > 1 && len(ranks) == len(c.Plan.Ranks):
		return where, fmt.Sprintf("on all %d hosts", len(hosts))
	case len(hosts) > 1:
		slices.Sort(names)
		return where, "on " + rule.List(names)
	case len(ranks) == 1 && len(c.ranksOn(hosts[0])) > 1:
		return c.rankFinding(where.Code, ranks[0]), fmt.Sprintf("in rank %d", ranks[0])
	}
	where.Host = names[0]
	if len(ranks) < len(c.ranksOn(hosts[0])) {
		return where, fmt.Sprintf("in %d of its ranks", len(ranks))
	}
	return where, "there"
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
