package smi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// fields of --query-gpu, by name; those with a unit have it behind the value, and in
// brackets in the header.
var fields = map[string]struct {
	unit string
	of   func(m *machine, i int) string
}{
	"index":                            {"", func(_ *machine, i int) string { return strconv.Itoa(i) }},
	"count":                            {"", func(m *machine, _ int) string { return strconv.Itoa(len(m.GPUs)) }},
	"name":                             {"", func(m *machine, i int) string { return m.GPUs[i].Name }},
	"gpu_name":                         {"", func(m *machine, i int) string { return m.GPUs[i].Name }},
	"uuid":                             {"", func(m *machine, i int) string { return m.GPUs[i].UUID }},
	"gpu_uuid":                         {"", func(m *machine, i int) string { return m.GPUs[i].UUID }},
	"serial":                           {"", func(m *machine, i int) string { return m.GPUs[i].Serial }},
	"pci.bus_id":                       {"", func(m *machine, i int) string { return busID(m.GPUs[i].PCI) }},
	"gpu_bus_id":                       {"", func(m *machine, i int) string { return busID(m.GPUs[i].PCI) }},
	"driver_version":                   {"", func(m *machine, _ int) string { return m.Driver }},
	"compute_cap":                      {"", func(m *machine, i int) string { return m.GPUs[i].Capability }},
	"compute_mode":                     {"", func(m *machine, i int) string { return computeMode(m.GPUs[i].ComputeMode) }},
	"persistence_mode":                 {"", func(m *machine, i int) string { return enabled(m.GPUs[i].Persistence) }},
	"mig.mode.current":                 {"", func(m *machine, i int) string { return enabled(m.GPUs[i].MIG.Enabled) }},
	"ecc.mode.current":                 {"", func(m *machine, i int) string { return enabled(m.GPUs[i].ECC.Enabled) }},
	"pcie.link.gen.current":            {"", func(m *machine, i int) string { return number(m.GPUs[i].PCIe.Generation) }},
	"pcie.link.gen.max":                {"", func(m *machine, i int) string { return number(m.GPUs[i].PCIe.GenerationMax) }},
	"pcie.link.width.current":          {"", func(m *machine, i int) string { return number(m.GPUs[i].PCIe.Width) }},
	"pcie.link.width.max":              {"", func(m *machine, i int) string { return number(m.GPUs[i].PCIe.WidthMax) }},
	"memory.total":                     {"MiB", func(m *machine, i int) string { return megabytes(*m.GPUs[i].Memory.Total) }},
	"memory.reserved":                  {"MiB", func(m *machine, i int) string { return megabytes(*m.GPUs[i].Memory.Reserved) }},
	"memory.used":                      {"MiB", func(m *machine, i int) string { return megabytes(m.GPUs[i].Used(m.held)) }},
	"memory.free":                      {"MiB", func(m *machine, i int) string { return megabytes(m.free(i)) }},
	"utilization.gpu":                  {"%", func(m *machine, i int) string { return percent(m.utilization(&m.GPUs[i]).GPU) }},
	"utilization.memory":               {"%", func(m *machine, i int) string { return percent(m.utilization(&m.GPUs[i]).Memory) }},
	"temperature.gpu":                  {"", func(m *machine, i int) string { return "31" }},
	"power.draw":                       {"W", func(m *machine, i int) string { return "61.00" }},
	"retired_pages.sbe":                {"", func(m *machine, i int) string { return number(m.GPUs[i].Retired.SingleBit) }},
	"retired_pages.dbe":                {"", func(m *machine, i int) string { return number(m.GPUs[i].Retired.DoubleBit) }},
	"retired_pages.pending":            {"", func(m *machine, i int) string { return yes(m.GPUs[i].Retired.Pending) }},
	"clocks_event_reasons.hw_slowdown": {"", func(m *machine, i int) string { return m.slowed(i) }},
}

func megabytes(bytes uint64) string { return strconv.FormatUint(bytes>>20, 10) }

func (m *machine) free(i int) uint64 {
	g := &m.GPUs[i]
	return *g.Memory.Total - min(*g.Memory.Total, *g.Memory.Reserved+g.Used(m.held))
}

// utilization is that of a GPU; of one in MIG mode, which nobody says, it is negative.
func (m *machine) utilization(g *gpus.GPU) gpus.Utilization {
	switch {
	case g.MIG.Enabled != nil && *g.MIG.Enabled:
		return gpus.Utilization{GPU: -1, Memory: -1}
	case g.Utilization != nil:
		return *g.Utilization
	case len(g.Holders(m.held)) > 0:
		return gpus.Utilization{GPU: 100, Memory: 40}
	default:
		return gpus.Utilization{}
	}
}

func percent(n int) string {
	if n < 0 {
		return "N/A"
	}
	return strconv.Itoa(n)
}

