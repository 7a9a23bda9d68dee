package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// arrange picks n of the candidates and puts them in the order of ranks: each group of ranks inside an island of
// NVLink, then on one NUMA node, then by PCI address. Without groups all are one: better four of an island than two
// of each.
func arrange(s *site, candidates []device.Device, n int) []device.Device {
	a := &arranger{site: s, left: slices.Clone(candidates)}
	slices.SortStableFunc(a.left, byPCI)
	groups, each := s.job.Placement.Groups, s.job.RanksPerGPU()
	sizes := []int{n}
	if len(groups) > 0 {
		sizes = make([]int, len(groups))
		for i, g := range groups {
			sizes[i] = max(1, g.Size/each)
		}
	} else if n == len(candidates) {
		return a.left
	}
	a.islands = islandsOf(s, candidates)
	first := s.first / each // counted in devices, as groups are here
	pieces := cut(first, n, sizes[0])
	placed := make([][]device.Device, len(pieces))
	for _, i := range largestFirst(pieces) { // a small one must not break what a large one needs
		placed[i] = a.withinIsland(pieces[i])
	}
	for i, size := range pieces {
		if placed[i] == nil {
			placed[i] = a.anywhere(first, size, sizes[1:])
		}
		first += size
	}
	return slices.Concat(placed...)
}

// cut cuts n ranks from first on where groups of a size begin.
func cut(first, n, size int) []int {
	var pieces []int
	for n > 0 {
		piece := min(n, size-first%size)
		pieces = append(pieces, piece)
		first, n = first+piece, n-piece
	}
	return pieces
}

// largestFirst are the positions of pieces, those of large ones first.
func largestFirst(pieces []int) []int {
	order := make([]int, len(pieces))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pieces[b], pieces[a]) })
	return order
}

func byPCI(a, b device.Device) int {
	return cmp.Or(cmp.Compare(a.PCI, b.PCI), cmp.Compare(a.MIG, b.MIG))
}

// arranger hands out the devices of a host.
type arranger struct {
	*site
	left    []device.Device // by PCI address
	islands []int           // of each GPU, by its position in the facts: the number of its island
}

// islandsOf numbers the islands that the candidates' GPUs make among themselves. GPUs that are no candidates are left
// out: the rest of a mesh may hold a larger clique than the islands of the whole.
func islandsOf(s *site, candidates []device.Device) []int {
	number := make([]int, len(s.gpus()))
	for i := range number {
		number[i] = -1 - i // each its own, unless found below
	}
	var cards []int
	for _, d := range candidates {
		if !d.IsInstance() {
			cards = append(cards, d.Card)
		}
	}
	islands := s.devices.Islands
	if len(cards) < len(number) {
		islands = islandsAmong(s.devices.Links, cards)
	}
	for i, island := range islands {
		for _, card := range island {
			number[card] = i
		}
	}
	return number
}

func islandsAmong(all [][]gpu.Link, cards []int) [][]int {
	links := make([][]gpu.Link, len(cards))
	for i, a := range cards {
		for _, b := range cards {
			links[i] = append(links[i], device.LinkAt(all, a, b))
		}
	}
	islands := gpu.Islands(links)
	for _, island := range islands {
		for i := range island {
			island[i] = cards[island[i]]
		}
	}
	return islands
}

// withinIsland takes so many devices of the smallest island that has them, on one NUMA node where one has them; nil
// where no island has. A single device is an island.
func (a *arranger) withinIsland(size int) []device.Device {
	island := smallest(device.Split(a.left, func(d device.Device) int { return a.islands[d.Card] }), size)
	if island == nil {
		return nil
	}
	if onNode := smallest(device.Split(island, a.node), size); onNode != nil {
		island = onNode
	}
	return a.take(island[:size])
}

// smallest is the first of the smallest sets that have so many devices; nil where none has.
func smallest(sets [][]device.Device, size int) []device.Device {
	var best []device.Device
	for _, set := range sets {
		if len(set) >= size && (best == nil || len(set) < len(best)) {
			best = set
		}
	}
	return best
}

// node is the NUMA node of a device, -1 where that is not known.
func (a *arranger) node(d device.Device) int {
	if near := a.devices.Near; d.Card < len(near) && near[d.Card].NUMA != nil {
		return *near[d.Card].NUMA
	}
	return -1
}

func (a *arranger) take(devices []device.Device) []device.Device {
	taken := slices.Clone(devices)
	a.left = slices.DeleteFunc(a.left, func(d device.Device) bool { return slices.ContainsFunc(taken, d.Same) })
	return taken
}

// anywhere takes what no island holds: the groups within it by themselves, if there are any, else the devices that
// are closest to each other.
func (a *arranger) anywhere(first, size int, within []int) []device.Device {
	if len(within) == 0 {
		return a.take(a.closest(size))
	}
	var all []device.Device
	for _, piece := range cut(first, size, within[0]) {
		devices := a.withinIsland(piece)
		if devices == nil {
			devices = a.anywhere(first+len(all), piece, within[1:])
		}
		all = append(all, devices...)
	}
	return all
}

// closest gathers devices around each one in turn, always the one with the best way to those it has, and returns the
// gathering whose worst way is best.
func (a *arranger) closest(size int) []device.Device {
	var best []device.Device
	var bestWay way
	for seed := range a.left {
		found, worst := a.around(seed, size)
		if best == nil || worst.less(bestWay) {
			best, bestWay = found, worst
		}
	}
	slices.SortStableFunc(best, byPCI)
	return best
}

// way is how far devices are from each other: by the link between them, then by whether that leads from one NUMA node
// to another.
type way struct{ link, nodes int }

func (w way) less(other way) bool {
	return cmp.Or(cmp.Compare(w.link, other.link), cmp.Compare(w.nodes, other.nodes)) < 0
}

func (a *arranger) around(seed, size int) (found []device.Device, worst way) {
	found = []device.Device{a.left[seed]}
	rest := slices.Delete(slices.Clone(a.left), seed, seed+1)
	for len(found) < size && len(rest) > 0 {
		at, nearest := 0, way{link: math.MaxInt}
		for i, d := range rest {
			if w := a.worstWay(found, d); w.less(nearest) {
				at, nearest = i, w
			}
		}
		found = append(found, rest[at])
		if worst.less(nearest) {
			worst = nearest
		}
		rest = slices.Delete(rest, at, at+1)
	}
	return found, worst
}

func (a *arranger) worstWay(devices []device.Device, d device.Device) way {
	worst := way{}
	for _, other := range devices {
		w := way{device.Distance(device.LinkBetween(a.devices.Links, d, other)), flag(a.node(d) != a.node(other))}
		if worst.less(w) {
			worst = w
		}
	}
	return worst
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
