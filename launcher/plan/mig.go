package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// layoutCommands say how root makes MIG devices of a GPU, or turns MIG off. Only people do:
// whoever uses the GPU would lose what is there.
func layoutCommands(g gpu.GPU) string {
	return fmt.Sprintf("root does that with nvidia-smi mig -i %d -cgi 1g.10gb,1g.10gb -C (nvidia-smi mig -i %d -lgip lists the profiles that fit; where GPU instances stand and only their compute instances lack: nvidia-smi mig -i %d -cci), or turns MIG off with nvidia-smi -i %d -mig 0",
		g.Index, g.Index, g.Index, g.Index)
}

// bare are the GPUs that nobody can use: MIG is on, and there are no instances.
func (c *chooser) bare() []gpu.GPU {
	var found []gpu.GPU
	for _, g := range c.devices.Inventory.GPUs {
		if isPartitioned(g) && len(g.MIG.Instances) == 0 {
			found = append(found, g)
		}
	}
	return found
}

// bareHint tells of the first such GPU, where devices lack.
func (c *chooser) bareHint() string {
	bare := c.bare()
	if len(bare) == 0 {
		return ""
	}
	return fmt.Sprintf(". GPU %d has MIG on and %s", bare[0].Index, instances(bare[0]))
}

// counted is how many GPUs and MIG devices there are, in words.
func counted(devices []Device) string {
	parts := 0
	for _, d := range devices {
		if d.IsInstance() {
			parts++
		}
	}
	switch whole := len(devices) - parts; {
	case parts == 0:
		return plural.Of(whole, "GPU")
	case whole == 0:
		return plural.Of(parts, "MIG device")
	default:
		return plural.Of(whole, "GPU") + " and " + plural.Of(parts, "MIG device")
	}
}

// hasProfile reports whether a device is a MIG device of a profile.
func (d Device) hasProfile(profile string) bool {
	return d.IsInstance() && strings.EqualFold(d.Profile, profile)
}

// ofProfile are the MIG devices of a profile. Where there are none, that is refused.
func (c *chooser) ofProfile(devices []Device, ref config.DeviceRef) []Device {
	var found []Device
	for _, d := range devices {
		if d.hasProfile(ref.Text) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		c.refuse("no_such_device", "%s: %s has no MIG device of profile %s%s: %s", ref.Range, c.host.Name, ref.Text, c.amongAllowed(), c.layout(devices, ref.Text))
	}
	return found
}

// amongAllowed says which variable restricts the choice, if one does.
func (c *chooser) amongAllowed() string {
	if value, set := c.facts.Environ[c.variable()]; set {
		return fmt.Sprintf(" among those that %s=%s allows", c.variable(), value)
	}
	return ""
}

// layout says which MIG devices there are, and how one of a profile would be made.
func (c *chooser) layout(devices []Device, profile string) string {
	have := "MIG is on for none of its GPUs (root turns it on with nvidia-smi -i N -mig 1)"
	if slices.ContainsFunc(c.devices.Inventory.GPUs, isPartitioned) {
		have = "its GPUs with MIG have no devices"
	}
	if words := kindWords(devices); words != "" {
		have = "it has " + words
	}
	index := "N"
	for _, g := range c.devices.Inventory.GPUs {
		if isPartitioned(g) {
			index = fmt.Sprint(g.Index)
			break
		}
	}
	return fmt.Sprintf("%s. muster never changes the layout; root makes one, where there is room, with nvidia-smi mig -i %s -cgi %s -C", have, index, profile)
}

// kindWords count MIG devices by profile: "2 of 3g.40gb, 4 of 1g.10gb".
func kindWords(devices []Device) string {
	var words []string
	for _, kind := range kindsOf(devices) {
		if kind[0].IsInstance() {
			words = append(words, fmt.Sprintf("%d of %s", len(kind), cmp.Or(kind[0].Profile, "unknown profile")))
		}
	}
	return strings.Join(words, ", ")
}

// kindsOf parts devices into GPUs and MIG devices of each profile, in their order.
func kindsOf(devices []Device) [][]Device {
	at := map[string]int{}
	return split(devices, func(d Device) int {
		key := "gpu"
		if d.IsInstance() {
			key = "mig " + strings.ToLower(d.Profile)
		}
		if _, known := at[key]; !known {
			at[key] = len(at)
		}
		return at[key]
	})
}

// profiled are idle MIG devices of the profiles that the job file names, in its order.
func (c *chooser) profiled(allowed []Device) share {
	var chosen []Device
	list := c.host.Devices.List
	for i, ref := range list {
		if slices.ContainsFunc(list[:i], func(e config.DeviceRef) bool { return e.Text == ref.Text }) {
			continue // taken with the first of its profile
		}
		chosen = append(chosen, c.someOfProfile(allowed, ref, wantedOf(list, ref.Text), chosen)...)
	}
	if len(c.problems) > 0 {
		return share{}
	}
	ranks := c.host.PerHost
	if ranks == 0 {
		ranks = len(list) * c.job.RanksPerGPU()
	}
	return share{ranks: ranks, devices: inOrderOf(list, chosen), claimed: !c.job.WithOthers()}
}

