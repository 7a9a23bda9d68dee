package plaintext

import (
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Each fuzz test starts from all samples of its source, and a few kilobytes of them, so
// that the corpus stays small. Inputs are cut: real ones are bounded by the runner.
const mostFuzz = 64 << 10

func seed(f *testing.F, patterns ...string) {
	for _, pattern := range patterns {
		for _, path := range samples(f, pattern) {
			text := sample(f, path)
			f.Add(text[:min(len(text), 12<<10)])
		}
	}
	f.Add([]byte{})
}

func FuzzParseTopology(f *testing.F) {
	seed(f, "topo/*.txt", "nvidia-smi/topo-p2p-*")
	f.Fuzz(func(t *testing.T, text []byte) {
		text = text[:min(len(text), mostFuzz)]
		table, err := ParseTopology(text)
		if err != nil {
			return
		}
		links, err := table.Links()
		if err != nil {
			if len(table.Problems) == 0 {
				t.Fatal("no links and no problem")
			}
			return
		}
		for i := range links {
			if len(links[i]) != len(links) || links[i][i] != "X" {
				t.Fatalf("row %d: %v", i, links[i])
			}
			for j := range links {
				if links[i][j] != links[j][i] {
					t.Fatalf("not symmetric: %d %d", i, j)
				}
			}
		}
		gpu.Islands(links)
	})
}

func FuzzParseNVLink(f *testing.F) {
	seed(f, "nvidia-smi/nvlink-s-*")
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, r := range ParseNVLink(text[:min(len(text), mostFuzz)]) {
			if (r.State == LinksListed) != (len(r.Links)+len(r.Puzzle) > 0) {
				t.Fatalf("state %s, links %v", r.State, r.Links)
			}
		}
	})
}

func FuzzParseList(f *testing.F) {
	seed(f, "nvidia-smi/L-*")
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, card := range ParseList(text[:min(len(text), mostFuzz)]) {
			if card.Index < 0 || card.Index > 9999 {
				t.Fatalf("index %d", card.Index)
			}
		}
	})
}

func FuzzParseFailures(f *testing.F) {
	seed(f, "nvidia-smi/fail-*", "nvidia-smi/L-*")
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, failure := range ParseFailures(text[:min(len(text), mostFuzz)]) {
			if failure.Error() == "" || meanings[failure.Class] == "" || len(failure.Text) > maxSentence {
				t.Fatalf("%+v", failure)
			}
		}
	})
}
