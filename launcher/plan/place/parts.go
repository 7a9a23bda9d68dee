package place

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// emptyHint names the first such GPU, where there are too few devices.
func emptyHint(s *site) string {
	for i := range s.gpus() {
		if g := &s.gpus()[i]; device.IsEmpty(g) {
			return fmt.Sprintf(". GPU %d has MIG on and %s", g.Index, device.WhyNoInstance(g))
		}
	}
	return ""
}

// ofProfile are the MIG devices of a profile. Where there are none, that is refused.
func ofProfile(s *site, devices []device.Device, ref config.DeviceRef) []device.Device {
	found := slices.DeleteFunc(slices.Clone(devices), func(d device.Device) bool { return !d.HasProfile(ref.Text) })
	if len(found) == 0 {
		s.refuse("no_such_device", "%s: %s has no MIG device of profile %s%s: %s",
			ref.Range, s.host.Name, ref.Text, amongAllowed(s), layout(s, devices, ref.Text))
	}
	return found
}

// amongAllowed says which variable restricts the choice, if one does.
func amongAllowed(s *site) string {
	if value, set := s.facts.Environ[s.variable()]; set {
		return fmt.Sprintf(" among those that %s=%s allows", s.variable(), value)
	}
	return ""
}

// layout says which MIG devices there are, and how one of a profile would be made.
func layout(s *site, devices []device.Device, profile string) string {
	have, index := "MIG is on for none of its GPUs (root turns it on with nvidia-smi -i N -mig 1)", "N"
	if at := slices.IndexFunc(s.gpus(), device.IsPartitioned); at >= 0 {
		have, index = "its GPUs with MIG have no devices", fmt.Sprint(s.gpus()[at].Index)
	}
	if names := device.KindNames(devices); names != "" {
		have = "it has " + names
	}
	return fmt.Sprintf(
		"%s. muster never changes the layout; root makes one, where there is room, with nvidia-smi mig -i %s -cgi %s -C",
		have, index, profile)
}

// profiled are idle MIG devices of the profiles that the job file lists, in its order.
func profiled(s *site, allowed []device.Device) Share {
	var chosen []device.Device
	list := s.host.Devices.List
	for i, ref := range list {
		same := func(r config.DeviceRef) bool { return r.Text == ref.Text }
		if slices.ContainsFunc(list[:i], same) {
			continue // taken with the first of its profile
		}
		n := len(list) - len(slices.DeleteFunc(slices.Clone(list), same))
		chosen = append(chosen, someOfProfile(s, allowed, ref, n, chosen)...)
	}
	if s.refused() {
		return Share{}
	}
	return Share{Ranks: s.ranksOn(len(list)), Devices: inOrderOf(list, chosen), Claimed: !s.job.WithOthers()}
}

// inOrderOf has devices in the order of a list of their profiles.
func inOrderOf(list []config.DeviceRef, devices []device.Device) []device.Device {
	var ordered []device.Device
	for _, ref := range list {
		if at := slices.IndexFunc(devices, func(d device.Device) bool { return d.HasProfile(ref.Text) }); at >= 0 {
			ordered = append(ordered, devices[at])
			devices = slices.Delete(slices.Clone(devices), at, at+1)
		}
	}
	return ordered
}

type devices = []device.Device

// someOfProfile takes n idle MIG devices of a profile, beside those that are taken already.
func someOfProfile(s *site, allowed []device.Device, ref config.DeviceRef, n int, taken devices) devices {
	there := ofProfile(s, allowed, ref)
	if len(there) == 0 {
		return nil
	}
	c := candidatesOf(s, there)
	asked := fmt.Sprintf("%s: %s: %s of profile %s asked", ref.Range, s.host.Name, plural.Of(n, "MIG device"), ref.Text)
	switch {
	case len(there) < n:
		s.refuse("too_few_devices", "%s, but it has %d%s: %s",
			asked, len(there), amongAllowed(s), layout(s, allowed, ref.Text))
		return nil
	case len(c.idle) < n:
		s.refuse("too_few_devices", "%s, but only %d of its %d can be had:\n%s%s",
			asked, len(c.idle), len(there), c.table(), c.minFreeHint(s, "\n  "))
		return nil
	}
	return pickParts(s, c.idle, n, taken)
}