func wantedOf(list []config.DeviceRef, profile string) int {
	n := 0
	for _, ref := range list {
		if ref.Text == profile {
			n++
		}
	}
	return n
}

// inOrderOf has devices in the order of a list of their profiles.
func inOrderOf(list []config.DeviceRef, devices []Device) []Device {
	left := slices.Clone(devices)
	var ordered []Device
	for _, ref := range list {
		if at := slices.IndexFunc(left, func(d Device) bool { return d.hasProfile(ref.Text) }); at >= 0 {
			ordered = append(ordered, left[at])
			left = slices.Delete(left, at, at+1)
		}
	}
	return ordered
}

// someOfProfile takes n idle MIG devices of a profile, beside those that are taken already.
func (c *chooser) someOfProfile(allowed []Device, ref config.DeviceRef, n int, taken []Device) []Device {
	there := c.ofProfile(allowed, ref)
	if len(there) == 0 {
		return nil
	}
	idle, table, busy := c.idle(there)
	switch {
	case len(there) < n:
		c.refuse("too_few_devices", "%s: %s: %s of profile %s asked, but it has %d%s: %s", ref.Range, c.host.Name, plural.Of(n, "MIG device"), ref.Text, len(there), c.amongAllowed(), c.layout(allowed, ref.Text))
		return nil
	case len(idle) < n:
		c.refuse("too_few_devices", "%s: %s: %s of profile %s asked, but only %d of its %d can be had:\n%s%s", ref.Range, c.host.Name, plural.Of(n, "MIG device"), ref.Text,
			len(idle), len(there), strings.Join(table, "\n"), c.minFreeHint("\n  ", busy))
		return nil
	}
	return c.parts(idle, n, taken)
}

// pick chooses n of the idle devices where the job file says only how many: whole GPUs first,
// then MIG devices of one profile, the largest that has enough, so that ranks are alike; what
// is left over only where nothing else suffices.
func (c *chooser) pick(idle []Device, n int) []Device {
	kinds := kindsOf(idle)
	slices.SortStableFunc(kinds, func(a, b []Device) int {
		return cmp.Or(cmp.Compare(flag(a[0].IsInstance()), flag(b[0].IsInstance())), cmp.Compare(c.sizeOf(b[0]), c.sizeOf(a[0])))
	})
	for _, kind := range kinds {
		if len(kind) >= n {
			return c.pickOf(kind, n, nil)
		}
	}
	var chosen []Device
	for _, kind := range kinds {
		chosen = append(chosen, c.pickOf(kind, min(len(kind), n-len(chosen)), chosen)...)
	}
	return chosen
}

// pickOf chooses n devices of one kind.
func (c *chooser) pickOf(kind []Device, n int, taken []Device) []Device {
	if kind[0].IsInstance() {
		return c.parts(kind, n, taken)
	}
	return c.arrange(kind, n)
}

func (c *chooser) sizeOf(d Device) uint64 {
	total, _, _ := memoryOf(c.card(d), d)
	return gpu.OrZero(total)
}

// parts takes n of the candidates, MIG devices of one profile, beside those that are taken
// already. MIG keeps memory and SMs apart, but neither the PCIe link, through which ranks on
// different GPUs meet, nor power. So they are spread, all the more as NCCL before 2.31 takes
// one per GPU. Where NCCL takes several, those of one GPU reach each other directly, and over
// the host's memory many times slower: then they are packed.
func (c *chooser) parts(candidates []Device, n int, taken []Device) []Device {
	left := slices.Clone(candidates)
	slices.SortStableFunc(left, byPCI)
	packed := c.packs()
	var found []Device
	for len(found) < n {
		best := slices.MinFunc(left, func(a, b Device) int {
			if packed {
				return c.closer(a, b, left, slices.Concat(taken, found), n-len(found))
			}
			return c.freer(a, b, left, slices.Concat(taken, found))
		})
		found = append(found, best)
		left = slices.DeleteFunc(left, best.same)
	}
	slices.SortStableFunc(found, byPCI)
	c.noteParts(found, candidates, packed)
	return found
}

// freer compares by how much of their GPUs is used: by this run, then by others, then by what
// is left there.
func (c *chooser) freer(a, b Device, left, taken []Device) int {
	return cmp.Or(
		cmp.Compare(onGPU(taken, a.card), onGPU(taken, b.card)),
		cmp.Compare(c.inUse(a.card), c.inUse(b.card)),
		cmp.Compare(onGPU(left, b.card), onGPU(left, a.card)))
}

// closer compares by how near they are to the rest of this run: on GPUs that it uses already,
// then on one that has all n that are still wanted, and of those on the one with the fewest to
// spare; where none has, on the one with the most.
func (c *chooser) closer(a, b Device, left, taken []Device, n int) int {
	hasA, hasB := onGPU(left, a.card), onGPU(left, b.card)
	return cmp.Or(
		cmp.Compare(onGPU(taken, b.card), onGPU(taken, a.card)),
		cmp.Compare(flag(hasA < n), flag(hasB < n)),
		cmp.Compare(hasA, hasB)*(1-2*flag(hasA < n)))
}

