package plaintext

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample reads a recorded output; testdata holds two folders of them, each with an
// INDEX.md that tells where they are from and expected.json with right answers.
func sample(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../testdata", path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// samples lists the files of a folder whose names match.
func samples(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no samples %s: %v", pattern, err)
	}
	for i, path := range paths {
		paths[i] = strings.TrimPrefix(path, "../testdata/")
	}
	return paths
}

func expected(t testing.TB, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(sample(t, path), into); err != nil {
		t.Fatal(err)
	}
}

// rightAnswer is one of expected.json of the nvidia-smi samples; what a sample lacks is nil.
type rightAnswer struct {
	GPUs         *int
	ActiveLinks  []*int `json:"active_links"`
	State        []string
	MIGDevices   *int `json:"mig_devices"`
	Class        string
	GPU          *int
	BusID        string `json:"bus_id"`
	GoodRows     []int  `json:"good_rows"`
	Retired      []int
	Pending      []bool
	RemapPending *bool   `json:"remap_pending"`
	RemapFailed  *bool   `json:"remap_failed"`
	RemapCorr    *int    `json:"remapped_correctable"`
	RemapUncorr  *int    `json:"remapped_uncorrectable"`
	SRAMVolatile *uint64 `json:"sram_uncorrectable_volatile"`
}

func rightAnswers(t testing.TB) map[string]rightAnswer {
	answers := map[string]rightAnswer{}
	expected(t, "nvidia-smi/expected.json", &answers)
	return answers
}
