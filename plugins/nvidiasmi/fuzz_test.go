package nvidiasmi

import (
	"errors"
	"fmt"
	"testing"
	"unicode/utf8"

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

func FuzzParseXML(f *testing.F) {
	seed(f, "nvidia-smi/xml-*", "nvidia-smi/fail-*")
	for _, path := range samples(f, "nvidia-smi/q-*") {
		f.Add(asXML(sample(f, path)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = text[:min(len(text), mostFuzz)]
		log, err := ParseXML(text)
		if log == nil {
			t.Fatalf("no log: %v", err)
		}
		for _, card := range log.GPUs {
			for _, name := range card.Unknown() {
				if card.Why[name] == "" && name != "nvlinks" {
					t.Fatalf("%s is nil without a reason", name)
				}
			}
		}
	})
}

// Whatever the four say, the result keeps its shape.
func FuzzCombine(f *testing.F) {
	read := func(path string) []byte {
		text := sample(f, path)
		return text[:min(len(text), 12<<10)]
	}
	f.Add(asXML(read("nvidia-smi/q-load-h100-mig.txt")), read("nvidia-smi/L-h100-mig.txt"), read("topo/45-single-h100-mig-ansi-driver590.txt"), read("nvidia-smi/nvlink-s-h100-mig.txt"), 0)
	f.Add([]byte("<nvidia_smi_log><gpu><uuid>GPU-00000002-0000-0000-0000-000000000002</uuid></gpu></nvidia_smi_log>"), read("nvidia-smi/fail-gpu-lost-old.txt"), read("topo/21-a6000-3gpu-nv4-pair-plus-one-ansi.txt"), read("nvidia-smi/nvlink-s-a6000-pair-plus-inactive.txt"), 15)
	f.Add(read("nvidia-smi/fail-version-mismatch.txt"), read("nvidia-smi/L-h200-mig.txt"), []byte{}, read("nvidia-smi/nvlink-s-a100-8gpu.txt"), -1)
	f.Fuzz(func(t *testing.T, query, list, topology, links []byte, status int) {
		of := func(text []byte) answer {
			a := answer{Output: Output{Stdout: text[:min(len(text), mostFuzz)], Exit: status}}
			if status < 0 {
				a.err = errors.New("killed")
			}
			return a
		}
		got, err := combine(answers{of(query), of(list), of(topology), of(links)})
		if (got == nil) != (err != nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if err != nil {
			return
		}
		if text := fmt.Sprint(got.Notes, got.Why, got.GPUs); !utf8.ValidString(text) {
			t.Fatalf("not UTF-8: %q", text)
		}
		if len(got.Links) != len(got.GPUs) {
			t.Fatal("links and GPUs differ")
		}
		seen := map[int]bool{}
		for i, card := range got.GPUs {
			if len(got.Links[i]) != len(got.GPUs) || got.Links[i][i] != "X" {
				t.Fatalf("row %d", i)
			}
			if card.Index < 0 || seen[card.Index] || card.State == "" {
				t.Fatalf("GPU %d twice, or state %q", card.Index, card.State)
			}
			seen[card.Index] = true
			for _, name := range card.Unknown() {
				if card.Why[name] == "" {
					t.Fatalf("%s is nil without a reason: %s", name, fmt.Sprint(card.Why))
				}
			}
		}
		gpu.Islands(got.Links)
	})
}
