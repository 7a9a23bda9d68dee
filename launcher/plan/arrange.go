package plan

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/plugins/gpu"
)

// arrange picks n of the candidates and puts them in the order of ranks: each group of
// ranks inside an island of NVLink, then on one NUMA node, then by PCI address. Without
// groups all are one: better four of an island than two of each.
func (c *chooser) arrange(candidates []Device, n int) []Device {
	a := &arranger{chooser: c, left: slices.Clone(candidates), islands: c.islandsOf(candidates)}
	slices.SortStableFunc(a.left, byPCI)
	sizes := []int{n}
	if len(c.job.Placement.Groups) > 0 {
		sizes = nil
		for _, g := range c.job.Placement.Groups {
			sizes = append(sizes, max(1, g.Size/c.job.RanksPerGPU()))
		}
	} else if n == len(candidates) {
		return a.left
	}
	first := c.first / c.job.RanksPerGPU() // counted in devices, as groups are here
	pieces := piecesOf(first, n, sizes[0])
	placed := make([][]Device, len(pieces))
	for _, i := range largestFirst(pieces) { // a small one must not break what a large one needs
		placed[i] = a.withinIsland(pieces[i])
	}
	for i, size := range pieces {
		if placed[i] == nil {
			placed[i] = a.anywhere(first+sum(pieces[:i]), size, sizes[1:])
		}
	}
	return slices.Concat(placed...)
}

// piecesOf cuts n ranks from first on where groups of a size begin.
func piecesOf(first, n, size int) []int {
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

func sum(numbers []int) int {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return total
}

func byPCI(a, b Device) int {
	return cmp.Or(cmp.Compare(a.PCI, b.PCI), cmp.Compare(a.MIG, b.MIG))
}

// arranger hands out the devices of a host.
type arranger struct {
	*chooser
	left    []Device // by PCI address
	islands []int    // of each GPU, by its position in the facts: the number of its island
}

// islandsOf numbers the islands that the candidates' GPUs make among themselves.
func (c *chooser) islandsOf(candidates []Device) []int {
	number := make([]int, len(c.devices.Inventory.GPUs))
	for i := range number {
		number[i] = -1 - i // each its own, unless found below
	}
	islands := c.devices.Islands
	if !c.holdsAll(candidates) {
		islands = c.islandsAmong(candidates)
	}
	for i, island := range islands {
		for _, card := range island {
			number[card] = i
		}
	}
	return number
}

func (c *chooser) holdsAll(candidates []Device) bool {
	for i := range c.devices.Inventory.GPUs {
		if !slices.ContainsFunc(candidates, func(d Device) bool { return d.card == i && d.MIG == wholeGPU }) {
			return false
		}
	}
	return true
}

// islandsAmong leaves GPUs out that are no candidates: what is left of a mesh may hold a
// larger clique than the islands of the whole.
func (c *chooser) islandsAmong(candidates []Device) [][]int {
	var gpus []int
	for _, d := range candidates {
		if d.MIG == wholeGPU {
			gpus = append(gpus, d.card)
		}
	}
	links := make([][]gpu.Link, len(gpus))
	for i, a := range gpus {
		for _, b := range gpus {
			links[i] = append(links[i], linkAt(c.devices.Links, a, b))
		}
	}
	islands := gpu.Islands(links)
	for _, island := range islands {
		for i := range island {
			island[i] = gpus[island[i]]
		}
	}
	return islands
}

// withinIsland takes so many devices of the smallest island that has them; nil where none
// has. A single device is an island.
func (a *arranger) withinIsland(size int) []Device {
	var best []Device
	for _, members := range split(a.left, func(d Device) int { return a.islands[d.card] }) {
		if len(members) >= size && (best == nil || len(members) < len(best)) {
			best = members
		}
	}
	if best == nil {
		return nil
	}
	return a.take(a.onOneNode(best, size))
}

// split parts devices by a key and keeps their order, in the parts and between them.
func split(devices []Device, key func(Device) int) [][]Device {
	var parts [][]Device
	at := map[int]int{}
	for _, d := range devices {
		k := key(d)
		i, known := at[k]
		if !known {
			i = len(parts)
			at[k] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], d)
	}
	return parts
}

