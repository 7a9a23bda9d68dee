package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// matrix makes links of rows of words; "." is a way without NVLink.
func matrix(rows ...string) [][]Link {
	var links [][]Link
	for _, row := range rows {
		var cells []Link
		for _, cell := range strings.Fields(row) {
			if cell == "." {
				cell = "SYS"
			}
			cells = append(cells, Link(cell))
		}
		links = append(links, cells)
	}
	return links
}

// mesh makes links of n GPUs by a function of the pair.
func mesh(n int, links func(i, j int) int) [][]Link {
	m := make([][]Link, n)
	for i := range m {
		m[i] = make([]Link, n)
		for j := range m[i] {
			m[i][j] = "SYS"
			if i == j {
				m[i][j] = "X"
			} else if count := links(min(i, j), max(i, j)); count > 0 {
				m[i][j] = Link(fmt.Sprintf("NV%d", count))
			}
		}
	}
	return m
}

func TestIslandsAreCliquesAndNotComponents(t *testing.T) {
	tests := []struct {
		name  string
		links [][]Link
		want  string
	}{
		{"no GPU, no island", nil, "[]"},
		{"one GPU is an island", matrix("X"), "[[0]]"},
		{"PCIe only: each alone", matrix("X . .", ". X .", ". . X"), "[[0] [1] [2]]"},
		{"an NVSwitch joins all", mesh(16, func(i, j int) int { return 6 }), "[[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]]"},
		{"the cube mesh is two of four", mesh(8, func(i, j int) int {
			if i/4 == j/4 || j-i == 4 {
				return 1
			}
			return 0
		}), "[[0 1 2 3] [4 5 6 7]]"},
		{"two islands of four without cross links (made up)", mesh(8, func(i, j int) int {
			if i/4 == j/4 {
				return 4
			}
			return 0
		}), "[[0 1 2 3] [4 5 6 7]]"},
		{"a ring takes the stronger pairs (sample 10)", matrix("X NV2 NV2 .", "NV2 X . NV1", "NV2 . X NV2", ". NV1 NV2 X"), "[[0 1] [2 3]]"},
		{"a ring takes them also when their indices are higher", matrix("X NV1 NV2 .", "NV1 X . NV2", "NV2 . X NV1", ". NV2 NV1 X"), "[[0 2] [1 3]]"},
		{"the rest decides between equal first choices", mesh(4, func(i, j int) int {
			if j-i == 1 { // a chain: 1-2 first would leave 0 and 3 alone
				return 1
			}
			return 0
		}), "[[0 1] [2 3]]"},
		{"larger comes first, whatever its indices", mesh(5, func(i, j int) int {
			if i >= 2 || j == 1 {
				return 4
			}
			return 0
		}), "[[2 3 4] [0 1]]"},
		{"a larger first island counts more than stronger links", mesh(4, func(i, j int) int {
			if j == 3 && i == 2 {
				return 100
			}
			if j < 3 {
				return 1
			}
			return 0
		}), "[[0 1 2] [3]]"},
		{"what only one side tells of is no NVLink", matrix("X NV4", "SYS X"), "[[0] [1]]"},
		{"unknown ways only: nothing to tell", [][]Link{{"X", ""}, {"", "X"}}, "[]"},
		{"a lost GPU stands alone", [][]Link{{"X", "NV4", ""}, {"NV4", "X", ""}, {"", "", "X"}}, "[[0 1] [2]]"},
		{"ragged rows do no harm", [][]Link{{"X", "NV4"}, {"NV4"}, nil}, "[[0 1] [2]]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := fmt.Sprint(Islands(test.links)); got != test.want {
				t.Errorf("Islands = %s, want %s", got, test.want)
			}
		})
	}
	if Islands([][]Link{{"X", ""}, {"", "X"}}) != nil {
		t.Error("islands of unknown ways are not nil")
	}
}

