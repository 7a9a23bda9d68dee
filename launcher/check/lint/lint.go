// Package lint warns of what does not keep a planned job from running, and would hurt it: settings of NCCL, torch's
// allocator and MPS, memory that does not suffice, groups on slow links, hosts that end a run at logout. It is pure.
package lint

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// Plan makes a plan with its warnings and notes, less those that the job file ignores.
func Plan(job *config.Job, hosts []facts.Host) (*plan.Plan, []plan.Problem) {
	p, problems := plan.Make(job, hosts)
	if len(problems) > 0 {
		return nil, problems
	}
	p.Warnings = wanted(p, slices.Concat(p.Warnings,
		groups(p), Libraries(p, plan.Meeting{}), sharing(p), logouts(job, hosts), memoryLacking(p)))
	p.Notes = slices.Concat(p.Notes, partsNotes(p), bufferNote(p), idleNote(p), memoryNotes(p))
	return p, nil
}

// wanted are problems without those that the job file ignores.
func wanted(p *plan.Plan, problems []plan.Problem) []plan.Problem {
	return slices.DeleteFunc(problems, func(found plan.Problem) bool {
		return slices.Contains(p.Config.Check.Ignore, found.Code)
	})
}

// problem is one about a host; "" where it is about several.
func problem(code, host, format string, args ...any) plan.Problem {
	return plan.Problem{Code: code, Host: host, Message: fmt.Sprintf(format, args...)}
}

// idleNote reports places for more workers than there are tasks.
func idleNote(p *plan.Plan) []plan.Problem {
	if len(p.Tasks) == 0 || len(p.Tasks) >= p.WorldSize {
		return nil
	}
	return []plan.Problem{problem("idle_places", "", "there are %s for %s at a time: the rest stays idle",
		plural.Of(len(p.Tasks), "task"), plural.Of(p.WorldSize, "worker"))}
}

// logouts warns of hosts where a logout, the launcher's own leaving among them, would hurt the run.
func logouts(job *config.Job, hosts []facts.Host) []plan.Problem {
	var warnings []plan.Problem
	for i, h := range hosts {
		l, name := h.Logind, job.Hosts[i].Name
		if l.Linger || !l.Session {
			continue
		}
		warn := func(code, what string) {
			warnings = append(warnings, problem(code, name,
				"%s: systemd-logind %s; `loginctl enable-linger` on %[1]s prevents it", name, what))
		}
		if l.KillUserProcesses {
			warn("logout_kills", "kills the run there when you log out (KillUserProcesses=yes)")
		}
		if l.RemoveIPC {
			warn("logout_removes_shm", "deletes your /dev/shm files there when your last login ends (RemoveIPC=yes), "+
				"which stops data loaders and NCCL if you detach")
		}
	}
	return warnings
}

// maxGroups is how many groups are named one by one.
const maxGroups = 8

// groups warns of groups that are not on fast links.
func groups(p *plan.Plan) []plan.Problem {
	var slow []plan.Problem
	for _, g := range p.Config.Placement.Groups {
		if rest := p.WorldSize % g.Size; rest != 0 {
			slow = append(slow, problem("group_size", "", "%s: %s = %d: %s cannot be parted into groups of %d: the last one has %d",
				g.Range, g.Name, g.Size, plural.Of(p.WorldSize, "rank"), g.Size, rest))
		}
	}
	left := 0
	for _, g := range p.Groups {
		switch {
		case g.Fast():
		case len(slow) < maxGroups:
			slow = append(slow, slowGroup(p, g))
		default:
			left++
		}
	}
	if left > 0 {
		slow = append(slow, problem("slow_group", "", "slow links have %s too", plural.Of(left, "more group")))
	}
	return slow
}

func slowGroup(p *plan.Plan, g plan.Group) plan.Problem {
	a, b := p.Ranks[g.Pair[0]], p.Ranks[g.Pair[1]]
	host := p.Hosts[a.Host].Name
	who := fmt.Sprintf("%s group of ranks %d-%d", g.Name, g.First, g.First+g.Size-1)
	switch {
	case g.Link == plan.NetworkLink:
		return problem("slow_group", "",
			"the %s is spread over hosts: rank %d on %s and rank %d on %s reach each other by network only",
			who, a.Rank, host, b.Rank, p.Hosts[b.Host].Name)
	case a.Device == nil || b.Device == nil:
		return problem("slow_group", host, "the %s has no GPUs to lie on fast links with", who)
	case g.Link == "":
		return problem("slow_group", host, "%s: the %s: how %s and %s are joined is not known", host, who, a.Device, b.Device)
	}
	return problem("slow_group", host,
		"%s: the %s is not on fast links: rank %d's %s and rank %d's %s are joined by %s (%s), not NVLink",
		host, who, a.Rank, a.Device, b.Rank, b.Device, g.Link, plan.LinkNames[g.Link])
}
