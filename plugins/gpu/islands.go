package gpu

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// NVLinks is how many NVLinks l is: 12 of NV12, 0 of any other way.
func (l Link) NVLinks() int {
	digits, is := strings.CutPrefix(string(l), "NV")
	n, err := strconv.Atoi(digits)
	if !is || err != nil || n < 0 {
		return 0
	}
	return n
}

// Islands parts the GPUs into sets in each of which every pair has NVLink: cliques, not
// connected components (the cube mesh of a DGX-1 is two islands of four). The largest
// comes first: of all ways to part them, the one whose sizes are largest from the first
// on, of those the one with most links within islands, of those the one with the lowest
// indices. Where no way between any two is known there are no islands to tell: nil.
func Islands(links [][]Link) [][]int {
	if len(links) > 1 && !anyKnown(links) {
		return nil
	}
	islands := [][]int{}
	for _, part := range components(links) {
		islands = append(islands, newPartition(links, part).islands()...)
	}
	slices.SortFunc(islands, func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0], b[0]))
	})
	return islands
}

func anyKnown(links [][]Link) bool {
	for i, row := range links {
		for j, link := range row {
			if i != j && link != "" {
				return true
			}
		}
	}
	return false
}

// between counts the NVLinks of a pair; a pair that only one side tells of has none.
func between(links [][]Link, i, j int) int {
	if j >= len(links[i]) || i >= len(links[j]) {
		return 0
	}
	return min(links[i][j].NVLinks(), links[j][i].NVLinks())
}

// components are the sets that no NVLink leaves, in ascending order. No island crosses
// them, so each is parted by itself. One of more than 64 GPUs, which no machine has, is
// cut: sets are kept as bits of a word.
func components(links [][]Link) [][]int {
	var found [][]int
	seen := make([]bool, len(links))
	for start := range links {
		if seen[start] {
			continue
		}
		seen[start] = true
		part := []int{start}
		for k := 0; k < len(part); k++ {
			for other := range links {
				if !seen[other] && between(links, part[k], other) > 0 {
					seen[other] = true
					part = append(part, other)
				}
			}
		}
		slices.Sort(part)
		found = slices.AppendSeq(found, slices.Chunk(part, 64))
	}
	return found
}

// partition looks for the best islands of one component. Bit i stands for gpus[i].
type partition struct {
	gpus   []int
	joined []uint64 // joined[i]: the others that have NVLink to i
	counts [][]int
	best   map[uint64]choice
	steps  int // left before the first answer is taken for the best
}

// choice is the best way to part a set: its first island, and what the whole way amounts
// to.
type choice struct {
	island uint64
	sizes  string // one byte an island, largest first
	links  int
}

// enough steps for any real machine many times over (8 GPUs need some hundred); what is
// beyond takes milliseconds, not minutes.
const enough = 200_000

func newPartition(links [][]Link, gpus []int) *partition {
	n := len(gpus)
	p := &partition{gpus: gpus, joined: make([]uint64, n), counts: make([][]int, n), steps: enough}
	p.best = map[uint64]choice{}
	for i, a := range gpus {
		p.counts[i] = make([]int, len(gpus))
		for j, b := range gpus {
			if n := between(links, a, b); i != j && n > 0 {
				p.joined[i] |= 1 << j
				p.counts[i][j] = n
			}
		}
	}
	return p
}

func (p *partition) islands() [][]int {
	var found [][]int
	left := ^uint64(0) >> (64 - len(p.gpus))
	for left != 0 {
		island := p.part(left).island
		found = append(found, p.names(island))
		left &^= island
	}
	return found
}

func (p *partition) names(set uint64) []int {
	var gpus []int
	for ; set != 0; set &= set - 1 {
		gpus = append(gpus, p.gpus[bits.TrailingZeros64(set)])
	}
	return gpus
}

// part finds the best way to part a set. Its first island is one of the largest cliques;
// what is left decides which.
func (p *partition) part(set uint64) choice {
	if set == 0 {
		return choice{}
	}
	if known, is := p.best[set]; is {
		return known
	}
	var best choice
	for _, clique := range p.largest(set) {
		rest := p.part(set &^ clique)
		c := choice{clique, string(rune(bits.OnesCount64(clique))) + rest.sizes, p.within(clique) + rest.links}
		if best.island == 0 || c.sizes > best.sizes || c.sizes == best.sizes && c.links > best.links {
			best = c
		}
		if p.steps <= 0 {
			break
		}
	}
	p.best[set] = best
	return best
}

// within adds up the links of a set.
func (p *partition) within(set uint64) int {
	sum := 0
	for left := set; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		for others := left & (left - 1) & p.joined[i]; others != 0; others &= others - 1 {
			sum += p.counts[i][bits.TrailingZeros64(others)]
		}
	}
	return sum
}

// largest lists the largest cliques of a set, lowest indices first. Cliques of one all
// amount to the same, so the first stands for them.
func (p *partition) largest(set uint64) []uint64 {
	search := cliques{p: p}
	search.extend(0, set)
	if len(search.found) > 1 && search.size == 1 {
		return search.found[:1]
	}
	return search.found
}

type cliques struct {
	p     *partition
	size  int
	found []uint64
}

// extend looks at each clique that holds what is chosen and some of the candidates, each
// of which is joined to all that is chosen.
func (s *cliques) extend(chosen, candidates uint64) {
	size := bits.OnesCount64(chosen)
	if candidates == 0 {
		s.take(chosen, size)
		return
	}
	for candidates != 0 && size+bits.OnesCount64(candidates) >= s.size {
		if s.p.steps--; s.p.steps <= 0 && s.size > 0 {
			return
		}
		next := bits.TrailingZeros64(candidates)
		candidates &= candidates - 1
		s.extend(chosen|1<<next, candidates&s.p.joined[next])
	}
}

// take keeps a clique unless a larger one is known.
func (s *cliques) take(clique uint64, size int) {
	if size > s.size {
		s.size, s.found = size, nil
	}
	if size == s.size {
		s.found = append(s.found, clique)
	}
}