func (m *machine) slowed(i int) string {
	if slices.Contains(m.GPUs[i].Throttled, "hw_slowdown") {
		return "Active"
	}
	return "Not Active"
}

// format is --format=csv,noheader,nounits.
type format struct{ header, units bool }

func parseFormat(args []string) (format, bool) {
	for _, arg := range args {
		value, is := strings.CutPrefix(arg, "--format=")
		if is && strings.Split(value, ",")[0] == "csv" {
			return format{!strings.Contains(value, "noheader"), !strings.Contains(value, "nounits")}, true
		}
	}
	return format{}, false
}

// cell is a value with its unit; what is no value stands in brackets.
func (f format) cell(value, unit string) string {
	switch {
	case value == "N/A":
		return "[N/A]"
	case unit != "" && f.units:
		return value + " " + unit
	default:
		return value
	}
}

func (f format) title(name, unit string) string {
	if unit != "" {
		return name + " [" + unit + "]"
	}
	return name
}

// heading are the titles of the fields that a query names, in the form that it wants; it says
// what is wrong where ok is false.
func (m *machine) heading(names string, rest []string, unitOf func(name string) (unit string, known bool)) (f format, titles []string, ok bool) {
	if f, ok = parseFormat(rest); !ok {
		fmt.Fprintln(m.out, `"--format=" switch is missing. Mandatory format is: csv`)
		return f, nil, false
	}
	for name := range strings.SplitSeq(names, ",") {
		unit, known := unitOf(strings.TrimSpace(name))
		if !known {
			fmt.Fprintf(m.out, "Field \"%s\" is not a valid field to query.\n\n", name)
			return f, nil, false
		}
		titles = append(titles, f.title(strings.TrimSpace(name), unit))
	}
	return f, titles, true
}

// queryGPU is nvidia-smi --query-gpu=…: the sentence of a lost GPU stands among the rows.
func (m *machine) queryGPU(chosen []int, names string, rest []string) int {
	f, header, ok := m.heading(names, rest, func(name string) (string, bool) {
		field, known := fields[name]
		return field.unit, known
	})
	if !ok {
		return exitBadArgument
	}
	return m.each(chosen, func(alive []int) {
		if f.header {
			fmt.Fprintln(m.out, strings.Join(header, ", "))
		}
		for _, i := range alive {
			var cells []string
			for name := range strings.SplitSeq(names, ",") {
				name = strings.TrimSpace(name)
				value := fields[name].of(m, i)
				if m.GPUs[i].State == gpu.StateNeedsReset && strings.HasPrefix(name, "memory.") {
					value = "[GPU requires reset]"
					cells = append(cells, value)
					continue
				}
				cells = append(cells, f.cell(value, fields[name].unit))
			}
			fmt.Fprintln(m.out, strings.Join(cells, ", "))
		}
	})
}

var appFields = map[string]struct {
	unit string
	of   func(g *gpus.GPU, p gpu.Process) string
}{
	"pid":             {"", func(_ *gpus.GPU, p gpu.Process) string { return strconv.Itoa(p.PID) }},
	"process_name":    {"", func(_ *gpus.GPU, p gpu.Process) string { return p.Name }},
	"name":            {"", func(_ *gpus.GPU, p gpu.Process) string { return p.Name }},
	"gpu_uuid":        {"", func(g *gpus.GPU, _ gpu.Process) string { return g.UUID }},
	"gpu_name":        {"", func(g *gpus.GPU, _ gpu.Process) string { return g.Name }},
	"gpu_bus_id":      {"", func(g *gpus.GPU, _ gpu.Process) string { return busID(g.PCI) }},
	"gpu_serial":      {"", func(g *gpus.GPU, _ gpu.Process) string { return g.Serial }},
	"used_gpu_memory": {"MiB", memoryOf},
	"used_memory":     {"MiB", memoryOf},
}

func memoryOf(_ *gpus.GPU, p gpu.Process) string {
	if p.Memory == nil {
		return "N/A"
	}
	return megabytes(*p.Memory)
}

// queryApps is nvidia-smi --query-compute-apps=…
func (m *machine) queryApps(chosen []int, names string, rest []string) int {
	f, header, ok := m.heading(names, rest, func(name string) (string, bool) {
		field, known := appFields[name]
		return field.unit, known
	})
	if !ok {
		return exitBadArgument
	}
	return m.each(chosen, func(alive []int) {
		if f.header {
			fmt.Fprintln(m.out, strings.Join(header, ", "))
		}
		for _, i := range alive {
			for _, p := range m.GPUs[i].Holders(m.held) {
				if p.Kind == "graphics" {
					continue
				}
				var cells []string
				for name := range strings.SplitSeq(names, ",") {
					field := appFields[strings.TrimSpace(name)]
					cells = append(cells, f.cell(field.of(&m.GPUs[i], p), field.unit))
				}
				fmt.Fprintln(m.out, strings.Join(cells, ", "))
			}
		}
	})
}
