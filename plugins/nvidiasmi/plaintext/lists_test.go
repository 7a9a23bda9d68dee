package plaintext

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

func TestEveryNVLinkSampleIsReadRight(t *testing.T) {
	answers := rightAnswers(t)
	for _, path := range samples(t, "nvidia-smi/nvlink-s-*.txt") {
		t.Run(path, func(t *testing.T) {
			want, known := answers[filepath.Base(path)]
			if !known {
				t.Fatal("no right answer")
			}
			got := ParseNVLink(sample(t, path))
			if len(got) != *want.GPUs {
				t.Fatalf("%d GPUs, want %d", len(got), *want.GPUs)
			}
			for i, report := range got {
				state := LinksListed
				if want.State != nil {
					state = want.State[i]
				}
				same(t, "state", report.State, state)
				if want.ActiveLinks[i] != nil {
					same(t, "active links", active(report.Links), *want.ActiveLinks[i])
				}
				same(t, "index", report.Index, i)
				if !strings.HasPrefix(report.UUID, "GPU-") || report.Name == "" || strings.Contains(report.Name, "UUID") {
					t.Errorf("name %q, UUID %q", report.Name, report.UUID)
				}
			}
		})
	}
}

func active(links []gpu.NVLink) int {
	n := 0
	for _, link := range links {
		if link.Active {
			n++
		}
	}
	return n
}

// The first four lines are of a public report of a V100 with two links down.
func TestALinkIsUpOnlyWithASpeed(t *testing.T) {
	got := ParseNVLink([]byte(`GPU 3: Tesla V100-SXM2-32GB (UUID: GPU-3)
	 Link 2: 25.781 GB/s
	 Link 3: <inactive>
	 Link 5: <inactive>
	 Link 6: 0 GB/s
	 Link 7: something new
	 Link 8: N/A
`))
	same(t, "links", got[0].Links, []gpu.NVLink{{Link: 2, Active: true}, {Link: 3}, {Link: 5}, {Link: 6}})
	same(t, "puzzles", got[0].Puzzle, []string{"Link 7: something new", "Link 8: N/A"})
}

func TestEveryListSampleIsReadRight(t *testing.T) {
	answers := rightAnswers(t)
	for name, want := range map[string]string{
		"L-h100.txt":         "NVIDIA H100 80GB HBM3:",
		"L-h200.txt":         "NVIDIA H200:",
		"L-l40s.txt":         "NVIDIA L40S:",
		"L-rtx4080s.txt":     "NVIDIA GeForce RTX 4080 SUPER:",
		"L-win-rtx2080s.txt": "NVIDIA GeForce RTX 2080 SUPER:",
		"L-h100-mig.txt":     "NVIDIA H100 80GB HBM3: 3g.40gb 2g.20gb 1g.10gb 1g.10gb",
		"L-h200-mig.txt":     "NVIDIA H200: 1c.3g.71gb 2c.3g.71gb 2g.35gb 1g.18gb 1g.18gb",
	} {
		t.Run(name, func(t *testing.T) {
			list := ParseList(sample(t, "nvidia-smi/"+name))
			if len(list) != 1 {
				t.Fatalf("%d GPUs", len(list))
			}
			card := list[0]
			got := card.Name + ":"
			for i, mig := range card.MIG {
				got += " " + mig.Profile
				same(t, "MIG index", mig.Index, i)
				if !strings.HasPrefix(mig.UUID, "MIG-0000000") {
					t.Errorf("MIG UUID %q", mig.UUID)
				}
			}
			same(t, "names", got, want)
			same(t, "index", card.Index, 0)
			same(t, "UUID", card.UUID, "GPU-00000000-0000-0000-0000-000000000000")
			if right, known := answers[name]; known {
				same(t, "MIG devices", len(card.MIG), *right.MIGDevices)
			}
		})
	}
	for _, path := range samples(t, "nvidia-smi/L-*") {
		if len(ParseList(sample(t, path))) != 1 {
			t.Errorf("%s: not one GPU", path)
		}
	}
}

