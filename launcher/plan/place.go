package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/plural"
)

// placeAll gives hosts their ranks, in the job file's order and contiguous per host, and
// ranks their devices.
func (p *Plan) placeAll() []Problem {
	var problems []Problem
	var bare []bool
	for i := range p.job.Hosts {
		c := newChooser(p.job, i, p.facts[i], p.WorldSize)
		s := c.choose()
		if len(c.problems) == 0 {
			p.place(c, s)
		}
		bare = append(bare, s.bare)
		problems = append(problems, c.problems...)
		p.Warnings = append(p.Warnings, c.warnings...)
		p.Notes = append(p.Notes, c.notes...)
		if p.WorldSize > maxWorld {
			return []Problem{{Code: "world_size", Message: fmt.Sprintf("%d ranks are more than %d", p.WorldSize, maxWorld)}}
		}
	}
	if len(problems) > 0 {
		return problems
	}
	problems = append(p.missingGPUs(bare), p.duplicates()...)
	return append(problems, p.unequal()...)
}

// place takes a host's share into the plan.
func (p *Plan) place(c *chooser, s share) {
	h := Host{Name: c.host.Name, ID: c.facts.ID, FirstRank: p.WorldSize, Ranks: s.ranks, Claimed: s.claimed, hidden: s.hidden, variable: cudaVisible}
	h.Devices = s.devices
	for local := range s.ranks {
		r := Rank{Rank: p.WorldSize + local, Local: local, Host: len(p.Hosts)}
		if n := len(s.devices); n > 0 {
			r.Device = &s.devices[local*min(n, s.ranks)/s.ranks]
		}
		p.Ranks = append(p.Ranks, r)
	}
	if c.devices != nil {
		h.variable = c.variable()
	}
	if len(s.devices) > 0 {
		c.show(&h, s)
	}
	p.Hosts = append(p.Hosts, h)
	p.WorldSize += s.ranks
}

// show decides what ranks of a host see of its devices.
func (c *chooser) show(h *Host, s share) {
	asked := c.job.Placement.Visibility
	h.Visibility, h.VisibleWhy = asked, "the job file says so"
	if asked == "" {
		h.Visibility, h.VisibleWhy = "host", "every rank sees the devices of all, so that they can reach each other's"
	}
	if why, must := c.mustSeeOne(s); why != "" {
		spread := len(s.devices) > s.ranks // one for each rank would leave some to nobody
		switch {
		case asked == "host" && must:
			c.refuse("visibility", "%s%s: visibility = \"host\" does not work there: %s; leave it out, or write \"rank\"", inFile(c.job.Placement.VisibilityAt), h.Name, why)
		case asked == "host" || asked == "" && spread:
			c.warn("visibility", "%s%s: with visibility \"host\" a rank may touch another's GPU: %s", inFile(c.job.Placement.VisibilityAt), h.Name, why)
		case asked == "":
			h.Visibility, h.VisibleWhy = "rank", why
			c.note("visibility", "%s: each rank sees its own device only, as number 0 (LOCAL_RANK is 0, MUSTER_LOCAL_RANK the real one): %s", h.Name, why)
		}
	}
	h.Names = c.names(s)
}

// mustSeeOne says why a rank is to see its own device only; must is set where nothing else
// works.
func (c *chooser) mustSeeOne(s share) (why string, must bool) {
	for _, d := range s.devices {
		switch {
		case d.IsInstance() && s.ranks > 1:
			return fmt.Sprintf("%s is used, and a process can use one MIG device only", d), true
		case isExclusive(c.card(d)) && s.ranks > 1:
			return fmt.Sprintf("%s is in compute mode exclusive process: a rank that touches it before it has chosen its own (cuda:0) would keep its owner out", d), false
		}
	}
	switch {
	case c.job.MPS != nil:
		return "each GPU has an MPS daemon of its own, and a client sees the daemon's GPU only", true
	case s.ranks > len(s.devices) || sharesOne(s.devices):
		return "ranks share devices, so LOCAL_RANK cannot be a device's number", true
	case c.job.Independent && s.ranks > 1:
		return "ranks that do not talk to each other have no use for each other's devices", false
	}
	return "", false
}

