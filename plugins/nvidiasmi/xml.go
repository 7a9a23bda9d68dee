package nvidiasmi

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
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

var rootElement = []byte("<nvidia_smi_log")

// ParseXML reads the answer of nvidia-smi -q -x. With an error the log holds what came
// before it.
func ParseXML(output []byte) (*Log, error) {
	log := &Log{}
	begin := bytes.Index(output, rootElement)
	if begin < 0 {
		log.finish(&element{})
		return log, errors.New("nvidia-smi -q -x shows no <nvidia_smi_log>")
	}
	head, gpus, err := readLog(newTreeReader(output[begin:]))
	log.finish(head)
	for _, card := range gpus {
		log.GPUs = append(log.GPUs, readGPU(card, log.absence()))
	}
	if err != nil {
		return log, fmt.Errorf("nvidia-smi -q -x after %d GPUs: %w", len(gpus), err)
	}
	return log, nil
}

// readLog reads the elements of the machine, and those of each GPU that came whole.
func readLog(t *treeReader) (head *element, gpus []*element, err error) {
	head = &element{}
	if _, err := t.dec.Token(); err != nil { // the root itself
		return head, nil, unfinished(err)
	}
	for {
		token, err := t.dec.Token()
		if err != nil {
			return head, gpus, unfinished(err)
		}
		switch token := token.(type) {
		case xml.EndElement:
			return head, gpus, nil
		case xml.StartElement:
			t.left = mostKids
			e, err := t.read(token, 1)
			switch {
			case err != nil:
				return head, gpus, err
			case e.name != "gpu":
				head.kids = append(head.kids, e)
			case len(gpus) == mostGPUs:
				return head, gpus, io.ErrShortBuffer
			default:
				gpus = append(gpus, e)
			}
		}
	}
}

// mostGPUs of one machine; NVML itself stops at 64 devices, this leaves room.
const mostGPUs = 1024

// finish reads what is told of the machine.
func (l *Log) finish(head *element) {
	v := values{e: head, why: map[string]string{}, absent: `not in the output of nvidia-smi -q -x`}
	l.Driver = v.version("driver", "driver_version")
	l.CUDA = v.version("cuda", "cuda_version")
	l.Attached = v.number("attached", "attached_gpus")
	delete(v.why, "attached")
	l.Why = v.why
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
	v := values{e: e, why: map[string]string{}, absent: absent}
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
		card.PCI, _ = gpu.SysfsPCI(e.id)
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
		if found := v.e.at(path); found != nil && isError(found.text) {
			v.says("state", found.text)
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
	known := map[string]string{}
	status := values{e: v.e.at("gpu_reset_status"), why: known}
	if reset := status.yes("", "reset_required"); reset != nil && *reset {
		delete(v.why, "recovery")
		return new("gpu_reset")
	}
	if drain := status.yes("", "drain_and_reset_recommended"); drain != nil && *drain {
		delete(v.why, "recovery")
		return new("drain_and_reset")
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
	if status == nil || status.text == "" || strings.EqualFold(status.text, "n/a") || strings.EqualFold(status.text, "success") {
		return state
	}
	v.says("fabric", status.text)
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
	known := false
	for _, reason := range throttles {
		is := v.yes("throttled", prefix+reason.element)
		known = known || is != nil
		if is != nil && *is {
			active = append(active, reason.name)
		}
	}
	if !known {
		return nil
	}
	delete(v.why, "throttled")
	return append([]string{}, active...)
}

// kinds are the types of processes.
var kinds = map[string]string{"C": "compute", "G": "graphics", "C+G": "both", "M": "mps", "M+C": "mps"}

func kind(letters string) string { return cmp.Or(kinds[letters], strings.ToLower(letters)) }

// processes reads who holds memory. A list that says "N/A" is not an empty one.
func (v *values) processes() []gpu.Process {
	list := v.e.at("processes")
	switch {
	case list == nil:
		v.why["processes"] = v.absent
		return nil
	case len(list.kids) == 0 && list.text != "" && !strings.EqualFold(list.text, "none"):
		v.says("processes", list.text)
		return nil
	}
	found := []gpu.Process{}
	for _, e := range list.kids {
		of := values{e: e, why: map[string]string{}, absent: v.absent}
		pid := of.number("pid", "pid")
		if e.name != "process_info" || pid == nil {
			continue
		}
		process := gpu.Process{
			PID: *pid, Name: of.optional("process_name"), Kind: kind(of.optional("type")),
			Memory: of.bytes("processes.memory", "used_memory"),
			GI:     of.number("", "gpu_instance_id"), CI: of.number("", "compute_instance_id"),
		}
		if why := of.why["processes.memory"]; why != "" {
			v.why["processes.memory"] = why
		}
		found = append(found, process)
	}
	return found
}

// instances reads the MIG devices; their names come from nvidia-smi -L.
func (v *values) instances() []gpu.MIGInstance {
	list := v.e.at("mig_devices")
	switch {
	case list == nil:
		v.why["mig.instances"] = v.absent
		return nil
	case len(list.kids) == 0 && list.text != "" && !strings.EqualFold(list.text, "none"):
		v.says("mig.instances", list.text)
		return nil
	}
	found := []gpu.MIGInstance{}
	for _, e := range list.kids {
		of := values{e: e, why: map[string]string{}}
		index := of.number("", "index")
		if e.name != "mig_device" || index == nil {
			continue
		}
		found = append(found, gpu.MIGInstance{
			Index:  *index,
			GI:     of.number("", "gpu_instance_id"),
			CI:     of.number("", "compute_instance_id"),
			Memory: of.bytes("", "fb_memory_usage/total"),
			Used:   of.bytes("", "fb_memory_usage/used"),
		})
	}
	slices.SortStableFunc(found, func(a, b gpu.MIGInstance) int { return a.Index - b.Index })
	return found
}
