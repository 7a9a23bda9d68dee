package nvidiasmi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

// parsed reads a sample that must be whole.
func parsed(t testing.TB, path string) *Log {
	t.Helper()
	text := sample(t, path)
	if strings.HasSuffix(path, ".txt") {
		text = asXML(text)
	}
	log, err := ParseXML(text)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

const mib = 1 << 20

// rightGPUs were read from the files by eye; "-" is nil. Columns: PCI, name, UUID's first
// group, driver, CUDA; PCIe generation/most and width/most; memory total, used, reserved
// in MiB; compute mode, persistence; MIG mode/pending and number of devices; ECC mode,
// uncorrected volatile/aggregate/SRAM; remapped corrected/uncorrected/pending/failed;
// retired single/double/pending; throttled; recovery; fabric; processes.
var rightGPUs = map[string]string{
	"xml-a100-sxm4-40gb-mig-dtd11-driver510.xml": `0000:00:04.0|NVIDIA A100-SXM4-40GB|00000002|510.47.03|11.6|4/4 16/16|40960 38 605|default false|true/true 2|true -/0/-|-/-/-/-|-/-/-|[]|-|-|`,
	"xml-a100-sxm4-80gb-mig-dtd12-driver535.xml": `0000:01:00.0|NVIDIA A100-SXM4-80GB|00000001|535.54.03|12.2|4/4 16/16|81920 50 869|default false|true/true 4|true 0/0/0|-/-/-/-|-/-/-|[]|-|-|`,
	"xml-a10g-process-dtd11-driver515.xml":       `0000:00:1e.0|NVIDIA A10G|00000003|515.105.01|11.7|1/4 8/16|23028 22 435|default false|-/- 0|true 0/0/0|0/0/false/false|-/-/-|[]|-|-|725 graphics 22 /usr/lib/xorg/Xorg`,
	"xml-gtx1070ti-dtd10-minimal.xml":            `0000:01:00.0|GeForce GTX 1070 Ti|00000006|-|-|1/- 16/-|4096 42 -|default -|-/- -|- -/-/-|-/-/-/-|-/-/-|-|-|-|-`,
	"xml-gtx1660ti-nodoctype-driver418.xml":      `0000:43:00.0|Graphics Device|00000007|418.43|10.1|1/3 16/16|5912 0 -|default false|-/- -|- -/-/-|-/-/-/-|-/-/-|[]|-|-|`,
	"xml-p100-retiredpages-dtd11-driver510.xml":  `0000:00:04.0|Tesla P100-PCIE-16GB|00000005|510.47.03|11.6|3/3 16/16|16384 0 103|default false|-/- 0|true 0/0/-|-/-/-/-|0/0/false|[]|-|-|`,
	"xml-rtx3080-dtd13-driver595.xml":            `0000:0c:00.0|NVIDIA GeForce RTX 3080|0000000b|595.58.03|13.2|4/4 16/16|10240 9184 397|default false|-/- 0|- -/-/-|-/-/-/-|-/-/-|[]|none|-|`,
	"xml-rtx4000ada-4process-dtd13-driver595.xml": `0000:06:00.0|NVIDIA RTX 4000 SFF Ada Generation|00000009|595.84|13.2|1/4 16/16|20475 3534 460|default true|-/- 0|false -/-/-|0/0/false/false|-/-/-|[]|none|-|` +
		`1842 graphics 410 cosmic-comp, 3190 graphics 451 /usr/bin/code, 4937 compute 160 python, 34626 both 183 /usr/lib/chromium/chromium`,
	"q-load-h100.txt":     `0000:00:09.0|NVIDIA H100 80GB HBM3|00000000|590.48.01|13.1|5/5 16/16|81559 19818 479|default true|false/false 0|true 0/0/0|0/0/false/false|-/-/-|[]|none|completed|11327 compute 2566 /root/tools/memhog, 11328 compute 1542 /root/tools/memhog, 11345 compute 15690 ./gpu_burn`,
	"q-load-h100-mig.txt": `0000:00:09.0|NVIDIA H100 80GB HBM3|00000000|590.48.01|13.1|5/5 16/16|81559 11125 479|default true|true/true 4|true 0/0/0|-/-/-/-|-/-/-|[]|none|completed|21180 compute 2296 /root/tools/memhog GI 2 CI 0, 21181 compute 1272 /root/tools/memhog GI 2 CI 0, 21198 compute 7484 ./gpu_burn GI 2 CI 0`,
	"q-load-h200.txt":     `0000:83:00.0|NVIDIA H200|00000000|590.48.01|13.1|5/5 16/16|143771 32362 614|default true|false/false 0|true 0/0/0|0/0/false/false|-/-/-|[]|none|completed|10291 compute 2566 /root/tools/memhog, 10293 compute 1542 /root/tools/memhog, 10309 compute 28234 ./gpu_burn`,
	"q-load-l40s.txt":     `0000:01:00.0|NVIDIA L40S|00000000|595.80|13.2|4/4 16/16|46068 1235 609|default false|-/- 0|true 0/0/0|0/0/false/false|-/-/-|[]|none|-|20037 compute 538 ffmpeg, 20038 compute 681 ffmpeg`,
}

// row writes what was read as rightGPUs has it.
func row(log *Log, g gpu.GPU) string {
	var processes []string
	for _, p := range g.Processes {
		text := fmt.Sprintf("%d %s %s %s", p.PID, p.Kind, mibs(p.Memory), p.Name)
		if p.GI != nil {
			text += fmt.Sprintf(" GI %d CI %d", *p.GI, *p.CI)
		}
		processes = append(processes, text)
	}
	list := strings.Join(processes, ", ")
	if g.Processes == nil {
		list = "-"
	}
	throttled, devices := fmt.Sprint(g.Throttled), fmt.Sprint(len(g.MIG.Instances))
	if g.Throttled == nil {
		throttled = "-"
	}
	if g.MIG.Instances == nil {
		devices = "-"
	}
	return strings.Join([]string{
		g.PCI, g.Name, strings.Split(g.UUID+"-", "-")[1], show(log.Driver), show(log.CUDA),
		fmt.Sprintf("%s/%s %s/%s", show(g.PCIe.Generation), show(g.PCIe.GenerationMax), show(g.PCIe.Width), show(g.PCIe.WidthMax)),
		fmt.Sprintf("%s %s %s", mibs(g.Memory.Total), mibs(g.Memory.Used), mibs(g.Memory.Reserved)),
		show(g.ComputeMode) + " " + show(g.Persistence),
		fmt.Sprintf("%s/%s %s", show(g.MIG.Enabled), show(g.MIG.Pending), devices),
		fmt.Sprintf("%s %s/%s/%s", show(g.ECC.Enabled), show(g.ECC.Volatile), show(g.ECC.Aggregate), show(g.ECC.SRAMVolatile)),
		fmt.Sprintf("%s/%s/%s/%s", show(g.Remapped.Correctable), show(g.Remapped.Uncorrectable), show(g.Remapped.Pending), show(g.Remapped.Failed)),
		fmt.Sprintf("%s/%s/%s", show(g.Retired.SingleBit), show(g.Retired.DoubleBit), show(g.Retired.Pending)),
		throttled, show(g.Recovery), show(g.Fabric), list,
	}, "|")
}

func show[T any](value *T) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprint(*value)
}

