package nvidiasmi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Log is the answer of nvidia-smi -q -x: all that it tells of each GPU but the names of
// MIG devices and the links. The GPUs stand in its order, their indices are not told (-1).
type Log struct {
	Driver   *string
	CUDA     *string
	Attached *int // GPUs that the driver counts
	GPUs     []gpu.GPU
	Why      map[string]string
}

// ParseXML reads the answer of nvidia-smi -q -x. With an error the log holds what came
// before it.
func ParseXML(output []byte) (*Log, error) {
	begin := bytes.Index(output, []byte("<nvidia_smi_log"))
	if begin < 0 {
		return readLog(nil), errors.New("nvidia-smi -q -x shows no <nvidia_smi_log>")
	}
	kids, err := readTree(output[begin:])
	log := readLog(kids)
	if err != nil {
		return log, fmt.Errorf("nvidia-smi -q -x after %d GPUs: %w", len(log.GPUs), err)
	}
	return log, nil
}

func readLog(kids []*element) *Log {
	v := newValues(&element{Kids: kids}, "not in the output of nvidia-smi -q -x")
	log := &Log{
		Driver: v.version("driver", "driver_version"), CUDA: v.version("cuda", "cuda_version"),
		Attached: v.number("attached", "attached_gpus"), Why: v.why,
	}
	delete(v.why, "attached")
	for _, e := range kids {
		if e.XMLName.Local == "gpu" {
			log.GPUs = append(log.GPUs, readGPU(e, log.absence()))
		}
	}
	return log
}

// absence is the reason for elements that are not there.
func (l *Log) absence() string {
	if l.Driver == nil {
		return "nvidia-smi does not tell it"
	}
	return "nvidia-smi of driver " + *l.Driver + " does not tell it"
}