// packs reports whether ranks are better on one GPU than on several: NCCL joins them, and it is
// known to take that.
func (c *chooser) packs() bool {
	if c.job.Independent || c.job.Backend != "" && c.job.Backend != "nccl" || c.facts.Software == nil {
		return false
	}
	h := nccl.Host{Parts: 2, OneGPU: true, Ranks: 2, Version: nccl.ParseVersion(c.facts.Software.NCCL, "")}
	if cuda := c.devices.Inventory.CUDA; cuda != nil {
		h.CUDA = *cuda
	}
	verdict, _, _ := nccl.OnDevices(h, false)
	return verdict == nccl.Works
}

func onGPU(devices []Device, card int) int {
	n := 0
	for _, d := range devices {
		if d.card == card {
			n++
		}
	}
	return n
}

// inUse is how many MIG devices of a GPU somebody uses.
func (c *chooser) inUse(card int) int {
	n, g := 0, c.devices.Inventory.GPUs[card]
	for _, m := range g.MIG.Instances {
		if c.busy(instanceOf(g, card, m)) != "" {
			n++
		}
	}
	return n
}

// noteParts says why MIG devices were chosen of these GPUs, where there was a choice.
func (c *chooser) noteParts(found, candidates []Device, packed bool) {
	parents := len(split(found, func(d Device) int { return d.card }))
	if len(found) < 2 || len(found) == len(candidates) || len(split(candidates, func(d Device) int { return d.card })) < 2 {
		return
	}
	why := "those of one GPU share its PCIe link and its power, and NCCL before 2.31 takes one rank per GPU"
	if packed {
		why = "this NCCL joins those of one GPU directly, and those of different GPUs through the host's memory only"
	}
	c.note("mig_parents", "%s: %s of profile %s are taken of %s: %s",
		c.host.Name, plural.Of(len(found), "MIG device"), cmp.Or(found[0].Profile, "unknown"), plural.Of(parents, "GPU"), why)
}

// checkUnlike tells of ranks that work together on devices of different kinds.
func (c *chooser) checkUnlike(s share) {
	kinds := kindsOf(s.devices)
	if len(kinds) < 2 || s.ranks < 2 || c.job.Independent || c.host.Devices.Named() || c.host.Devices.Kind == config.DevicesProfiles {
		return
	}
	words := kindWords(s.devices)
	for _, kind := range kinds {
		if !kind[0].IsInstance() {
			words = plural.Of(len(kind), "whole GPU") + " and MIG devices, " + words
		}
	}
	fix := "name those that are alike"
	if profile := c.largestProfile(s.devices); profile != "" {
		fix = fmt.Sprintf("choose one kind, as in ranks { devices = %q }, or name the devices", profile)
	}
	c.warn("mig_unlike", "%s: its ranks have unlike devices (%s): the smallest sets the pace and the memory of all; %s", c.host.Name, words, fix)
}

// largestProfile is that of the largest MIG device.
func (c *chooser) largestProfile(devices []Device) string {
	largest := slices.MaxFunc(devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(flag(a.IsInstance()), flag(b.IsInstance())), cmp.Compare(c.sizeOf(a), c.sizeOf(b)))
	})
	return largest.Profile
}

// parts are the MIG devices among devices.
func parts(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !d.IsInstance() })
}

// ofOneGPU reports whether two MIG devices are of one GPU.
func ofOneGPU(devices []Device) bool {
	found := parts(devices)
	for i, d := range found {
		if slices.ContainsFunc(found[:i], func(other Device) bool { return other.card == d.card && !other.same(d) }) {
			return true
		}
	}
	return false
}

// OnDevices is what NCCL does for a host's ranks by their devices, why in words, and what to do
// where it does not take them.
func (p *Plan) OnDevices(host int, m Meeting) (verdict nccl.Verdict, why, fix string) {
	return nccl.OnDevices(p.ncclHost(host, m), p.ncclValue("NCCL_MULTI_RANK_GPU_ENABLE", host, m) == "1")
}

// migNotes tell how NCCL works between MIG devices, where it does.
func (p *Plan) migNotes() []Problem {
	if p.Backend != "nccl" {
		return nil
	}
	var notes []Problem
	for i, h := range p.Hosts {
		if verdict, why, _ := p.OnDevices(i, Meeting{}); verdict == nccl.Works && why != "" {
			notes = append(notes, Problem{Code: nccl.CodeMIG, Host: h.Name, Message: h.Name + ": " + why})
		}
	}
	return notes
}

// PartNames are the MIG devices of a host as people call them, by UUID, in the plan or not.
func (p *Plan) PartNames(host int) map[string]string {
	names := map[string]string{}
	d := p.facts[host].Devices
	if d == nil || d.Inventory == nil {
		return names
	}
	for i, g := range d.Inventory.GPUs {
		for _, m := range g.MIG.Instances {
			if m.UUID != "" {
				names[m.UUID] = instanceOf(g, i, m).String()
			}
		}
	}
	return names
}