func mibs(bytes *uint64) string {
	if bytes == nil {
		return "-"
	}
	return fmt.Sprint(*bytes / mib)
}

func TestEveryXMLSampleIsReadRight(t *testing.T) {
	paths := append(samples(t, "nvidia-smi/xml-*"), samples(t, "nvidia-smi/q-load-*")...)
	if len(paths) != len(rightGPUs) {
		t.Errorf("%d samples, %d right answers", len(paths), len(rightGPUs))
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			log := parsed(t, path)
			if len(log.GPUs) != 1 {
				t.Fatalf("%d GPUs", len(log.GPUs))
			}
			card := log.GPUs[0]
			if got, want := row(log, card), rightGPUs[filepath.Base(path)]; got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			same(t, "state", card.State, gpu.StateOK)
			for _, name := range card.Unknown() {
				if card.Why[name] == "" && name != "nvlinks" {
					t.Errorf("%s is nil without a reason", name)
				}
			}
			for name := range card.Why {
				if !slices.Contains(card.Unknown(), name) {
					t.Errorf("%s has a value and a reason why not: %s", name, card.Why[name])
				}
			}
		})
	}
}

// Memory is total = used + free + reserved, less what three roundings take away.
func TestMemoryAddsUp(t *testing.T) {
	for _, path := range append(samples(t, "nvidia-smi/xml-*"), samples(t, "nvidia-smi/q-load-*")...) {
		text := sample(t, path)
		if strings.HasSuffix(path, ".txt") {
			text = asXML(text)
		}
		memory := parsed(t, path).GPUs[0].Memory
		_, after, found := bytes.Cut(text[bytes.LastIndex(text, []byte("<fb_memory_usage>")):], []byte("<free>"))
		if !found {
			continue // not in the list of names for -q
		}
		var free uint64
		fmt.Sscan(string(after), &free)
		sum := *memory.Used/mib + free
		if memory.Reserved != nil {
			sum += *memory.Reserved / mib
		}
		if total := *memory.Total / mib; max(total, sum)-min(total, sum) > 2 {
			t.Errorf("%s: %d MiB in all, parts %d", path, total, sum)
		}
	}
}

