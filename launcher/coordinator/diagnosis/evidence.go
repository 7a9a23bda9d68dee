package diagnosis

import (
	"cmp"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Evidence is what is known of a rank's end.
func (d *Diagnosis) Evidence(rank int) failure.RankEvidence {
	k := d.run.Ranks[rank]
	e := k.Ended
	found := failure.RankEvidence{Rank: rank, Host: d.run.HostOf(rank), Evidence: failure.Evidence{
		Code: e.Code, Signal: e.Signal, Sent: e.Sent, At: d.run.Since(k.At),
	}}
	if e.Code == 0 && e.Signal == "" && !run.Unkillable(e) {
		found.Start = e.Error
	}
	seen := e.Evidence
	if seen == nil {
		found.Stderr = e.Tail
		return found
	}
	found.Worker = *seen
	found.GPUs = d.devices(rank, seen.Devices)
	found.MPSLimit = d.run.Plan.MPSMemory(k.Place)
	if seen.Devices != nil {
		found.NoEvents = seen.Devices.NoEvents
		if device := d.run.PlaceOf(rank).Device; device != nil && found.NoEvents == "" {
			found.NoEvents = cmp.Or(seen.Devices.Unsupported[device.UUID], seen.Devices.Unsupported[device.PCI])
		}
	}
	found.Steps = failure.StepsOf(seen, d.run.Job.Progress.Pattern)
	return found
}

// devices are those of a rank's host, as they were last seen while it ran and first after. seen is what the host
// has reported with its end.
func (d *Diagnosis) devices(rank int, seen *evidence.Devices) []failure.GPU {
	k := d.run.Ranks[rank]
	part := d.run.Plan.Hosts[k.Host]
	var all []failure.GPU
	for i, before := range d.run.Plan.Before(k.Host) {
		device := before.Device
		g := failure.GPU{ID: device.ID, Seen: d.seenAs(rank, i)}
		for _, place := range d.run.Plan.Ranks[part.FirstRank : part.FirstRank+part.Ranks] {
			if place.Device != nil && place.Device.UUID == device.UUID {
				g.Ranks++
				g.Mine = g.Mine || place.Rank == k.Place
			}
		}
		last := d.placement.Last(k.Host)
		switch {
		case seen != nil && seen.Before != nil:
			g.Before = use(device.UUID, before, seen.Before, rank)
		case last != nil:
			g.Before = use(device.UUID, before, last, rank)
		default:
			g.Before = useInPlan(before)
		}
		if seen != nil {
			if seen.After != nil {
				g.After = use(device.UUID, before, seen.After, rank)
			}
			if n, counted := seen.ECC[device.UUID]; counted {
				g.ECC = &n
			}
		}
		d.driver.AddTo(&g, k.Host, k.Begun)
		all = append(all, g)
	}
	return all
}

// seenAs is the number by which a rank calls the device at a place of its host's list; -1: it does not see it.
func (d *Diagnosis) seenAs(rank, at int) int {
	host := d.run.Ranks[rank].Host
	part := d.run.Plan.Hosts[host]
	if part.Visibility == "host" {
		return at
	}
	own := d.run.PlaceOf(rank).Device
	if own != nil && at < len(part.Devices) && own.UUID == d.run.Plan.Before(host)[at].Device.UUID {
		return 0
	}
	return -1
}

// use is who holds a device, as rank sees it.
func use(uuid string, before plan.Before, seen *gpu.Usage, rank int) *failure.Use {
	used, known := seen.Used[uuid]
	if !known {
		return nil
	}
	u := &failure.Use{Total: before.Total, Used: used}
	for _, h := range seen.Holders {
		if h.UUID == uuid {
			u.Processes = append(u.Processes, failure.Process{Holder: h, Own: h.Rank == rank})
		}
	}
	return u
}

// useInPlan is what others held when the plan was made, for a worker that was gone before anybody looked; nil where
// that was nothing.
func useInPlan(before plan.Before) *failure.Use {
	if before.Total == 0 || len(before.Holders) == 0 {
		return nil
	}
	u := &failure.Use{Total: before.Total, Used: before.Used}
	for _, h := range before.Holders {
		u.Processes = append(u.Processes, failure.Process{Holder: h})
	}
	if p := u.Processes; len(p) == 1 && gpu.OrZero(p[0].Bytes) == 0 { // all is that one's
		p[0].Bytes = &u.Used
	}
	return u
}
