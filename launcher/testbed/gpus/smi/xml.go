package smi

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// log writes elements at the depth where it stands.
type log struct {
	text  strings.Builder
	depth int
	// sick stands where a value would, of a GPU that needs a reset.
	sick string
}

func (l *log) line(format string, args ...any) {
	l.text.WriteString(strings.Repeat("\t", l.depth))
	fmt.Fprintf(&l.text, format+"\n", args...)
}

func (l *log) in(name string, inside func()) {
	l.line("<%s>", name)
	l.depth++
	inside()
	l.depth--
	l.line("</%s>", strings.Fields(name)[0])
}

// is writes what is known of any GPU that has a handle.
func (l *log) is(name, value string) {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(value)) // a strings.Builder takes all
	l.line("<%s>%s</%[1]s>", name, escaped.String())
}

// now writes what only a GPU in good order tells.
func (l *log) now(name, value string) {
	if l.sick != "" {
		value = l.sick
	}
	l.is(name, value)
}

// xml is nvidia-smi -q -x, as drivers since 550 with nvsmi_device_v12.dtd write it, without
// what nobody asks for: clocks, voltages, encoder sessions.
func (m *machine) xml(chosen []int) {
	l := &log{}
	l.line(`<?xml version="1.0" ?>`)
	l.line(`<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">`)
	l.in("nvidia_smi_log", func() {
		l.is("timestamp", time.Now().Format("Mon Jan _2 15:04:05 2006"))
		l.is("driver_version", m.Driver)
		l.is("cuda_version", m.CUDA)
		l.is("attached_gpus", strconv.Itoa(len(m.GPUs)))
		for _, i := range chosen {
			g := &m.GPUs[i]
			l.sick = ""
			if g.State == gpu.StateNeedsReset {
				l.sick = "GPU requires reset"
			}
			l.in(fmt.Sprintf(`gpu id="%s"`, busID(g.PCI)), func() { m.card(l, g, i) })
		}
	})
	fmt.Fprint(m.out, l.text.String())
}

func (m *machine) card(l *log, g *gpus.GPU, index int) {
	l.is("product_name", g.Name)
	l.is("product_architecture", g.Architecture)
	l.is("persistence_mode", enabled(g.Persistence))
	l.in("mig_mode", func() {
		l.is("current_mig", enabled(g.MIG.Enabled))
		l.is("pending_mig", enabled(g.MIG.Pending))
	})
	m.migDevices(l, g)
	l.is("serial", g.Serial)
	l.is("uuid", g.UUID)
	l.is("minor_number", strconv.Itoa(index))
	l.is("vbios_version", g.VBIOS)
	l.is("gpu_recovery_action", recovery(g.Recovery))
	l.in("pci", func() { pci(l, g) })
	l.in("clocks_event_reasons", func() { reasons(l, g, len(g.Holders(m.held)) == 0) })
	used, total, reserved := g.Used(m.held), *g.Memory.Total, *g.Memory.Reserved
	used = min(used, total-reserved)
	l.in("fb_memory_usage", func() {
		l.now("total", mib(total))
		l.now("reserved", mib(reserved))
		l.now("used", mib(used))
		l.now("free", mib(total-used-reserved))
	})
	l.in("bar1_memory_usage", func() {
		l.now("total", mib(total))
		l.now("used", mib(used))
		l.now("free", mib(total-used))
	})
	l.now("compute_mode", computeMode(g.ComputeMode))
	m.work(l, g)
	health(l, g)
	l.in("fabric", func() { fabric(l, g) })
	m.processes(l, g)
}

func pci(l *log, g *gpus.GPU) {
	var domain, bus, device, function int
	fmt.Sscanf(g.PCI, "%x:%x:%x.%x", &domain, &bus, &device, &function)
	l.is("pci_bus", fmt.Sprintf("%02X", bus))
	l.is("pci_device", fmt.Sprintf("%02X", device))
	l.is("pci_domain", fmt.Sprintf("%04X", domain))
	l.is("pci_device_id", strings.ToUpper(strings.TrimPrefix(g.Slot.Device, "0x")+strings.TrimPrefix(g.Slot.Vendor, "0x")))
	l.is("pci_bus_id", busID(g.PCI))
	l.in("pci_gpu_link_info", func() {
		l.in("pcie_gen", func() {
			l.is("max_link_gen", number(g.PCIe.GenerationMax))
			l.is("current_link_gen", number(g.PCIe.Generation))
		})
		l.in("link_widths", func() {
			l.is("max_link_width", width(g.PCIe.WidthMax))
			l.is("current_link_width", width(g.PCIe.Width))
		})
	})
}