func TestOldNamesOfMIGDevicesAreKept(t *testing.T) {
	list := ParseList([]byte("GPU 0: A100-SXM4-40GB (UUID: GPU-1)\r\n  MIG 1g.5gb+me   Device 10: (UUID: MIG-GPU-1/7/0)\r\n"))
	same(t, "MIG", list[0].MIG, []ListedMIG{{"1g.5gb+me", 10, "MIG-GPU-1/7/0"}})
}

func TestEveryFailureIsClassified(t *testing.T) {
	answers := rightAnswers(t)
	for _, path := range samples(t, "nvidia-smi/fail-*") {
		t.Run(path, func(t *testing.T) {
			want, known := answers[filepath.Base(path)]
			if !known {
				t.Fatal("no right answer")
			}
			text := sample(t, path)
			failures := ParseFailures(text)
			if len(failures) != 1 {
				t.Fatalf("failures %v", failures)
			}
			got := failures[0]
			pci, _ := gpu.SysfsPCI(want.BusID)
			same(t, "class", got.Class, want.Class)
			same(t, "PCI", got.PCI, pci)
			if (got.GPU == nil) != (want.GPU == nil) || got.GPU != nil && *got.GPU != *want.GPU {
				t.Errorf("GPU %v, want %v", got.GPU, want.GPU)
			}
			if said := got.Error(); !strings.HasPrefix(said, meanings[want.Class]) || !strings.Contains(said, got.Text[:6]) {
				t.Errorf("error %q", said)
			}
			if rows := strings.Split(strings.TrimSpace(string(text)), "\n"); want.GoodRows != nil {
				rows = slices.DeleteFunc(rows, func(row string) bool { return row == got.Text })
				same(t, "rows that are left", len(rows), len(want.GoodRows))
			}
		})
	}
}

// Wordings of public reports and of the program itself that no sample has.
func TestOtherWordingsAreClassified(t *testing.T) {
	for text, want := range map[string]string{
		"Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error":      "gpu.lost 3 0000:5f:00.0",
		"Unable to determine the device handle for GPU0000:20:00.0: Unknown Error":         "gpu.lost - 0000:20:00.0",
		"Unable to determine the device handle for GPU2: Unknown Error":                    "gpu.lost 2 ",
		"Unable to determine the device handle for GPU 0000:01:00.0: Not Found":            "gpu.unknown - 0000:01:00.0",
		"Unable to determine the device handle for GPU1: 0000:07:00.0: GPU requires reset": "gpu.needs_reset 1 0000:07:00.0",
		"NVML: GPU requires reset":                                                              "gpu.needs_reset - ",
		"WARNING: infoROM is corrupted at gpu 0000:0B:00.0":                                     "gpu.inforom - 0000:0b:00.0",
		"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.":                      "driver.library - ",
		"Failed to initialize NVML: Driver Not Loaded":                                          "driver.missing - ",
		"Failed to initialize NVML: GPU access blocked by the operating system":                 "driver.permission - ",
		"Failed to initialize NVML: Something New":                                              "driver.unknown - ",
		"No devices were found.":                                                                "no_gpu - ",
		"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.":          "query.option_unknown - ",
		"0, NVIDIA GeForce RTX 5070 Ti, 300.00 W, 300.00 W":                                     "",
		"GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)":                   "",
		"NVML: Unable to retrieve NVLink information as all links are inActive":                 "",
		"<product_name>Unable to determine the device handle for GPU2: Unknown Error":           "",
		"Nvlink queries are not supported for Devices in MIG mode":                              "",
		strings.Repeat("Unable to determine the device handle for GPU2: Unknown Error ", 10000): "gpu.lost 2 ",
	} {
		got := ""
		for _, f := range ParseFailures([]byte(text)) {
			index := "-"
			if f.GPU != nil {
				index = string(rune('0' + *f.GPU))
			}
			got += f.Class + " " + index + " " + f.PCI
		}
		if got != want {
			t.Errorf("%.90q: %q, want %q", text, got, want)
		}
	}
}

func TestEachClassHasWords(t *testing.T) {
	for _, s := range sentences {
		if meanings[s.class] == "" {
			t.Errorf("%s has no words", s.class)
		}
	}
	for status := range 256 {
		if err := ExitFailure(status); (err == nil) != (status == 0) || err != nil && err.Error() == "" {
			t.Errorf("status %d: %v", status, err)
		}
	}
}
