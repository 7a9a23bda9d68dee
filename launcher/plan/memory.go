package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// estimateMemory estimates what the job's ranks need of their GPUs' memory, and warns where
// these have less.
func (p *Plan) estimateMemory() []Problem {
	if p.Config.Memory == nil {
		return nil
	}
	estimate, err := memory.Make(*p.Config.Memory, p.memoryLayout())
	if err != nil {
		return []Problem{{Code: "memory_layout", Message: p.placeOf(err) + fmt.Sprintf("what ranks need of memory cannot be estimated: %v; change the size, or the number of ranks", err)}}
	}
	p.Memory = estimate
	var lacking []Problem
	if estimate.Verdict == memory.TooLarge {
		lacking = append(lacking, Problem{Code: "memory_does_not_fit", Host: p.hostLacking(), Message: p.memoryWords()})
	}
	if o := estimate.Offloaded; !o.Fits() {
		name := p.Hosts[o.Host].Name
		lacking = append(lacking, Problem{Code: "memory_does_not_fit", Host: name, Message: fmt.Sprintf("%s: the host's own memory is estimated to be too small for what cpu_offload leaves to it: %s for %s; %s available",
			name, text.GiB(o.Need), plural.Of(p.Hosts[o.Host].Ranks, "rank"), text.GiB(*o.Free))})
	}
	return lacking
}

// placeOf is where the job file has the group that does not come out even.
func (p *Plan) placeOf(err error) string {
	var found *memory.Contradiction
	if !errors.As(err, &found) {
		return ""
	}
	at := slices.IndexFunc(p.Config.Placement.Groups, func(g config.Group) bool { return g.Name == found.Group })
	return p.Config.Placement.Groups[at].Range.String() + ": "
}

// memoryLayout is the plan as far as memory goes.
func (p *Plan) memoryLayout() memory.Layout {
	l := memory.Layout{World: p.WorldSize, NCCL: p.Backend == "nccl", Island: p.island()}
	l.Buffer, l.Channels = p.BufferSettings()
	for _, g := range p.Config.Placement.Groups {
		l.Groups = append(l.Groups, memory.Group{Name: g.Name, Size: g.Size})
	}
	for host := range p.Hosts {
		l.Cards = append(l.Cards, p.cards(host)...)
		l.Hosts = append(l.Hosts, memory.Host{Ranks: p.Hosts[host].Ranks, Free: p.availableOn(host)})
	}
	return l
}

