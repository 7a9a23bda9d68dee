package place

import (
	"slices"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
)

// named are the devices that the job file names, in its order.
func named(s *site, allowed []device.Device) Share {
	var chosen []device.Device
	for _, ref := range s.host.Devices.List {
		d, err := device.Find(s.devices, ref.Text)
		if err != nil {
			s.refuse("no_such_device", "%s: %s: %v", ref.Range, s.host.Name, err)
			continue
		}
		if !slices.ContainsFunc(allowed, d.Same) {
			s.refuse("not_visible", "%s: %s: %s is not among the devices that %s=%s allows there; change one of the two",
				ref.Range, s.host.Name, d, s.variable(), s.facts.Environ[s.variable()])
		}
		if at := slices.IndexFunc(chosen, d.Same); at >= 0 && !s.job.Placement.Shared {
			s.refuse("same_device",
				"%s: %s: %q is %s, which %q names already: two ranks would share it (shared = true allows that)",
				ref.Range, s.host.Name, ref.Text, d, s.host.Devices.List[at].Text)
		}
		if why := device.Unusable(s.card(d)); why != "" {
			s.refuse("unusable_device", "%s: %s: %s %s", ref.Range, s.host.Name, d, why)
		} else if why := busy(s, d); why != "" && !s.job.WithOthers() {
			s.warn("busy_device", "%s: %s, which the job file names, is busy: %s", s.host.Name, d, why)
		}
		chosen = append(chosen, d)
	}
	return Share{Ranks: s.ranksOn(len(chosen)), Devices: chosen}
}

// all are all devices that may be used. One that cannot be makes the job smaller than somebody thinks, so it is
// refused, not left out.
func all(s *site, allowed []device.Device, ordered bool) Share {
	if s.host.Devices.Kind == config.DevicesAll && s.facts.Environ[s.variable()] == "" {
		for i := range s.gpus() {
			if g := &s.gpus()[i]; device.IsEmpty(g) {
				s.refuse("unusable_device", "%s: GPU %d has MIG on and %s", s.host.Name, g.Index, device.WhyNoInstance(g))
			}
		}
	}
	if len(allowed) == 0 && !s.refused() {
		s.refuse("no_gpu",
			"%s: no GPU may be used there: %s=%q names none; unset it there, or write ranks { devices = \"none\" }",
			s.host.Name, s.variable(), s.facts.Environ[s.variable()])
		return Share{}
	}
	warnMissing(s)
	if c := candidatesOf(s, allowed); len(c.reasons) > 0 {
		each := "one rank"
		if n := s.job.RanksPerGPU(); n > 1 {
			each = plural.Of(n, "rank")
		}
		s.refuseAsked("busy_device",
			"%s: all %s are asked for, %s each, but not all can be had:\n%s\n  Name those to use, ranks { devices = [...] }, or their number%s",
			s.host.Name, Counted(allowed), each, c.table(), c.minFreeHint(s, "; "))
	}
	if !ordered {
		allowed = arrange(s, allowed, len(allowed))
	}
	return Share{Ranks: len(allowed) * s.job.RanksPerGPU(), Devices: allowed, Claimed: !s.job.WithOthers()}
}

// warnMissing reports GPUs that are on the bus and that the driver does not show: the job gets smaller than somebody
// thinks. A container or a scheduler may have given a part of the machine.
func warnMissing(s *site) {
	shown, given := len(s.gpus()), s.facts.Container != "" || s.facts.Environ["SLURM_JOB_ID"] != ""
	if shown < s.devices.PCIDevices && !given && s.devices.Visibility.Variable == "" {
		s.warn("missing_devices",
			"%s: the driver shows %s, but %d are on the PCI bus: the others did not start or were lost (dmesg there says more)",
			s.host.Name, plural.Of(shown, "GPU"), s.devices.PCIDevices)
	}
}

// some are as many idle devices as are asked for.
func some(s *site, allowed []device.Device, ordered bool) Share {
	n := s.wanted()
	share := Share{Ranks: s.ranksOn(n), Claimed: !s.job.WithOthers()}
	c := candidatesOf(s, allowed)
	if s.job.Placement.Shared && s.host.Devices.Kind != config.DevicesCount {
		n = max(1, min(n, len(c.idle)))
	}
	switch {
	case len(allowed) < n:
		refuseTooFew(s, n, allowed)
	case len(c.idle) < n:
		s.refuseAsked("too_few_devices", "%s: %s asked, but only %d of its %s can be had:\n%s%s", s.host.Name,
			plural.Of(n, "GPU"), len(c.idle), Counted(allowed), c.table(), c.minFreeHint(s, "\n  "))
	case ordered:
		share.Devices = c.idle[:n]
	default:
		share.Devices = pick(s, c.idle, n)
	}
	return share
}

// refuseTooFew refuses more devices than the host allows.
func refuseTooFew(s *site, n int, allowed []device.Device) {
	asked := plural.Of(n, "rank")
	if s.host.Devices.Kind == config.DevicesCount || s.job.MPS != nil {
		asked = plural.Of(n, "GPU")
	}
	refuse := func(format string, args ...any) {
		s.refuseAsked("too_few_devices", "%s: %s asked, "+format, append([]any{s.host.Name, asked}, args...)...)
	}
	switch {
	case s.host.Devices.Kind == config.DevicesProfile:
		refuse("but it has %s only: two ranks never share one unless shared = true", Counted(allowed))
	case len(allowed) < len(device.All(s.devices)):
		refuse("%s visible there (%s=%s)", plural.Of(len(allowed), "GPU"), s.variable(), s.facts.Environ[s.variable()])
	case s.job.Placement.Shared:
		refuse("but it has %s; how many ranks share them is said by per_host", plural.Of(len(allowed), "GPU"))
	default:
		refuse("but it has %s: two ranks never share a GPU unless shared = true; ranks that use no GPU are asked for by devices = \"none\"%s",
			Counted(allowed), emptyHint(s))
	}
}

// pick chooses n of the idle devices where the job file says only how many: whole GPUs first, then MIG devices of one
// profile, the largest that has enough, so that ranks are alike; the rest only where nothing else suffices.
func pick(s *site, idle []device.Device, n int) []device.Device {
	kinds := device.Split(idle, device.Kind)
	slices.SortStableFunc(kinds, func(a, b []device.Device) int { return -compareSize(s, a[0], b[0]) })
	for _, same := range kinds {
		if len(same) >= n {
			return pickOf(s, same, n, nil)
		}
	}
	var chosen []device.Device
	for _, same := range kinds {
		chosen = append(chosen, pickOf(s, same, min(len(same), n-len(chosen)), chosen)...)
	}
	return chosen
}

// pickOf chooses n devices of one kind.
func pickOf(s *site, same []device.Device, n int, taken []device.Device) []device.Device {
	if same[0].IsInstance() {
		return pickParts(s, same, n, taken)
	}
	return arrange(s, same, n)
}