// onOneNode picks so many devices on the NUMA node that fits them closest; where none
// has enough, the first.
func (a *arranger) onOneNode(devices []Device, size int) []Device {
	var best []Device
	for _, members := range split(devices, func(d Device) int { return a.node(d) }) {
		if len(members) >= size && (best == nil || len(members) < len(best)) {
			best = members
		}
	}
	if best == nil {
		best = devices
	}
	return best[:size]
}

// node is the NUMA node of a device, -1 where that is not known.
func (c *chooser) node(d Device) int {
	if d.card < len(c.devices.Near) && c.devices.Near[d.card].NUMA != nil {
		return *c.devices.Near[d.card].NUMA
	}
	return -1
}

func (a *arranger) take(devices []Device) []Device {
	taken := slices.Clone(devices)
	a.left = slices.DeleteFunc(a.left, func(d Device) bool { return slices.ContainsFunc(taken, d.same) })
	return taken
}

// anywhere takes what no island holds: the groups within it by themselves, if there are
// any, else the devices that are closest to each other.
func (a *arranger) anywhere(first, size int, within []int) []Device {
	if len(within) == 0 {
		return a.take(a.closest(size))
	}
	var all []Device
	for _, piece := range piecesOf(first, size, within[0]) {
		devices := a.withinIsland(piece)
		if devices == nil {
			devices = a.anywhere(first+len(all), piece, within[1:])
		}
		all = append(all, devices...)
	}
	return all
}

// closest gathers devices around each one in turn, always the one with the best way to
// those it has, and returns the gathering whose worst way is best.
func (a *arranger) closest(size int) []Device {
	var best []Device
	bestWay := far{}
	for seed := range a.left {
		found, worst := a.around(seed, size)
		if best == nil || worst.less(bestWay) {
			best, bestWay = found, worst
		}
	}
	slices.SortStableFunc(best, byPCI)
	return best
}

// far is how far devices are from each other: by the way between them, then by whether that
// leads from one NUMA node to another.
type far struct{ way, nodes int }

func (f far) less(other far) bool {
	return cmp.Or(cmp.Compare(f.way, other.way), cmp.Compare(f.nodes, other.nodes)) < 0
}

func (a *arranger) around(seed, size int) (found []Device, worst far) {
	found = []Device{a.left[seed]}
	rest := slices.Delete(slices.Clone(a.left), seed, seed+1)
	for len(found) < size && len(rest) > 0 {
		at, way := 0, far{way: len(ways)}
		for i, d := range rest {
			if w := a.worstWay(found, d); w.less(way) {
				at, way = i, w
			}
		}
		found = append(found, rest[at])
		if worst.less(way) {
			worst = way
		}
		rest = slices.Delete(rest, at, at+1)
	}
	return found, worst
}

func (a *arranger) worstWay(devices []Device, d Device) far {
	worst := far{}
	for _, other := range devices {
		way := far{distance(a.link(d, other)), flag(a.node(d) != a.node(other))}
		if worst.less(way) {
			worst = way
		}
	}
	return worst
}

// link is the way between two devices of the host. MIG devices are taken to reach each other
// through the host's memory only, as do those of different GPUs, and those of one GPU before
// R570.
func (c *chooser) link(a, b Device) gpu.Link { return linkBetween(c.devices.Links, a, b) }

func linkBetween(links [][]gpu.Link, a, b Device) gpu.Link {
	link := linkAt(links, a.card, b.card)
	if a.IsInstance() || b.IsInstance() {
		link = slower(link, "PHB")
	}
	return link
}

// linkAt is the way between two GPUs; unknown where there is no table of them.
func linkAt(links [][]gpu.Link, a, b int) gpu.Link {
	if a >= len(links) || b >= len(links[a]) {
		return ""
	}
	return links[a][b]
}

func slower(a, b gpu.Link) gpu.Link {
	if distance(a) > distance(b) {
		return a
	}
	return b
}

// ways between GPUs, fast ones first.
var ways = []gpu.Link{"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS", ""}

// distance is the place of a link among the ways.
func distance(l gpu.Link) int {
	if l.NVLinks() > 0 {
		return slices.Index(ways, "NV")
	}
	if at := slices.Index(ways, l); at >= 0 {
		return at
	}
	return len(ways) - 1
}