// island is how many GPUs have fast links to each other on each host.
func (p *Plan) island() int {
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

// availableOn is the memory of a host itself that the run may take, nil where it does not tell.
func (p *Plan) availableOn(host int) *uint64 {
	available, limit := p.Facts[host].MemoryAvailable, p.Facts[host].Cgroup.Memory
	if available == 0 {
		return nil
	}
	if limit != nil {
		available = min(available, *limit)
	}
	return &available
}

// cards are the devices of a host's ranks, each with its ranks. Devices that are no rank's
// own are to be spread over: they count in equal parts for all ranks.
func (p *Plan) cards(host int) []memory.Card {
	h := p.Hosts[host]
	var cards []memory.Card
	at := map[string]int{}
	for local := range h.Ranks {
		rank := p.Ranks[h.FirstRank+local]
		if rank.Device == nil {
			continue
		}
		key := p.memoryKey(host, *rank.Device)
		i, known := at[key]
		if !known {
			i, at[key] = len(cards), len(cards)
			cards = append(cards, p.cardOf(host, *rank.Device))
		}
		cards[i].Ranks = append(cards[i].Ranks, rank.Rank)
	}
	for _, d := range h.Devices[min(h.Ranks, len(h.Devices)):] {
		beside := p.cardOf(host, d)
		for i := range cards {
			cards[i].Spreads = true
			cards[i].Used += beside.Used / uint64(h.Ranks)
			if cards[i].Free == nil || beside.Free == nil {
				cards[i].Free = nil
				continue
			}
			sum := *cards[i].Free + *beside.Free/uint64(h.Ranks)
			cards[i].Free = &sum
		}
	}
	return cards
}

// memoryKey is the same for devices that have their memory in common.
func (p *Plan) memoryKey(host int, d Device) string {
	if gi := device.GPUInstance(&p.Facts[host].Devices.Inventory.GPUs[d.Card], d); gi != nil {
		return fmt.Sprint(d.Card, " instance ", *gi)
	}
	return fmt.Sprint(d.Card, d.MIG)
}

func (p *Plan) cardOf(host int, d Device) memory.Card {
	total, used, reserved := device.MemoryOf(&p.Facts[host].Devices.Inventory.GPUs[d.Card], d)
	if total == nil || used == nil {
		return memory.Card{}
	}
	free := *total - min(*total, *used+gpu.OrZero(reserved))
	return memory.Card{Free: &free, Used: *used}
}

// lacking are the ranks whose GPUs have too little.
func (p *Plan) lacking() []int {
	var ranks []int
	for rank, r := range p.Memory.Ranks {
		if r.Verdict == memory.TooLarge {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// hostLacking is the host of all ranks whose GPUs have too little, "" where several are.
func (p *Plan) hostLacking() string {
	ranks := p.lacking()
	host := p.Ranks[ranks[0]].Host
	if slices.ContainsFunc(ranks, func(rank int) bool { return p.Ranks[rank].Host != host }) {
		return ""
	}
	return p.Hosts[host].Name
}

// memoryWords say what does not fit, why, and the least costly change that helps.
func (p *Plan) memoryWords() string {
	e, ranks := p.Memory, p.lacking()
	worst := e.Ranks[e.Worst]
	who, each := "rank "+text.Ranges(ranks), ""
	if len(ranks) > 1 {
		who, each = "ranks "+text.Ranges(ranks), "up to "
	}
	if host := p.hostLacking(); host != "" {
		who = host + ": " + who
	}
	text := fmt.Sprintf("%s: memory is estimated not to fit: %s%s needed of a GPU%s, %s free: %s too little", who, each, text.GiB(worst.Need), sharingWords(worst), text.GiB(*worst.Free), shortBy(worst))
	if e.Copied != "" {
		text += "; " + e.Copied
	}
	return text + "; " + p.remedyWords() + "; muster plan shows what it is made of"
}

// shortBy is what a rank's GPU lacks, in smaller units where it is little.
func shortBy(r memory.Rank) string {
	if lacks := r.Need - *r.Free; lacks < 1<<30/10 {
		return fmt.Sprintf("%.1f MiB", float64(lacks)/(1<<20))
	}
	return text.GiB(r.Need - *r.Free)
}

func sharingWords(r memory.Rank) string {
	if r.Sharing < 2 {
		return ""
	}
	return fmt.Sprintf(" that %d ranks share", r.Sharing)
}

// remedyWords are the change of least cost that makes it fit.
func (p *Plan) remedyWords() string {
	remedy := p.Memory.Cheapest()
	if remedy == nil {
		return "nothing that muster knows of makes it fit on GPUs like these"
	}
	return fmt.Sprintf("what would fit at the least cost: %s (then %s)", remedy.Change, text.GiB(remedy.Need))
}

// memoryNotes tell of what is only just enough, and of what is not compared.
func (p *Plan) memoryNotes() []Problem {
	if p.Memory == nil {
		return nil
	}
	worst := p.Memory.Ranks[p.Memory.Worst]
	if p.Memory.Verdict == memory.Tight {
		return []Problem{{Code: "memory_tight", Message: fmt.Sprintf("memory is estimated to be tight: rank %d needs %s to %s of a GPU%s, %s free",
			p.Memory.Worst, text.GiB(worst.Need), text.GiB(worst.Most), sharingWords(worst), text.GiB(*worst.Free))}}
	}
	unknown := func(r memory.Rank) bool { return r.Verdict == memory.Unknown }
	if slices.ContainsFunc(p.Memory.Ranks, unknown) {
		return []Problem{{Code: "memory_unknown", Message: "memory: some ranks have no GPU, or one that does not tell its free memory: what they need is not compared with anything"}}
	}
	return nil
}
