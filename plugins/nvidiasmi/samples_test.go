package nvidiasmi

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

// sample reads a recorded output; testdata holds two folders of them, each with an
// INDEX.md that tells where they are from and expected.json with right answers.
func sample(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// samples lists the files of a folder whose names match.
func samples(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no samples %s: %v", pattern, err)
	}
	for i, path := range paths {
		paths[i] = strings.TrimPrefix(path, "testdata/")
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

// unread are samples of commands that this prober does not run. What some of them say is
// used as right answers for the others.
var unread = map[string]string{
	"INDEX.md":                       "about the samples",
	"expected.json":                  "right answers",
	"help-query-gpu-h100.txt":        "help",
	"lspci-nn-a100-8gpu-6nvswitch":   "lspci",
	"pmon-h100.txt":                  "pmon",
	"table-load-":                    "plain nvidia-smi; its numbers are those of -q",
	"topo-p2p-r-":                    "topo -p2p r",
	"query-gpu-all-rtx4080s":         "--query-gpu; no other sample of the machine but -L and nvlink -s",
	"query-gpu-l4-noheader-na":       "--query-gpu; no other sample of the machine",
	"query-retired-pages-h100.csv":   "--query-retired-pages",
	"query-gpu-all-h100":             "right answers for q-load-h100*.txt",
	"query-gpu-all-l40s":             "right answers for q-load-l40s.txt",
	"query-compute-apps-":            "right answers for the processes",
	"q-page-retirement-v100-8gpu-go": "as -bad, without anything bad",
}

func TestNoSampleIsForgotten(t *testing.T) {
	read := []string{"xml-", "L-", "nvlink-s-", "fail-", "q-load-", "q-a100-", "q-page-retirement-"}
	for _, path := range samples(t, "nvidia-smi/*") {
		name := filepath.Base(path)
		known := slices.ContainsFunc(read, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		for prefix := range unread {
			known = known || strings.HasPrefix(name, prefix)
		}
		if !known {
			t.Errorf("%s is read by no test", name)
		}
	}
	for name := range rightAnswers(t) {
		if _, err := os.Stat(filepath.Join("testdata/nvidia-smi", name)); err != nil {
			t.Errorf("expected.json knows %s, and it is not there", name)
		}
	}
}

// asXML makes the XML of a sample of nvidia-smi -q. There is no XML of an H100 or H200 in
// public; the same machines show all the same values in this form, under the names of
// textNames. Lines under other names are left out.
func asXML(text []byte) []byte {
	root := &element{XMLName: xml.Name{Local: "nvidia_smi_log"}}
	var gpu *element
	var path []string
	begin := func() *element {
		gpu = &element{XMLName: xml.Name{Local: "gpu"}, Kids: []*element{{XMLName: xml.Name{Local: "processes"}}, {XMLName: xml.Name{Local: "mig_devices"}}}}
		root.Kids = append(root.Kids, gpu)
		return gpu
	}
	for line := range strings.Lines(string(text)) {
		content := strings.TrimSpace(line)
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 4
		key, value, _ := strings.Cut(content, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if depth == 0 {
			if name := textNames[key]; name != "" {
				root.Kids = append(root.Kids, &element{XMLName: xml.Name{Local: name}, Text: value})
			} else if id, is := strings.CutPrefix(content, "GPU "); is {
				begin().ID = id
			}
			continue
		}
		if gpu == nil {
			begin()
		}
		path = append(path[:min(depth-1, len(path))], key)
		put(gpu, strings.Join(path, "/"), value)
	}
	return []byte("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n" + markup(root))
}

// put writes one value at its place in the XML.
func put(gpu *element, path, value string) {
	switch {
	case path == "MIG Device":
		list := gpu.kid("mig_devices")
		list.Kids = append(list.Kids, &element{XMLName: xml.Name{Local: "mig_device"}})
	case path == "Processes/GPU instance ID":
		list := gpu.kid("processes")
		list.Kids = append(list.Kids, &element{XMLName: xml.Name{Local: "process_info"}})
	}
	name := textNames[path]
	if name == "" || value == "" {
		return
	}
	at := gpu
	for part := range strings.SplitSeq(name, "/") {
		var next *element
		for _, kid := range at.Kids { // the last of that name, for lists
			if kid.XMLName.Local == part {
				next = kid
			}
		}
		if next == nil {
			next = &element{XMLName: xml.Name{Local: part}}
			at.Kids = append(at.Kids, next)
		}
		at = next
	}
	at.Text = value
}

func markup(e *element) string {
	var b strings.Builder
	b.WriteString("<" + e.XMLName.Local)
	if e.ID != "" {
		b.WriteString(` id="` + e.ID + `"`)
	}
	b.WriteString(">")
	xml.EscapeText(&b, []byte(e.Text))
	for _, kid := range e.Kids {
		b.WriteString(markup(kid))
	}
	b.WriteString("</" + e.XMLName.Local + ">\n")
	return b.String()
}

// textNames are the elements that hold what nvidia-smi -q shows under these names.
var textNames = map[string]string{
	"Driver Version": "driver_version", "CUDA Version": "cuda_version", "Attached GPUs": "attached_gpus",
	"Product Name": "product_name", "GPU UUID": "uuid", "PCI/Bus Id": "pci/pci_bus_id",
	"PCI/GPU Link Info/PCIe Generation/Max":                    "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
	"PCI/GPU Link Info/PCIe Generation/Current":                "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
	"PCI/GPU Link Info/Link Width/Max":                         "pci/pci_gpu_link_info/link_widths/max_link_width",
	"PCI/GPU Link Info/Link Width/Current":                     "pci/pci_gpu_link_info/link_widths/current_link_width",
	"FB Memory Usage/Total":                                    "fb_memory_usage/total",
	"FB Memory Usage/Reserved":                                 "fb_memory_usage/reserved",
	"FB Memory Usage/Used":                                     "fb_memory_usage/used",
	"Compute Mode":                                             "compute_mode",
	"Persistence Mode":                                         "persistence_mode",
	"GPU Recovery Action":                                      "gpu_recovery_action",
	"MIG Mode/Current":                                         "mig_mode/current_mig",
	"MIG Mode/Pending":                                         "mig_mode/pending_mig",
	"MIG Device/Index":                                         "mig_devices/mig_device/index",
	"MIG Device/GPU Instance ID":                               "mig_devices/mig_device/gpu_instance_id",
	"MIG Device/Compute Instance ID":                           "mig_devices/mig_device/compute_instance_id",
	"MIG Device/Shared FB Memory Usage/Total":                  "mig_devices/mig_device/fb_memory_usage/total",
	"MIG Device/Shared FB Memory Usage/Used":                   "mig_devices/mig_device/fb_memory_usage/used",
	"ECC Mode/Current":                                         "ecc_mode/current_ecc",
	"ECC Errors/Volatile/SRAM Uncorrectable":                   "ecc_errors/volatile/sram_uncorrectable",
	"ECC Errors/Volatile/SRAM Uncorrectable Parity":            "ecc_errors/volatile/sram_uncorrectable_parity",
	"ECC Errors/Volatile/SRAM Uncorrectable SEC-DED":           "ecc_errors/volatile/sram_uncorrectable_secded",
	"ECC Errors/Volatile/DRAM Uncorrectable":                   "ecc_errors/volatile/dram_uncorrectable",
	"ECC Errors/Aggregate/SRAM Uncorrectable":                  "ecc_errors/aggregate/sram_uncorrectable",
	"ECC Errors/Aggregate/SRAM Uncorrectable Parity":           "ecc_errors/aggregate/sram_uncorrectable_parity",
	"ECC Errors/Aggregate/SRAM Uncorrectable SEC-DED":          "ecc_errors/aggregate/sram_uncorrectable_secded",
	"ECC Errors/Aggregate/DRAM Uncorrectable":                  "ecc_errors/aggregate/dram_uncorrectable",
	"Retired Pages/Single Bit ECC":                             "retired_pages/multiple_single_bit_retirement/retired_count",
	"Retired Pages/Double Bit ECC":                             "retired_pages/double_bit_retirement/retired_count",
	"Retired Pages/Pending Page Blacklist":                     "retired_pages/pending_blacklist",
	"Remapped Rows":                                            "remapped_rows",
	"Remapped Rows/Correctable Error":                          "remapped_rows/remapped_row_corr",
	"Remapped Rows/Uncorrectable Error":                        "remapped_rows/remapped_row_unc",
	"Remapped Rows/Pending":                                    "remapped_rows/remapped_row_pending",
	"Remapped Rows/Remapping Failure Occurred":                 "remapped_rows/remapped_row_failure",
	"Clocks Event Reasons/SW Power Cap":                        "clocks_event_reasons/clocks_event_reason_sw_power_cap",
	"Clocks Event Reasons/HW Slowdown":                         "clocks_event_reasons/clocks_event_reason_hw_slowdown",
	"Clocks Event Reasons/SW Thermal Slowdown":                 "clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown",
	"Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown":     "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
	"Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown": "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown",
	"Fabric/State":                                             "fabric/state",
	"Fabric/Status":                                            "fabric/status",
	"Processes/GPU instance ID":                                "processes/process_info/gpu_instance_id",
	"Processes/Compute instance ID":                            "processes/process_info/compute_instance_id",
	"Processes/Process ID":                                     "processes/process_info/pid",
	"Processes/Process ID/Type":                                "processes/process_info/type",
	"Processes/Process ID/Name":                                "processes/process_info/process_name",
	"Processes/Process ID/Used GPU Memory":                     "processes/process_info/used_memory",
}

// rightTable is what expected.json has of one topology sample, as far as it is used here.
type rightTable struct {
	Name       string
	Error      string
	GPUs       int
	HeaderGPUs int `json:"header_gpus"`
	Islands    [][]int
	Warnings   []string
	Truncated  bool
}

func rightTables(t testing.TB) []rightTable {
	var tables []rightTable
	expected(t, "topo/expected.json", &tables)
	return tables
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: %s, want %s", what, g, w)
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
