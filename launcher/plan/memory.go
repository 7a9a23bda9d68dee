package plan

import (
	"math"
	"strconv"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// MemoryLayout is the plan as far as memory goes.
func (p *Plan) MemoryLayout() memory.Layout {
	l := memory.Layout{World: p.WorldSize, NCCL: p.Backend == "nccl", Island: island(p)}
	l.Buffer, l.Channels = p.BufferSettings()
	for _, g := range p.Config.Placement.Groups {
		l.Groups = append(l.Groups, memory.Group{Name: g.Name, Size: g.Size})
	}
	for host := range p.Hosts {
		l.Cards = append(l.Cards, cards(p, host)...)
		l.Hosts = append(l.Hosts, memory.Host{Ranks: p.Hosts[host].Ranks, Free: availableOn(&p.Facts[host])})
	}
	return l
}

// island is how many GPUs have fast links to each other on each host.
func island(p *Plan) int {
	least := math.MaxInt
	for _, f := range p.Facts {
		largest := 0
		if f.Devices != nil {
			for _, island := range f.Devices.Islands {
				largest = max(largest, len(island))
			}
		}
		least = min(least, largest)
	}
	return least
}

// availableOn is the memory of a host itself that the run may take, nil where that is not known.
func availableOn(f *facts.Host) *uint64 {
	available, limit := f.MemoryAvailable, f.Cgroup.Memory
	if available == 0 {
		return nil
	}
	if limit != nil {
		available = min(available, *limit)
	}
	return &available
}

// cards are the devices of a host's ranks, each with its ranks. A rank spreads over devices that are no rank's own:
// they count in equal parts for all ranks.
func cards(p *Plan, host int) []memory.Card {
	h, known := p.Hosts[host], p.Facts[host].Devices
	var cards []memory.Card
	at := map[[2]int]int{}
	for _, r := range p.RanksOf(host) {
		if r.Device == nil {
			continue
		}
		g := &known.Inventory.GPUs[r.Device.Card]
		key := [2]int{r.Device.Card, r.Device.MIG} // the same for devices that share their memory
		if gi := device.GPUInstance(g, *r.Device); gi != nil {
			key[1] = -2 - *gi
		}
		i, found := at[key]
		if !found {
			i, at[key] = len(cards), len(cards)
			cards = append(cards, cardOf(g, *r.Device))
		}
		cards[i].Ranks = append(cards[i].Ranks, r.Rank)
	}
	for _, d := range h.Devices[min(h.Ranks, len(h.Devices)):] {
		beside := cardOf(&known.Inventory.GPUs[d.Card], d)
		for i := range cards {
			c := &cards[i]
			c.Spreads = true
			c.Used += beside.Used / uint64(h.Ranks)
			if c.Free == nil || beside.Free == nil {
				c.Free = nil
				continue
			}
			sum := *c.Free + *beside.Free/uint64(h.Ranks)
			c.Free = &sum
		}
	}
	return cards
}

func cardOf(g *gpu.GPU, d Device) memory.Card {
	total, used, reserved := device.MemoryOf(g, d)
	if total == nil || used == nil {
		return memory.Card{}
	}
	free := *total - min(*total, *used+gpu.OrZero(reserved))
	return memory.Card{Free: &free, Used: *used}
}

// BufferSettings are the size of NCCL's buffers in bytes and the limit on its channels, as the nccl block sets them;
// 0 where it does not.
func (p *Plan) BufferSettings() (size uint64, channels int) {
	return uint64(ncclNumber(p, "buffer_size")), int(ncclNumber(p, "max_ctas"))
}

func ncclNumber(p *Plan, attr string) int64 {
	setting, _ := p.Config.NCCL.Get(attr)
	n, err := strconv.ParseInt(setting.Value, 10, 64)
	if err != nil {
		return 0 // nothing is set
	}
	return n
}