func TestMIGDevicesOfXMLHaveInstanceAndMemory(t *testing.T) {
	for name, want := range map[string]string{
		"xml-a100-sxm4-40gb-mig-dtd11-driver510.xml": "0: 1/0 19/19968, 1: 2/0 19/19968",
		"xml-a100-sxm4-80gb-mig-dtd12-driver535.xml": "0: 3/0 12/19968, 1: 4/0 12/19968, 2: 5/0 12/19968, 3: 6/0 12/19968",
		"q-load-h100-mig.txt":                        "0: 2/0 11091/40448, 1: 3/0 17/20096, 2: 9/0 9/9984, 3: 10/0 9/9984",
	} {
		var got []string
		for _, mig := range parsed(t, "nvidia-smi/"+name).GPUs[0].MIG.Instances {
			got = append(got, fmt.Sprintf("%d: %s/%s %s/%s", mig.Index, show(mig.GI), show(mig.CI), mibs(mig.Used), mibs(mig.Memory)))
		}
		same(t, name, strings.Join(got, ", "), want)
	}
}

// The --query-gpu captures were taken from the same machines in the same second.
func TestQueryCapturesOfTheSameMachineAgree(t *testing.T) {
	for _, machine := range []string{"h100", "h100-mig", "l40s"} {
		t.Run(machine, func(t *testing.T) {
			fields := strings.Fields(string(sample(t, "nvidia-smi/query-gpu-all-"+machine+".fields.txt")))
			rows := strings.Split(string(sample(t, "nvidia-smi/query-gpu-all-"+machine+".csv")), "\n")
			cells := strings.Split(strings.TrimSpace(rows[1]), ", ")
			if len(cells) != len(fields) {
				t.Fatalf("%d cells, %d fields", len(cells), len(fields))
			}
			log := parsed(t, "nvidia-smi/q-load-"+machine+".txt")
			g := log.GPUs[0]
			got := map[string]string{
				"driver_version": show(log.Driver), "name": g.Name, "uuid": g.UUID, "pci.bus_id": g.PCI,
				"memory.total": mibs(g.Memory.Total), "memory.reserved": mibs(g.Memory.Reserved), "memory.used": mibs(g.Memory.Used),
				"compute_mode": show(g.ComputeMode), "persistence_mode": show(g.Persistence),
				"mig.mode.current": show(g.MIG.Enabled), "mig.mode.pending": show(g.MIG.Pending),
				"ecc.mode.current": show(g.ECC.Enabled), "ecc.errors.uncorrected.volatile.total": show(g.ECC.Volatile),
				"ecc.errors.uncorrected.aggregate.total": show(g.ECC.Aggregate), "ecc.errors.uncorrected.volatile.sram": show(g.ECC.SRAMVolatile),
				"pcie.link.gen.current": show(g.PCIe.Generation), "pcie.link.gen.max": show(g.PCIe.GenerationMax),
				"pcie.link.width.current": show(g.PCIe.Width), "pcie.link.width.max": show(g.PCIe.WidthMax),
				"fabric.state": show(g.Fabric), "gpu_recovery_action": show(g.Recovery),
				"remapped_rows.correctable": show(g.Remapped.Correctable), "remapped_rows.uncorrectable": show(g.Remapped.Uncorrectable),
				"remapped_rows.pending": show(g.Remapped.Pending), "remapped_rows.failure": show(g.Remapped.Failed),
				"retired_pages.single_bit_ecc.count": show(g.Retired.SingleBit), "retired_pages.pending": show(g.Retired.Pending),
			}
			for i, field := range fields {
				if value, known := got[field]; known {
					same(t, field, value, fromCell(cells[i]))
					delete(got, field)
				}
			}
			if len(got) > 0 {
				t.Errorf("not among the fields: %v", slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

// fromCell writes a cell of the CSV as the test shows values.
func fromCell(cell string) string {
	cell = strings.TrimSuffix(cell, " MiB")
	if pci, is := gpu.SysfsPCI(cell); is {
		return pci
	}
	switch cell {
	case "N/A", "[N/A]":
		return "-"
	case "Enabled", "Yes":
		return "true"
	case "Disabled", "No":
		return "false"
	case "Default", "Completed", "None":
		return strings.ToLower(cell)
	}
	return cell
}

func TestProcessCapturesOfTheSameMachineAgree(t *testing.T) {
	for _, machine := range []string{"h100", "h100-mig", "l40s"} {
		var want []string
		for _, line := range strings.Split(strings.TrimSpace(string(sample(t, "nvidia-smi/query-compute-apps-"+machine+".csv"))), "\n")[1:] {
			cells := strings.Split(line, ", ")
			want = append(want, strings.Join(cells[len(cells)-3:], " "))
		}
		var got []string
		for _, p := range parsed(t, "nvidia-smi/q-load-"+machine+".txt").GPUs[0].Processes {
			got = append(got, fmt.Sprintf("%d %s %s MiB", p.PID, p.Name, mibs(p.Memory)))
		}
		same(t, machine, got, want)
	}
}

func TestMemoryFaultsOfExcerptsAreRead(t *testing.T) {
	answers := rightAnswers(t)
	remap := parsed(t, "nvidia-smi/q-a100-remap-pending-excerpt.txt").GPUs[0]
	want := answers["q-a100-remap-pending-excerpt.txt"]
	same(t, "pending", *remap.Remapped.Pending, *want.RemapPending)
	same(t, "failed", *remap.Remapped.Failed, *want.RemapFailed)
	same(t, "correctable", *remap.Remapped.Correctable, *want.RemapCorr)
	same(t, "uncorrectable", *remap.Remapped.Uncorrectable, *want.RemapUncorr)

	sram := parsed(t, "nvidia-smi/q-a100-sram-uncorrectable-excerpt.txt").GPUs[0]
	same(t, "SRAM", *sram.ECC.SRAMVolatile, *answers["q-a100-sram-uncorrectable-excerpt.txt"].SRAMVolatile)
	same(t, "all since start", *sram.ECC.Volatile, uint64(1))
	same(t, "all ever", *sram.ECC.Aggregate, uint64(5))

	pages := answers["q-page-retirement-v100-8gpu-bad.txt"]
	gpus := parsed(t, "nvidia-smi/q-page-retirement-v100-8gpu-bad.txt").GPUs
	same(t, "GPUs", len(gpus), len(pages.Retired))
	for i, card := range gpus {
		same(t, "pages", *card.Retired.SingleBit+*card.Retired.DoubleBit, pages.Retired[i])
		same(t, "pending", *card.Retired.Pending, pages.Pending[i])
		same(t, "PCI", card.PCI, fmt.Sprintf("%04x:00:00.0", i+1))
	}
}

// changed is a GPU of a sample with one element changed; no public XML has these values.
func changed(t *testing.T, name string, change ...string) gpu.GPU {
	t.Helper()
	text := string(sample(t, "nvidia-smi/"+name))
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(text, change[i]) {
			t.Fatalf("%s is not in %s", change[i], name)
		}
		text = strings.Replace(text, change[i], change[i+1], 1)
	}
	log, err := ParseXML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return log.GPUs[0]
}

const (
	new595 = "xml-rtx4000ada-4process-dtd13-driver595.xml"
	mig535 = "xml-a100-sxm4-80gb-mig-dtd12-driver535.xml"
	old515 = "xml-a10g-process-dtd11-driver515.xml"
)

func TestValuesThatNoSampleHas(t *testing.T) {
	exclusive := changed(t, new595, "<compute_mode>Default", "<compute_mode>Exclusive_Process")
	same(t, "compute mode", *exclusive.ComputeMode, "exclusive_process")
	prohibited := changed(t, new595, "<compute_mode>Default", "<compute_mode>Prohibited")
	same(t, "compute mode", *prohibited.ComputeMode, "prohibited")
	pending := changed(t, new595, "<remapped_row_pending>No", "<remapped_row_pending>Yes", "<remapped_row_failure>No", "<remapped_row_failure>Yes")
	same(t, "remapping", []bool{*pending.Remapped.Pending, *pending.Remapped.Failed}, []bool{true, true})
	ecc := changed(t, new595, "<sram_uncorrectable_parity>N/A", "<sram_uncorrectable_parity>1", "<sram_uncorrectable_secded>N/A", "<sram_uncorrectable_secded>2", "<dram_uncorrectable>N/A", "<dram_uncorrectable>4")
	same(t, "errors since start", *ecc.ECC.Volatile, uint64(7))
	same(t, "of SRAM", *ecc.ECC.SRAMVolatile, uint64(3))
	mps := changed(t, new595, "<type>C</type>", "<type>M+C</type>")
	same(t, "kind", mps.Processes[2].Kind, "mps")
	same(t, "MIG to come", *changed(t, mig535, "<pending_mig>Enabled", "<pending_mig>Disabled").MIG.Pending, false)
}

func TestThrottleReasonsHaveOldAndNewNames(t *testing.T) {
	now := changed(t, new595,
		"<clocks_event_reason_sw_power_cap>Not Active", "<clocks_event_reason_sw_power_cap>Active",
		"<clocks_event_reason_hw_power_brake_slowdown>Not Active", "<clocks_event_reason_hw_power_brake_slowdown>Active")
	same(t, "driver 595", now.Throttled, []string{"hw_power_brake", "sw_power_cap"})
	old := changed(t, old515,
		"<clocks_throttle_reason_hw_slowdown>Not Active", "<clocks_throttle_reason_hw_slowdown>Active",
		"<clocks_throttle_reason_hw_thermal_slowdown>Not Active", "<clocks_throttle_reason_hw_thermal_slowdown>Active",
		"<clocks_throttle_reason_sw_thermal_slowdown>Not Active", "<clocks_throttle_reason_sw_thermal_slowdown>Active")
	same(t, "driver 515", old.Throttled, []string{"hw_slowdown", "hw_thermal", "sw_thermal"})
}

// Reset and Reboot are what nvidia-smi of drivers 570 to 595 writes in public reports.
func TestRecoveryActionsAreThoseOfTheDriver(t *testing.T) {
	for said, want := range map[string]string{
		"None": "none", "Reset": "gpu_reset", "GPU Reset": "gpu_reset", "Reboot": "node_reboot", "Node Reboot": "node_reboot",
		"Drain P2P": "drain_p2p", "Drain and Reset": "drain_and_reset", "Bus Reset": "bus_reset",
		"N/A": "-", "[Unknown Error]": "-", "Requested functionality has been deprecated": "-",
	} {
		card := changed(t, new595, "<gpu_recovery_action>None", "<gpu_recovery_action>"+said)
		same(t, said, show(card.Recovery), want)
	}
	for _, test := range []struct{ reset, drain, want string }{
		{"No", "No", "-"}, {"Yes", "No", "gpu_reset"}, {"No", "Yes", "drain_and_reset"}, {"N/A", "N/A", "-"},
	} {
		card := changed(t, mig535, "<reset_required>No", "<reset_required>"+test.reset, "<drain_and_reset_recommended>No", "<drain_and_reset_recommended>"+test.drain)
		same(t, "before recovery actions: "+test.reset+" "+test.drain, show(card.Recovery), test.want)
	}
}

func TestFabricThatCompletedWithAnErrorHasFailed(t *testing.T) {
	for _, test := range []struct{ state, status, want string }{
		{"Completed", "Success", "completed"}, {"Completed", "N/A", "completed"}, {"Completed", "Insufficient Resources", "failed"},
		{"In Progress", "N/A", "in_progress"}, {"Not Started", "N/A", "not_started"}, {"Not Supported", "N/A", "-"},
	} {
		card := changed(t, mig535, "<state>N/A", "<state>"+test.state, "<status>N/A", "<status>"+test.status)
		same(t, test.state+" "+test.status, show(card.Fabric), test.want)
	}
}

// nothings are the spellings of "no value"; none may become 0, false or a name.
var nothings = []string{
	"N/A", "[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "Unknown Error", "ERR!", "",
	"[GPU is lost]", "GPU is lost.  Reboot the system to recover this GPU", "[GPU requires reset]",
	"Requested functionality has been deprecated", "[Requested functionality has been deprecated]", "-1", "12 %", "9999999999999999999999 MiB",
}

func TestNoSpellingOfNothingBecomesAValue(t *testing.T) {
	for _, nothing := range nothings {
		for _, name := range []string{new595, mig535, old515, "xml-p100-retiredpages-dtd11-driver510.xml"} {
			text := everyValue(sample(t, "nvidia-smi/"+name), nothing)
			log, err := ParseXML(text)
			if err != nil {
				t.Fatalf("%s with %q: %v", name, nothing, err)
			}
			card := log.GPUs[0]
			card.Why, card.State, card.PCI = nil, "", ""
			if nothing == "-1" || nothing == "12 %" || strings.HasPrefix(nothing, "9") {
				card.ComputeMode, card.Recovery, card.Fabric, card.Name, card.UUID = nil, nil, nil, "", ""
			}
			if len(card.MIG.Instances)+len(card.Processes) > 0 {
				t.Errorf("%s with %q: %v %v", name, nothing, card.MIG.Instances, card.Processes)
			}
			card.MIG.Instances, card.Processes = nil, nil
			got, _ := json.Marshal(card)
			want, _ := json.Marshal(gpu.GPU{Index: -1})
			if !bytes.Equal(got, want) {
				t.Errorf("%s with %q:\n got %s\nwant %s", name, nothing, got, want)
			}
		}
	}
}

// everyValue puts a text in place of each value.
func everyValue(text []byte, value string) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(text)) {
		open, rest, is := strings.Cut(line, ">")
		if _, end, closes := strings.Cut(rest, "</"); is && closes {
			line = open + ">" + value + "</" + end
		}
		b.WriteString(line)
	}
	return b.Bytes()
}

func TestListsThatCannotBeReadAreNotEmpty(t *testing.T) {
	card := changed(t, new595, "<processes>", "<processes>N/A</processes><others>", "</processes>\n\t\t<accounted", "</others>\n\t\t<accounted", "None\n", "[Unknown Error]\n")
	if card.Processes != nil || card.Why["processes"] == "" {
		t.Errorf("processes %v: %q", card.Processes, card.Why["processes"])
	}
	if card.MIG.Instances != nil || card.Why["mig.instances"] == "" {
		t.Errorf("MIG devices %v: %q", card.MIG.Instances, card.Why["mig.instances"])
	}
}

func TestStateIsSeenAmongTheValues(t *testing.T) {
	for _, test := range []struct{ from, to, want string }{
		{"<fan_speed>30 %", "<fan_speed>[GPU is lost]", gpu.StateLost},
		{"<fan_speed>30 %", "<fan_speed>[GPU requires reset]", gpu.StateNeedsReset},
		{"<fan_speed>30 %", "<fan_speed>[Unknown Error]", gpu.StateOK},
		{"<total>20475 MiB", "<total>Unknown Error", gpu.StateUnknown},
	} {
		card := changed(t, new595, test.from, test.to)
		same(t, test.to, card.State, test.want)
		same(t, test.to+" has a reason", card.Why["state"] != "", test.want != gpu.StateOK)
	}
}

func TestSentencesAndDamageAroundTheXMLDoNoHarm(t *testing.T) {
	whole := sample(t, "nvidia-smi/"+new595)
	want := parsed(t, "nvidia-smi/"+new595)
	lost := []byte("Unable to determine the device handle for GPU1: 0000:07:00.0: Unknown Error\n")
	for name, text := range map[string][]byte{
		"before":            slices.Concat(lost, whole),
		"after":             slices.Concat(whole, lost),
		"within":            bytes.Replace(whole, []byte("<attached_gpus>"), slices.Concat(lost, []byte("<attached_gpus>")), 1),
		"declared encoding": bytes.Replace(whole, []byte(`version="1.0"`), []byte(`version="1.0" encoding="ISO-8859-1"`), 1),
		"CR LF":             bytes.ReplaceAll(whole, []byte("\n"), []byte("\r\n")),
		"a DTD at a server": bytes.Replace(whole, []byte(`SYSTEM "`), []byte(`SYSTEM "http://192.0.2.1/`), 1),
	} {
		t.Run(name, func(t *testing.T) {
			log, err := ParseXML(text)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "GPU", row(log, log.GPUs[0]), row(want, want.GPUs[0]))
		})
	}
	odd := changed(t, new595, "<process_name>python</process_name>", "<process_name>[py\x01\xff] <defunct> & more</process_name>")
	if len(odd.Processes) != 4 || odd.Processes[3].PID != 34626 {
		t.Errorf("processes %+v", odd.Processes)
	}
}

func TestACutXMLKeepsTheGPUsThatCameWhole(t *testing.T) {
	text := sample(t, "nvidia-smi/"+new595)
	begin, end := bytes.Index(text, []byte("<gpu id")), bytes.Index(text, []byte("</gpu>"))+len("</gpu>")
	two := slices.Concat(text[:begin], text[begin:end], text[begin:end-500])
	log, err := ParseXML(two)
	if err == nil || len(log.GPUs) != 1 || show(log.Driver) != "595.84" {
		t.Errorf("%d GPUs, driver %s, error %v", len(log.GPUs), show(log.Driver), err)
	}
	if _, err := ParseXML([]byte("No devices were found\n")); err == nil {
		t.Error("XML in a sentence")
	}
}
