package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/plan/place"
	"github.com/muster-dev/muster/launcher/plural"
)

// maxHosts is how many hosts are named one by one.
const maxHosts = 8

// maxWorld bounds the number of ranks, far above any real job.
const maxWorld = 1 << 20

// placeAll gives hosts their ranks, in the job file's order and contiguous per host, and ranks their devices.
func placeAll(p *Plan) []Problem {
	var problems []Problem
	for i := range p.Config.Hosts {
		found := place.OnHost(p.Config, i, p.Facts[i], p.WorldSize)
		problems = append(problems, found.Refusals...)
		p.Warnings = append(p.Warnings, found.Warnings...)
		p.Notes = append(p.Notes, found.Notes...)
		if len(found.Refusals) > 0 {
			continue
		}
		h := Host{Name: p.Config.Hosts[i].Name, ID: p.Facts[i].ID, FirstRank: p.WorldSize, Share: found.Share}
		p.Ranks = append(p.Ranks, ranksOf(h, len(p.Hosts))...)
		p.Hosts = append(p.Hosts, h)
		p.WorldSize += h.Ranks
		if p.WorldSize > maxWorld {
			return []Problem{{Code: "world_size", Message: fmt.Sprintf("%d ranks are more than %d", p.WorldSize, maxWorld)}}
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return slices.Concat(missingGPUs(p), duplicates(p), unequal(p))
}

// ranksOf are the ranks of a host with a number, spread evenly over its devices.
func ranksOf(h Host, number int) []Rank {
	ranks := make([]Rank, h.Ranks)
	for local := range ranks {
		ranks[local] = Rank{Rank: h.FirstRank + local, Local: local, Host: number}
		if n := len(h.Devices); n > 0 {
			ranks[local].Device = &h.Devices[local*min(n, h.Ranks)/h.Ranks]
		}
	}
	return ranks
}

// missingGPUs finds hosts without GPUs among such as have some. Where nothing says how many ranks they get, the job
// would run smaller and slower than anybody thinks.
func missingGPUs(p *Plan) []Problem {
	with := slices.IndexFunc(p.Hosts, func(h Host) bool { return len(h.Devices) > 0 })
	if with < 0 {
		return nil
	}
	var problems []Problem
	other, devices := p.Hosts[with].Name, len(p.Hosts[with].Devices)
	for i, h := range p.Hosts {
		if len(h.Devices) > 0 || h.Hidden {
			continue
		}
		why := ""
		if d := p.Facts[i].Devices; d != nil && d.None != "" {
			why = ": " + d.None
		}
		if !h.Bare {
			p.Warnings = append(p.Warnings, Problem{Code: "no_gpu", Host: h.Name, Message: fmt.Sprintf(
				"%s has no GPU%s; its %s use none, while %s has %d", h.Name, why, plural.Of(h.Ranks, "rank"), other, devices)})
			continue
		}
		problems = append(problems, Problem{Code: "no_gpu", Host: h.Name, Message: fmt.Sprintf(
			"%s has no GPU%s; %s has %d. Leave it out, or say how many ranks it gets: host %q { ranks { per_host = ... } }",
			h.Name, why, other, devices, h.Name)})
	}
	return problems
}

// duplicates finds devices that two hosts claim: containers of one machine, say.
func duplicates(p *Plan) []Problem {
	if p.Config.WithOthers() {
		return nil
	}
	owner := map[string]int{}
	var problems []Problem
	for i, h := range p.Hosts {
		var same []Device
		other := i
		for _, d := range h.Devices {
			first, known := owner[d.UUID]
			switch {
			case d.UUID == "":
			case !known:
				owner[d.UUID] = i
			case first != i:
				same, other = append(same, d), first
			}
		}
		if len(same) > 0 {
			problems = append(problems, sameDevices(h.Name, p.Hosts[other].Name, same))
		}
	}
	return problems
}

// sameDevices says once what may be true of each device of a machine.
func sameDevices(host, other string, same []Device) Problem {
	what := fmt.Sprintf("%s of %s and a device of %s are the same (%s)", same[0], host, other, same[0].UUID)
	if n := len(same); n > 1 {
		what = fmt.Sprintf("%s and %d more of %s are devices of %s too (%s, ...)", same[0], n-1, host, other, same[0].UUID)
	}
	return Problem{Code: "same_device", Host: host, Message: what +
		": two ranks would share one; give each host devices of its own (shared = true allows sharing)"}
}

// unequal reports hosts with different numbers of ranks; with equal = true it refuses.
func unequal(p *Plan) []Problem {
	different := func(h Host) bool { return h.Ranks != p.Hosts[0].Ranks }
	if !slices.ContainsFunc(p.Hosts, different) {
		return nil
	}
	var counts []string
	for _, h := range p.Hosts[:min(len(p.Hosts), maxHosts)] {
		counts = append(counts, fmt.Sprintf("%s %d", h.Name, h.Ranks))
	}
	if len(p.Hosts) > maxHosts {
		counts = append(counts, "...")
	}
	text := "hosts have different numbers of ranks: " + strings.Join(counts, ", ")
	if p.Config.Placement.Equal {
		return []Problem{{Code: "unequal", Message: text + "; equal = true forbids that"}}
	}
	p.Notes = append(p.Notes, Problem{Code: "unequal", Message: text})
	return nil
}