// every way to part few GPUs is tried, and none may be better by the rules.
func TestNoOtherWayToPartIsBetter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		links := mesh(2+random.IntN(6), func(i, j int) int { return 0 })
		for i := range links {
			for j := range i {
				if n := random.IntN(5) - 1; n > 0 {
					links[i][j] = Link(fmt.Sprintf("NV%d", n))
					links[j][i] = links[i][j]
				}
			}
		}
		got := Islands(links)
		best, found := "", [][]int(nil)
		parts(links, nil, 0, func(way [][]int) {
			if s := score(links, way); s > best {
				best, found = s, way
			}
		})
		if score(links, got) != best {
			t.Fatalf("links %v:\nIslands = %v\nbetter:   %v", links, got, found)
		}
	}
}

// parts calls f with each way to part the GPUs into cliques.
func parts(links [][]Link, way [][]int, next int, f func([][]int)) {
	if next == len(links) {
		f(slices.Clone(way))
		return
	}
	for i, part := range way {
		if !slices.ContainsFunc(part, func(g int) bool { return links[g][next].NVLinks() == 0 }) {
			with := slices.Clone(way)
			with[i] = append(slices.Clone(part), next)
			parts(links, with, next+1, f)
		}
	}
	parts(links, append(slices.Clone(way), []int{next}), next+1, f)
}

// score orders ways to part: sizes, links, then low indices.
func score(links [][]Link, way [][]int) string {
	way = slices.Clone(way)
	slices.SortFunc(way, func(a, b []int) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return a[0] - b[0]
	})
	sizes, sum, indices := "", 0, ""
	for _, part := range way {
		sizes += string(rune('A' + len(part)))
		for i, a := range part {
			indices += string(rune('z' - a))
			for _, b := range part[:i] {
				sum += links[a][b].NVLinks()
			}
		}
	}
	return fmt.Sprintf("%s%*s%05d%s", sizes, 10-len(sizes), "", sum, indices)
}

func TestOddGraphsEndSoon(t *testing.T) {
	odd := map[string][][]Link{
		"two halves joined crosswise": mesh(16, func(i, j int) int { return (j / 8) - (i / 8) }),
		"all but a pair, 16":          mesh(16, func(i, j int) int { return min(1, j/2-i/2) }),
		"all but threes, 48":          mesh(48, func(i, j int) int { return min(1, j/3-i/3) }),
		"ring of 32": mesh(32, func(i, j int) int {
			if j-i == 1 || j-i == 31 {
				return 1
			}
			return 0
		}),
		"more than a word of bits": mesh(200, func(i, j int) int { return 2 }),
	}
	random := rand.New(rand.NewPCG(3, 4))
	odd["random 16"] = mesh(16, func(i, j int) int { return random.IntN(2) })
	odd["random 60"] = mesh(60, func(i, j int) int { return random.IntN(3) })
	for name, links := range odd {
		t.Run(name, func(t *testing.T) {
			for i := range links { // mesh asks both ways
				for j := range i {
					links[i][j] = links[j][i]
				}
			}
			start := time.Now()
			islands := Islands(links)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
			seen := map[int]bool{}
			for _, island := range islands {
				for k, a := range island {
					if seen[a] {
						t.Fatalf("GPU %d is in two islands", a)
					}
					seen[a] = true
					for _, b := range island[:k] {
						if links[a][b].NVLinks() == 0 {
							t.Fatalf("GPU %d and %d share an island without a link", a, b)
						}
					}
				}
			}
			if len(seen) != len(links) {
				t.Errorf("%d of %d GPUs are in islands", len(seen), len(links))
			}
		})
	}
}

func TestNVLinksAreCountedOfNVLinkOnly(t *testing.T) {
	for link, want := range map[Link]int{"NV18": 18, "NV1": 1, "NODE": 0, "X": 0, "": 0, "NV": 0, "NV#": 0, "NV-3": 0} {
		if got := link.NVLinks(); got != want {
			t.Errorf("%q has %d NVLinks, want %d", link, got, want)
		}
	}
}