func reasons(l *log, g *gpus.GPU, idle bool) {
	active := map[string]bool{}
	for _, reason := range g.Throttled {
		active[reason] = true
	}
	for _, r := range []struct {
		element string
		is      bool
	}{
		{"gpu_idle", idle && len(active) == 0}, {"applications_clocks_setting", false}, {"sw_power_cap", active["sw_power_cap"]},
		{"hw_slowdown", active["hw_slowdown"]}, {"hw_thermal_slowdown", active["hw_thermal"]},
		{"hw_power_brake_slowdown", active["hw_power_brake"]}, {"sync_boost", false}, {"sw_thermal_slowdown", active["sw_thermal"]},
		{"display_clocks_setting", false},
	} {
		value := "Not Active"
		switch {
		case g.Throttled == nil:
			value = "N/A"
		case r.is:
			value = "Active"
		}
		l.now("clocks_event_reason_"+r.element, value)
	}
}

// work is how busy and warm the GPU is; in MIG mode nobody says.
func (m *machine) work(l *log, g *gpus.GPU) {
	celsius, watts := "31 C", "61.00 W"
	if len(g.Holders(m.held)) > 0 {
		celsius, watts = "63 C", "310.00 W"
	}
	card, memory := "N/A", "N/A"
	if u := m.utilization(g); u.GPU >= 0 {
		card, memory = percent(u.GPU)+" %", percent(u.Memory)+" %"
	}
	l.in("utilization", func() {
		l.now("gpu_util", card)
		l.now("memory_util", memory)
	})
	l.in("temperature", func() { l.now("gpu_temp", celsius) })
	l.in("gpu_power_readings", func() { l.now("instant_power_draw", watts) })
}

func fabric(l *log, g *gpus.GPU) {
	state, status := "N/A", "N/A"
	if g.Fabric != nil {
		switch *g.Fabric {
		case "completed":
			state, status = "Completed", "Success"
		case "failed":
			state, status = "Completed", "Insufficient Resources"
		case "in_progress":
			state = "In Progress"
		case "not_started":
			state = "Not Started"
		}
	}
	l.now("state", state)
	l.now("status", status)
}

// processes: types are C, G, C+G, and M+C of clients of MPS.
func (m *machine) processes(l *log, g *gpus.GPU) {
	types := map[string]string{"compute": "C", "graphics": "G", "both": "C+G", "mps": "M+C"}
	if l.sick != "" || g.Processes == nil {
		l.now("processes", "N/A")
		return
	}
	l.in("processes", func() {
		for _, p := range g.Holders(m.held) {
			l.in("process_info", func() {
				l.is("gpu_instance_id", number(p.GI))
				l.is("compute_instance_id", number(p.CI))
				l.is("pid", strconv.Itoa(p.PID))
				l.is("type", types[p.Kind])
				l.is("process_name", p.Name)
				if p.Memory == nil {
					l.is("used_memory", "N/A")
				} else {
					l.is("used_memory", mib(*p.Memory))
				}
			})
		}
	})
	l.line("<accounted_processes>")
	l.line("</accounted_processes>")
}

func (m *machine) migDevices(l *log, g *gpus.GPU) {
	if len(g.MIG.Instances) == 0 {
		l.in("mig_devices", func() { l.line("None") })
		return
	}
	l.in("mig_devices", func() {
		for i, mig := range g.MIG.Instances {
			l.in("mig_device", func() {
				l.is("index", strconv.Itoa(mig.Index))
				l.is("gpu_instance_id", number(mig.GI))
				l.is("compute_instance_id", number(mig.CI))
				used := g.InstanceUsed(i, m.held)
				l.in("fb_memory_usage", func() {
					l.now("total", mib(*mig.Memory))
					l.now("reserved", "0 MiB")
					l.now("used", mib(used))
					l.now("free", mib(*mig.Memory-min(used, *mig.Memory)))
				})
			})
		}
	})
}
