package place

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
)

// checkSharing lets ranks share a device only where that is meant and works.
func checkSharing(s *site, share Share) {
	ranks, devices := share.Ranks, share.Devices
	if len(devices) == 0 || ranks <= len(devices) && !device.Repeats(devices) || s.job.MPS != nil {
		return // MPS lets its clients in together, in exclusive mode too
	}
	who, what := plural.Of(ranks, "rank"), plural.Of(len(devices), "device")
	if !s.job.Placement.Shared {
		s.refuseAsked("too_few_devices", "%s: %s asked, %s: two ranks never share a GPU unless shared = true",
			s.host.Name, who, what)
		return
	}
	for _, d := range devices {
		if device.IsExclusive(s.card(d)) {
			s.refuseAsked("exclusive_device", "%s: %s is in compute mode exclusive process: a second rank on it would fail "+
				"with \"busy or unavailable\"; use MPS (mps { ranks_per_gpu = %d }), or as many ranks as GPUs",
				s.host.Name, d, (ranks+len(devices)-1)/len(devices))
			return
		}
	}
	s.warn("time_slicing", "%s: %s on %s take turns: only one computes at a time, each costs a context of its own, "+
		"and nothing keeps one from taking all the memory; mps { ranks_per_gpu = N } has them compute at once, with limits",
		s.host.Name, who, what)
}

// checkSpread refuses several devices for a process that could not use them.
func checkSpread(s *site, share Share) {
	if len(share.Devices) > share.Ranks && slices.ContainsFunc(share.Devices, device.Device.IsInstance) {
		s.refuseAsked("mig_spread", "%s: %s for %s, MIG devices among them: a process can use one MIG device only; "+
			"choose as many devices as ranks",
			s.host.Name, plural.Of(len(share.Devices), "device"), plural.Of(share.Ranks, "rank"))
	}
}

// show decides what ranks of a host see of its devices.
func show(s *site, share *Share) {
	asked, at := s.job.Placement.Visibility, inFile(s.job.Placement.VisibilityAt)
	share.Visibility, share.VisibleWhy = asked, "the job file says so"
	if asked == "" {
		share.Visibility = "host"
		share.VisibleWhy = "every rank sees the devices of all, so that they can reach each other's"
	}
	if why, must := mustSeeOne(s, *share); why != "" {
		spread := len(share.Devices) > share.Ranks // one for each rank would leave some to nobody
		switch {
		case asked == "host" && must:
			s.refuse("visibility", "%s%s: visibility = \"host\" does not work there: %s; leave it out, or write \"rank\"",
				at, s.host.Name, why)
		case asked == "host" || asked == "" && spread:
			s.warn("visibility", "%s%s: with visibility \"host\" a rank may touch another's GPU: %s", at, s.host.Name, why)
		case asked == "":
			share.Visibility, share.VisibleWhy = "rank", why
			s.note("visibility",
				"%s: each rank sees its own device only, as number 0 (LOCAL_RANK is 0, MUSTER_LOCAL_RANK the real one): %s",
				s.host.Name, why)
		}
	}
	share.Names = namesOf(s, share.Devices)
}

// mustSeeOne says why a rank should see its own device only; must is set where nothing else works.
func mustSeeOne(s *site, share Share) (why string, must bool) {
	for _, d := range share.Devices {
		switch {
		case d.IsInstance() && share.Ranks > 1:
			return fmt.Sprintf("%s is used, and a process can use one MIG device only", d), true
		case device.IsExclusive(s.card(d)) && share.Ranks > 1:
			return fmt.Sprintf("%s is in compute mode exclusive process: a rank that touches it before it has chosen its own "+
				"(cuda:0) would keep its owner out", d), false
		}
	}
	switch {
	case s.job.MPS != nil:
		return "each GPU has an MPS daemon of its own, and a client sees the daemon's GPU only", true
	case share.Ranks > len(share.Devices) || device.Repeats(share.Devices):
		return "ranks share devices, so LOCAL_RANK cannot be a device's number", true
	case s.job.Independent && share.Ranks > 1:
		return "ranks that do not talk to each other have no use for each other's devices", false
	}
	return "", false
}

// namesOf is how devices are named: "uuid" or "index". A number cannot name a MIG device.
func namesOf(s *site, devices []device.Device) string {
	names := s.job.Placement.DeviceNames
	if names == "" {
		names = s.devices.Visibility.Names
	}
	if names == "index" {
		if at := slices.IndexFunc(devices, device.Device.IsInstance); at >= 0 {
			s.refuse("device_names", "%s%s: device_names = \"index\" cannot name %s: a MIG device has its UUID only",
				inFile(s.job.Placement.DeviceNamesAt), s.host.Name, devices[at])
		}
		return names
	}
	for _, d := range devices {
		if d.UUID == "" {
			s.refuse("no_uuid",
				"%s: %s tells no UUID, so ranks cannot be shown it by name; device_names = \"index\" names it by number",
				s.host.Name, d)
		}
	}
	return "uuid"
}
