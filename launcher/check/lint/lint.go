// Package lint warns of what does not keep a planned job from running, and would hurt it: settings of NCCL, torch's
// allocator and MPS, memory that does not suffice, groups on slow links, hosts that end a run at logout.
package lint

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plural"
)

// Rules are what a plan is warned of, in the order in which people read it.
var Rules = []rule.Rule{
	rule.OfAll("group_size", rule.Plan, groupSizes),
	rule.OfAll("slow_group", rule.Plan, slowGroups),
	Libraries,
	rule.OfAll("", rule.Plan, mpsSettings),
	rule.OfHost("logout_kills", rule.Plan, logoutKills),
	rule.OfHost("logout_removes_shm", rule.Plan, logoutRemovesShm),
	rule.OfAll("", rule.Plan, memoryFits),
}

// Libraries is what NCCL and torch make of their settings. It depends on which of them setup leaves there.
var Libraries = rule.OfAll("", rule.Plan, libraries)

// Notes are good to know of a plan.
var Notes = []rule.Rule{
	rule.OfHost(nccl.CodeMIG, rule.Plan, migWorks),
	rule.OfAll("nccl_buffers", rule.Plan, bufferSize),
	rule.OfAll("idle_places", rule.Plan, idlePlaces),
	rule.OfAll("", rule.Plan, memoryNotes),
}

// Plan makes a plan, with what there is to know of it beyond what placing found, less what the job file ignores.
func Plan(job *config.Job, hosts []facts.Host) (*plan.Plan, []plan.Problem) {
	p, problems := plan.Make(job, hosts)
	if len(problems) > 0 {
		return nil, problems
	}
	in := rule.Input{Job: job, Plan: p}
	for i, h := range p.Hosts {
		in.Hosts = append(in.Hosts, rule.Host{Name: h.Name, Facts: hosts[i]})
	}
	p.Notes = append(p.Notes, problemsOf(rule.Collect(in, Notes...))...)
	p.Warnings = append(p.Warnings, problemsOf(rule.Collect(in, Rules...))...)
	isIgnored := func(w plan.Problem) bool { return slices.Contains(job.Check.Ignore, w.Code) }
	p.Warnings = slices.DeleteFunc(p.Warnings, isIgnored)
	return p, nil
}

func problemsOf(findings []rule.Finding) (problems []plan.Problem) {
	for _, f := range findings {
		problems = append(problems, plan.Problem{Code: f.Code, Host: f.Host, Message: f.Message})
	}
	return problems
}

// logoutFix prevents that a logout, the launcher's own leaving among them, hurts the run.
func logoutFix(h *rule.Host, what string) rule.Findings {
	return h.Find("", "systemd-logind %s; `loginctl enable-linger` on %s prevents it", what, h.Name)
}

func logoutKills(h *rule.Host) rule.Findings {
	if l := h.Facts.Logind; l.Linger || !l.Session || !l.KillUserProcesses {
		return nil
	}
	return logoutFix(h, "kills the run there when you log out (KillUserProcesses=yes)")
}

func logoutRemovesShm(h *rule.Host) rule.Findings {
	if l := h.Facts.Logind; l.Linger || !l.Session || !l.RemoveIPC {
		return nil
	}
	return logoutFix(h, "deletes your /dev/shm files there when your last login ends (RemoveIPC=yes), which stops data loaders and NCCL if you detach")
}

// idlePlaces tells of places for more workers than there are tasks.
func idlePlaces(in *rule.Input) rule.Findings {
	p := in.Plan
	if len(p.Tasks) == 0 || len(p.Tasks) >= p.WorldSize {
		return nil
	}
	return in.Find("", "there are %s for %s at a time: the rest stays idle", plural.Of(len(p.Tasks), "task"), plural.Of(p.WorldSize, "worker")).As(rule.Info)
}

// migWorks tells how NCCL works between MIG devices, where it does.
func migWorks(h *rule.Host) rule.Findings {
	if h.In.Plan.Backend != "nccl" {
		return nil
	}
	verdict, why, _ := environ.OnDevices(h.In.Plan, h.At, plan.Meeting{})
	if verdict != nccl.Works || why == "" {
		return nil
	}
	return h.Find("", "%s", why).As(rule.Info)
}

// bufferSize says what a chosen size of NCCL's buffers costs.
func bufferSize(in *rule.Input) rule.Findings {
	if _, is := in.Job.NCCL.Get("buffer_size"); !is || in.Plan.Backend != "nccl" || in.Plan.WorldSize < 2 {
		return nil
	}
	communicators := in.Plan.MemoryLayout().Communicators()
	if in.Plan.Memory != nil {
		communicators = in.Plan.Memory.Communicators
	}
	size, channels := in.Plan.BufferSettings()
	return in.Find("", "%s", nccl.BufferNote(size, channels, communicators)).As(rule.Info)
}

// maxGroups is how many groups are named one by one.
const maxGroups = 8

// groupSizes warns of groups that ranks cannot be parted into.
func groupSizes(in *rule.Input) (found rule.Findings) {
	for _, g := range in.Job.Placement.Groups {
		if rest := in.Plan.WorldSize % g.Size; rest != 0 {
			found = append(found, in.Find("", "%s: %s = %d: %s cannot be parted into groups of %d: the last one has %d",
				g.Range, g.Name, g.Size, plural.Of(in.Plan.WorldSize, "rank"), g.Size, rest)...)
		}
	}
	return found
}

// slowGroups warns of groups that are not on fast links.
func slowGroups(in *rule.Input) (found rule.Findings) {
	left := 0
	for _, g := range in.Plan.Groups {
		switch {
		case g.Fast():
		case len(found) < maxGroups:
			found = append(found, slowGroup(in, g)...)
		default:
			left++
		}
	}
	if left > 0 {
		found = append(found, in.Find("", "slow links have %s too", plural.Of(left, "more group"))...)
	}
	return found
}

func slowGroup(in *rule.Input, g plan.Group) rule.Findings {
	a, b := in.Plan.Ranks[g.Pair[0]], in.Plan.Ranks[g.Pair[1]]
	host := &in.Hosts[a.Host]
	who := fmt.Sprintf("%s group of ranks %d-%d", g.Name, g.First, g.First+g.Size-1)
	switch {
	case g.Link == plan.NetworkLink:
		return in.Find("", "the %s is spread over hosts: rank %d on %s and rank %d on %s reach each other by network only",
			who, a.Rank, host.Name, b.Rank, in.Hosts[b.Host].Name)
	case a.Device == nil || b.Device == nil:
		return in.Find("", "the %s has no GPUs to lie on fast links with", who)
	case g.Link == "":
		return host.Find("", "the %s: how %s and %s are joined is not known", who, a.Device, b.Device)
	}
	return host.Find("", "the %s is not on fast links: rank %d's %s and rank %d's %s are joined by %s (%s), not NVLink",
		who, a.Rank, a.Device, b.Rank, b.Device, g.Link, plan.LinkNames[g.Link])
}