// names is how devices are named. Numbers name no MIG device.
func (c *chooser) names(s share) string {
	names := c.job.Placement.DeviceNames
	if names == "" {
		names = c.devices.Visibility.Names
	}
	if names == "index" {
		for _, d := range s.devices {
			if d.IsInstance() {
				c.refuse("device_names", "%s%s: device_names = \"index\" cannot name %s: a MIG device has its UUID only", inFile(c.job.Placement.DeviceNamesAt), c.host.Name, d)
				break
			}
		}
		return names
	}
	for _, d := range s.devices {
		if d.UUID == "" {
			c.refuse("no_uuid", "%s: %s tells no UUID, so ranks cannot be shown it by name; device_names = \"index\" names it by number", c.host.Name, d)
		}
	}
	return "uuid"
}

// missingGPUs finds hosts without GPUs among such as have some. Where nothing says how many
// ranks they get, the job would run smaller and slower than anybody thinks.
func (p *Plan) missingGPUs(bare []bool) []Problem {
	with := slices.IndexFunc(p.Hosts, func(h Host) bool { return len(h.Devices) > 0 })
	if with < 0 {
		return nil
	}
	var problems []Problem
	for i, h := range p.Hosts {
		if len(h.Devices) > 0 || h.hidden {
			continue
		}
		why := ""
		if d := p.facts[i].Devices; d != nil && d.None != "" {
			why = ": " + d.None
		}
		if !bare[i] {
			p.Warnings = append(p.Warnings, Problem{Code: "no_gpu", Host: h.Name, Message: fmt.Sprintf(
				"%s has no GPU%s; its %s use none, while %s has %d", h.Name, why, plural.Of(h.Ranks, "rank"), p.Hosts[with].Name, len(p.Hosts[with].Devices))})
			continue
		}
		problems = append(problems, Problem{Code: "no_gpu", Host: h.Name, Message: fmt.Sprintf(
			"%s has no GPU%s; %s has %d. Leave it out, or say how many ranks it gets: host %q { ranks { per_host = ... } }",
			h.Name, why, p.Hosts[with].Name, len(p.Hosts[with].Devices), h.Name)})
	}
	return problems
}

// duplicates finds devices that two hosts claim: containers of one machine, say.
func (p *Plan) duplicates() []Problem {
	if p.job.WithOthers() {
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
	return Problem{Code: "same_device", Host: host, Message: what + ": two ranks would share one; give each host devices of its own (shared = true allows sharing)"}
}

// unequal tells of hosts with different numbers of ranks; with equal = true it refuses.
func (p *Plan) unequal() []Problem {
	var counts []string
	same := true
	for _, h := range p.Hosts {
		counts = append(counts, fmt.Sprintf("%s %d", h.Name, h.Ranks))
		same = same && h.Ranks == p.Hosts[0].Ranks
	}
	if same {
		return nil
	}
	if len(counts) > mostWarnings {
		counts = append(counts[:mostWarnings], "...")
	}
	text := "hosts have different numbers of ranks: " + strings.Join(counts, ", ")
	if p.job.Placement.Equal {
		return []Problem{{Code: "unequal", Message: text + "; equal = true forbids that"}}
	}
	p.Notes = append(p.Notes, Problem{Code: "unequal", Message: text})
	return nil
}

// nameNICs says through which device each rank's data leaves the host: NCCL chooses by
// itself, by the same nearness.
func (p *Plan) nameNICs(host int) {
	if len(p.Hosts) == 1 {
		return
	}
	h, f := p.Hosts[host], p.facts[host]
	used := map[string]int{}
	for rank := h.FirstRank; rank < h.FirstRank+h.Ranks; rank++ {
		r := &p.Ranks[rank]
		r.NIC = mainInterface(f)
		if r.Device == nil || r.Device.card >= len(f.Devices.Near) {
			continue
		}
		near := f.Devices.Near[r.Device.card].HCAs
		if len(near) == 0 {
			continue
		}
		r.NIC = slices.MinFunc(near, func(a, b string) int { return used[a] - used[b] })
		used[r.NIC]++
	}
}