// pickParts takes n of the candidates, MIG devices of one profile, beside those that are taken already. MIG keeps
// memory and SMs apart, but neither the PCIe link, through which ranks on different GPUs meet, nor power. So they are
// spread, all the more as NCCL before 2.31 takes one per GPU. Where NCCL takes several, those of one GPU reach each
// other directly, and over the host's memory many times slower: then they are packed.
func pickParts(s *site, candidates []device.Device, n int, taken []device.Device) []device.Device {
	left := slices.Clone(candidates)
	slices.SortStableFunc(left, byPCI)
	packed := packs(s)
	inUse := make([]int, len(s.gpus())) // MIG devices of each GPU that somebody uses
	for i := range s.gpus() {
		for _, d := range device.Instances(&s.gpus()[i], i) {
			inUse[i] += flag(busy(s, d) != "")
		}
	}
	var found []device.Device
	for len(found) < n {
		ours, rest := onCards(slices.Concat(taken, found)), onCards(left)
		best := slices.MinFunc(left, func(a, b device.Device) int {
			if packed {
				return closer(a, b, ours, rest, n-len(found))
			}
			return cmp.Or( // by how much of their GPUs is used: by this run, by others; by what is left there
				cmp.Compare(ours[a.Card], ours[b.Card]),
				cmp.Compare(inUse[a.Card], inUse[b.Card]),
				cmp.Compare(rest[b.Card], rest[a.Card]))
		})
		found = append(found, best)
		left = slices.DeleteFunc(left, best.Same)
	}
	slices.SortStableFunc(found, byPCI)
	noteParts(s, found, candidates, packed)
	return found
}

// closer compares by how near devices are to the rest of this run: on GPUs that it uses already, then on one that has
// all n that are still wanted, and of those on the one with the fewest to spare; where none has, on the one with the
// most.
func closer(a, b device.Device, ours, left map[int]int, n int) int {
	hasA, hasB := left[a.Card], left[b.Card]
	return cmp.Or(
		cmp.Compare(ours[b.Card], ours[a.Card]),
		cmp.Compare(flag(hasA < n), flag(hasB < n)),
		cmp.Compare(hasA, hasB)*(1-2*flag(hasA < n)))
}

// packs reports whether ranks are better on one GPU than on several: NCCL joins them, and it is known to take that.
func packs(s *site) bool {
	if s.job.Independent || s.job.Backend != "" && s.job.Backend != "nccl" {
		return false
	}
	return JoinsParts(s.facts)
}

// JoinsParts reports whether NCCL on a host is known to have MIG devices of one GPU reach each other directly.
func JoinsParts(f *facts.Host) bool {
	if f.Software == nil {
		return false
	}
	h := nccl.Host{Parts: 2, OneGPU: true, Ranks: 2, Version: nccl.ParseVersion(f.Software.NCCL, "")}
	if cuda := f.Devices.Inventory.CUDA; cuda != nil {
		h.CUDA = *cuda
	}
	verdict, _, _ := nccl.OnDevices(h, false)
	return verdict == nccl.Works
}

// onCards counts devices by their GPU.
func onCards(devices []device.Device) map[int]int {
	count := map[int]int{}
	for _, d := range devices {
		count[d.Card]++
	}
	return count
}

// noteParts says why MIG devices were chosen of these GPUs, where there was a choice.
func noteParts(s *site, found, candidates []device.Device, packed bool) {
	if len(found) < 2 || len(found) == len(candidates) || len(onCards(candidates)) < 2 {
		return
	}
	why := "those of one GPU share its PCIe link and its power, and NCCL before 2.31 takes one rank per GPU"
	if packed {
		why = "this NCCL joins those of one GPU directly, and those of different GPUs through the host's memory only"
	}
	s.note("mig_parents", "%s: %s of profile %s are taken of %s: %s", s.host.Name, plural.Of(len(found), "MIG device"),
		cmp.Or(found[0].Profile, "unknown"), plural.Of(len(onCards(found)), "GPU"), why)
}

// compareSize orders MIG devices by their memory, and whole GPUs after them.
func compareSize(s *site, a, b device.Device) int {
	memory := func(d device.Device) uint64 {
		total, _, _ := device.MemoryOf(s.card(d), d)
		return gpu.OrZero(total)
	}
	return cmp.Or(cmp.Compare(flag(!a.IsInstance()), flag(!b.IsInstance())), cmp.Compare(memory(a), memory(b)))
}

// checkUnlike warns of ranks that work together on devices of different kinds.
func checkUnlike(s *site, share Share) {
	kinds, asked := device.Split(share.Devices, device.Kind), s.host.Devices
	if len(kinds) < 2 || share.Ranks < 2 || s.job.Independent || asked.Named() || asked.Kind == config.DevicesProfiles {
		return
	}
	names := device.KindNames(share.Devices)
	for _, same := range kinds {
		if !same[0].IsInstance() {
			names = plural.Of(len(same), "whole GPU") + " and MIG devices, " + names
		}
	}
	fix := "name those that are alike"
	largest := slices.MaxFunc(device.Parts(share.Devices), func(a, b device.Device) int { return compareSize(s, a, b) })
	if largest.Profile != "" {
		fix = fmt.Sprintf("choose one kind, as in ranks { devices = %q }, or name the devices", largest.Profile)
	}
	s.warn("mig_unlike", "%s: its ranks have unlike devices (%s): the smallest sets the pace and the memory of all; %s",
		s.host.Name, names, fix)
}
