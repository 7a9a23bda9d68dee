package hosts

import (
	"io"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/plugins/gpu"
)

type probeJSON struct {
	Version int             `json:"version"`
	Hosts   []probeHostJSON `json:"hosts"`
}

// probeHostJSON is a host: everything of its facts, and its devices spread out.
type probeHostJSON struct {
	Name        string   `json:"name"`
	Address     string   `json:"address"`
	ClockOffset *float64 `json:"clock_offset"` // seconds that its clock is ahead; null: not measured
	ClockError  *float64 `json:"clock_error"`
	facts.Host
	Devices *struct{} `json:"devices,omitempty"` // hides that of Host
	probeGPUsJSON
}

// probeGPUsJSON is what a host knows of its GPUs.
type probeGPUsJSON struct {
	Source        string              `json:"gpu_source,omitempty"`
	None          string              `json:"gpu_none,omitempty"`
	PCIDevices    int                 `json:"gpu_pci_devices"`
	NVSwitches    int                 `json:"nvswitches"`
	FabricManager facts.FabricManager `json:"fabric_manager,omitzero"`
	KernelModule  string              `json:"kernel_module,omitempty"`
	Xids          nvidia.Xids         `json:"xids,omitempty"`
	NoXids        string              `json:"no_xids,omitempty"`
	Driver        *string             `json:"driver"`
	CUDA          *string             `json:"cuda"`
	GPUs          []gpuJSON           `json:"gpus"`
	Links         [][]gpu.Link        `json:"links"`
	Islands       [][]int             `json:"islands"` // by index
	Visibility    gpu.Visibility      `json:"gpu_visibility,omitzero"`
	Why           map[string]string   `json:"gpu_why,omitempty"`
	Notes         []string            `json:"gpu_notes,omitempty"`
}

// gpuJSON is a GPU with the figures that scripts want most at hand.
type gpuJSON struct {
	gpu.GPU
	MemoryTotal *uint64 `json:"memory_total"`
	MemoryUsed  *uint64 `json:"memory_used"`
	facts.Near
	HCAs      []string      `json:"hcas"`          // those of Near, also where there are none
	Run       string        `json:"run,omitempty"` // of muster, that has it now
	Processes []processJSON `json:"processes"`     // instead of that of GPU
}

type processJSON struct {
	gpu.Process
	User string `json:"user,omitempty"`
}

// ProbeJSON writes hosts as one JSON object (version 1).
func ProbeJSON(w io.Writer, hosts []Probed) error {
	out := probeJSON{Version: 1, Hosts: []probeHostJSON{}}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, hostJSON(h))
	}
	return terminal.WriteJSON(w, out)
}

func hostJSON(h Probed) probeHostJSON {
	out := probeHostJSON{Name: h.Name, Address: h.Address, ClockOffset: h.ClockOffset, Host: lists(h.Facts),
		probeGPUsJSON: probeGPUsJSON{GPUs: []gpuJSON{}, Links: [][]gpu.Link{}, Islands: [][]int{}}}
	if h.ClockOffset != nil {
		out.ClockError = &h.ClockError
	}
	d := h.Facts.Devices
	if d == nil {
		return out
	}
	out.None, out.PCIDevices = d.None, d.PCIDevices
	out.NVSwitches, out.FabricManager, out.KernelModule = d.NVSwitches, d.FabricManager, d.KernelModule
	out.Xids, out.NoXids = d.Xids, d.NoXids
	if d.Inventory == nil {
		return out
	}
	out.Source, out.Driver, out.CUDA, out.Visibility, out.Why, out.Notes = d.Source, d.Driver, d.CUDA,
		d.Visibility, d.Why, d.Notes
	for i, g := range d.Inventory.GPUs {
		near := d.Near[i]
		near.CPUs = list(near.CPUs)
		out.GPUs = append(out.GPUs, gpuJSON{
			GPU: g, MemoryTotal: g.Memory.Total, MemoryUsed: g.Memory.Used, Near: near, HCAs: list(near.HCAs),
			Run: d.Taken[g.UUID], Processes: processesJSON(g.Processes, d.Owners),
		})
	}
	out.Links = append(out.Links, d.Links...)
	for _, island := range d.Islands {
		var gpus []int
		for _, i := range island {
			gpus = append(gpus, d.Inventory.GPUs[i].Index)
		}
		out.Islands = append(out.Islands, gpus)
	}
	return out
}

// processesJSON stays null where processes could not be read.
func processesJSON(processes []gpu.Process, owners map[int]string) []processJSON {
	if processes == nil {
		return nil
	}
	out := []processJSON{}
	for _, p := range processes {
		out = append(out, processJSON{p, owners[p.PID]})
	}
	return out
}

// lists makes the lists of a host that are not there empty ones, which scripts can loop
// over.
func lists(f facts.Host) facts.Host {
	f.CPUs.Allowed, f.CPUs.Cores = list(f.CPUs.Allowed), list(f.CPUs.Cores)
	f.Nodes, f.NICs, f.HCAs, f.HostnameAddrs = list(f.Nodes), list(f.NICs), list(f.HCAs), list(f.HostnameAddrs)
	return f
}

func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