// readGPU reads one GPU. Old and new names of an element stand side by side; the first
// that is there counts.
func readGPU(e *element, absent string) gpu.GPU {
	v := newValues(e, absent)
	card := gpu.GPU{
		Index: -1,
		UUID:  v.optional("uuid"),
		Name:  v.optional("product_name"),
		State: v.state(),
		PCIe: gpu.PCIe{
			Generation:    v.number("pcie.generation", "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
			GenerationMax: v.number("pcie.generation_max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
			Width:         v.number("pcie.width", "pci/pci_gpu_link_info/link_widths/current_link_width"),
			WidthMax:      v.number("pcie.width_max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
		},
		Memory: gpu.Memory{
			Total:    v.bytes("memory.total", "fb_memory_usage/total"),
			Used:     v.bytes("memory.used", "fb_memory_usage/used"),
			Reserved: v.bytes("memory.reserved", "fb_memory_usage/reserved"),
		},
		Processes:   v.processes(),
		ComputeMode: v.word("compute_mode", "compute_mode"),
		MIG: gpu.MIG{
			Enabled:   v.yes("mig.enabled", "mig_mode/current_mig"),
			Pending:   v.yes("mig.pending", "mig_mode/pending_mig"),
			Instances: v.instances(),
		},
		ECC: gpu.ECC{
			Enabled:      v.yes("ecc.enabled", "ecc_mode/current_ecc"),
			Volatile:     v.sum("ecc.volatile_uncorrected", uncorrected("volatile")...),
			Aggregate:    v.sum("ecc.aggregate_uncorrected", uncorrected("aggregate")...),
			SRAMVolatile: v.sum("ecc.sram_volatile_uncorrected", sramUncorrected("volatile")...),
		},
		Remapped: gpu.Remapped{
			Correctable:   v.number("remapped.correctable", "remapped_rows/remapped_row_corr"),
			Uncorrectable: v.number("remapped.uncorrectable", "remapped_rows/remapped_row_unc"),
			Pending:       v.yes("remapped.pending", "remapped_rows/remapped_row_pending"),
			Failed:        v.yes("remapped.failed", "remapped_rows/remapped_row_failure"),
		},
		Retired: gpu.Retired{
			SingleBit: v.number("retired.single_bit", "retired_pages/multiple_single_bit_retirement/retired_count"),
			DoubleBit: v.number("retired.double_bit", "retired_pages/double_bit_retirement/retired_count"),
			Pending:   v.yes("retired.pending", "retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
		},
		Throttled:   v.throttled(),
		Recovery:    v.recovery(),
		Persistence: v.yes("persistence", "persistence_mode"),
		Fabric:      v.fabric(),
		Why:         v.why,
	}
	card.PCI, _ = gpu.SysfsPCI(v.optional("pci/pci_bus_id"))
	if card.PCI == "" {
		card.PCI, _ = gpu.SysfsPCI(e.ID)
	}
	return card
}

// uncorrected are the counters that add up to all uncorrected errors: of a chip generation
// and driver, only some are there.
func uncorrected(since string) []string {
	return append(sramUncorrected(since),
		"ecc_errors/"+since+"/dram_uncorrectable",
		"ecc_errors/"+since+"/double_bit/total") // Volta and older
}

func sramUncorrected(since string) []string {
	return []string{
		"ecc_errors/" + since + "/sram_uncorrectable",
		"ecc_errors/" + since + "/sram_uncorrectable_parity", // drivers since 550
		"ecc_errors/" + since + "/sram_uncorrectable_secded",
	}
}

// state looks at what the driver says in place of values.
func (v *values) state() string {
	state := gpu.StateOK
	v.e.walk(func(text string) {
		lower := strings.ToLower(bare(text))
		switch {
		case state == gpu.StateLost:
			return
		case strings.HasPrefix(lower, "gpu is lost"):
			state = gpu.StateLost
		case strings.HasPrefix(lower, "gpu requires reset"):
			state = gpu.StateNeedsReset
		default:
			return
		}
		v.says("state", text)
	})
	if state != gpu.StateOK {
		return state
	}
	for _, path := range []string{"uuid", "fb_memory_usage/total", "fb_memory_usage/used"} {
		if found := v.e.at(path); found != nil && isError(found.text()) {
			v.says("state", found.text())
			return gpu.StateUnknown
		}
	}
	return state
}

// recovery is the driver's recovery action. Drivers 535 to 565 tell instead whether a
// reset is required; that it is not does not mean that there is nothing to do.
func (v *values) recovery() *string {
	if action := v.word("recovery", "gpu_recovery_action"); action != nil {
		switch *action {
		case "reset":
			return new("gpu_reset")
		case "reboot":
			return new("node_reboot")
		}
		return action
	}
	if v.e.at("gpu_recovery_action") != nil {
		return nil
	}
	status := newValues(v.e.at("gpu_reset_status"), "")
	for _, action := range []struct{ element, name string }{
		{"reset_required", "gpu_reset"}, {"drain_and_reset_recommended", "drain_and_reset"},
	} {
		if gpu.IsTrue(status.yes("", action.element)) {
			delete(v.why, "recovery")
			return new(action.name)
		}
	}
	return nil
}

// fabric is the state of the registration with the fabric manager. "Completed" alone does
// not say how.
func (v *values) fabric() *string {
	state := v.word("fabric", "fabric/state")
	if state == nil || *state != "completed" {
		return state
	}
	// Here an error's words are the value.
	status := v.e.at("fabric/status")
	if status == nil || slices.Contains([]string{"", "n/a", "success"}, strings.ToLower(status.text())) {
		return state
	}
	v.says("fabric", status.text())
	return new("failed")
}

// throttles are the clock event reasons that count, by the end of the element's name.
var throttles = []struct{ element, name string }{
	{"hw_slowdown", "hw_slowdown"},
	{"hw_thermal_slowdown", "hw_thermal"},
	{"hw_power_brake_slowdown", "hw_power_brake"},
	{"sw_thermal_slowdown", "sw_thermal"},
	{"sw_power_cap", "sw_power_cap"},
}

// throttled reads the clock event reasons, called throttle reasons before driver 535.
func (v *values) throttled() []string {
	prefix := "clocks_event_reasons/clocks_event_reason_"
	if v.e.at("clocks_event_reasons") == nil {
		prefix = "clocks_throttle_reasons/clocks_throttle_reason_"
	}
	var active []string
	for _, reason := range throttles {
		switch is := v.yes("throttled", prefix+reason.element); {
		case gpu.IsTrue(is):
			active = append(active, reason.name)
		case is != nil && active == nil:
			active = []string{}
		}
	}
	if active != nil {
		delete(v.why, "throttled")
	}
	return active
}

const processMemory = "processes.memory"

// kinds are the types of processes.
var kinds = map[string]string{"C": "compute", "G": "graphics", "C+G": "both", "M": "mps", "M+C": "mps"}

func kind(letters string) string { return cmp.Or(kinds[letters], strings.ToLower(letters)) }

// list finds the items of a list; nil with a reason where it says "N/A", which is not an empty one.
func (v *values) list(name, path, item string) []values {
	list := v.e.at(path)
	switch {
	case list == nil:
		v.why[name] = v.absent
		return nil
	case len(list.Kids) == 0 && list.text() != "" && !strings.EqualFold(list.text(), "none"):
		v.says(name, list.text())
		return nil
	}
	items := []values{}
	for _, e := range list.Kids {
		if e.XMLName.Local == item {
			items = append(items, *newValues(e, v.absent))
		}
	}
	return items
}

// processes reads who holds memory.
func (v *values) processes() []gpu.Process {
	items := v.list("processes", "processes", "process_info")
	if items == nil {
		return nil
	}
	found := []gpu.Process{}
	for _, of := range items {
		pid := of.number("pid", "pid")
		if pid == nil {
			continue
		}
		found = append(found, gpu.Process{
			PID: *pid, Name: of.optional("process_name"), Kind: kind(of.optional("type")),
			Memory: of.bytes(processMemory, "used_memory"),
			GI:     of.number("", "gpu_instance_id"), CI: of.number("", "compute_instance_id"),
		})
		if why := of.why[processMemory]; why != "" {
			v.why[processMemory] = why
		}
	}
	return found
}

// instances reads the MIG devices; their names come from nvidia-smi -L.
func (v *values) instances() []gpu.MIGInstance {
	items := v.list("mig.instances", "mig_devices", "mig_device")
	if items == nil {
		return nil
	}
	found := []gpu.MIGInstance{}
	for _, of := range items {
		if index := of.number("", "index"); index != nil {
			found = append(found, gpu.MIGInstance{
				Index: *index, GI: of.number("", "gpu_instance_id"), CI: of.number("", "compute_instance_id"),
				Memory: of.bytes("", "fb_memory_usage/total"), Used: of.bytes("", "fb_memory_usage/used"),
			})
		}
	}
	slices.SortStableFunc(found, func(a, b gpu.MIGInstance) int { return a.Index - b.Index })
	return found
}
