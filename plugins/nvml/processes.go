//go:build linux && cgo

package nvml

import (
	"cmp"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// NVML_VALUE_NOT_AVAILABLE of memory, and of the ids of instances outside MIG mode.
const (
	notAvailable  = math.MaxUint64
	noInstance    = math.MaxUint32
	processMemory = "processes.memory"
)

// holder is where a process holds memory: it may be on several MIG devices.
type holder struct{ pid, gi, ci uint32 }

// gathering merges the three lists of NVML into one entry a holder.
type gathering struct {
	d     *device
	found map[holder]*gpu.Process
}

// readProcesses reads who holds memory. A parent in MIG mode shows it to administrators
// only, its MIG devices to all. Other pid namespaces' processes do not show.
func (d *device) readProcesses() {
	all := gathering{d, map[holder]*gpu.Process{}}
	if !all.take(d.Device, nil) && !all.takeInstances() {
		return
	}
	delete(d.card.Why, "processes")
	d.card.Processes = []gpu.Process{}
	for _, process := range all.found {
		d.card.Processes = append(d.card.Processes, *process)
	}
	slices.SortFunc(d.card.Processes, func(a, b gpu.Process) int {
		return cmp.Or(gpu.OrZero(a.GI)-gpu.OrZero(b.GI), gpu.OrZero(a.CI)-gpu.OrZero(b.CI), a.PID-b.PID)
	})
}

// takeInstances asks the MIG devices; false: there are none, or one does not tell.
func (g *gathering) takeInstances() bool {
	if !gpu.IsTrue(g.d.card.MIG.Enabled) || len(g.d.card.MIG.Instances) == 0 {
		return false
	}
	for i := range g.d.card.MIG.Instances {
		instance := &g.d.card.MIG.Instances[i]
		handle, ret := g.d.GetMigDeviceHandleByIndex(instance.Index)
		if ret != nvml.SUCCESS || !g.take(handle, instance) {
			return false
		}
	}
	return true
}

// take reads the lists of a GPU or MIG device; false: it does not list compute processes.
func (g *gathering) take(from nvml.Device, instance *gpu.MIGInstance) bool {
	known := false
	for _, list := range []struct {
		symbol, kind string
		call         func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", "compute", from.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", "graphics", from.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", "mps", from.GetMPSComputeRunningProcesses},
	} {
		ret := nvml.ERROR_FUNCTION_NOT_FOUND
		var infos []nvml.ProcessInfo
		if g.d.probe.has(list.symbol+"_v3", list.symbol+"_v2", list.symbol) {
			infos, ret = list.call()
		}
		g.d.failed("processes", ret)
		if list.kind == "compute" {
			known = ret == nvml.SUCCESS
		}
		if !known {
			g.d.card.Why["processes"] = g.d.probe.reason(list.symbol, ret)
			return false
		}
		for _, info := range infos {
			g.add(info, list.kind, instance)
		}
	}
	return true
}

func (g *gathering) add(info nvml.ProcessInfo, kind string, instance *gpu.MIGInstance) {
	key := holder{info.Pid, info.GpuInstanceId, info.ComputeInstanceId}
	if instance != nil && key.gi == noInstance && instance.GI != nil && instance.CI != nil {
		key.gi, key.ci = uint32(*instance.GI), uint32(*instance.CI)
	}
	process := g.found[key]
	if process == nil {
		process = &gpu.Process{PID: int(key.pid), Name: g.d.probe.processName(key.pid), Kind: kind}
		process.GI, process.CI = instanceID(key.gi), instanceID(key.ci)
		g.found[key] = process
	}
	process.Kind = merged(process.Kind, kind)
	switch {
	case info.UsedGpuMemory != notAvailable:
		process.Memory = new(info.UsedGpuMemory)
	case process.Memory == nil:
		g.d.card.Why[processMemory] = "NVML does not tell it (NVML_VALUE_NOT_AVAILABLE)"
	}
}

// merged is the kind of a process that is in two lists.
func merged(a, b string) string {
	switch {
	case a == b:
		return a
	case a == "mps" || b == "mps":
		return "mps"
	default:
		return "both"
	}
}

func instanceID(id uint32) *int {
	if id == noInstance {
		return nil
	}
	return new(int(id))
}

// processName asks nvmlSystemGetProcessName; processes of other pid namespaces have no name here.
func (r *probe) processName(pid uint32) string {
	name, asked := r.names[int(pid)]
	if !asked && r.has("nvmlSystemGetProcessName") {
		if told, ret := r.lib.SystemGetProcessName(int(pid)); ret == nvml.SUCCESS {
			name = told
		}
		r.names[int(pid)] = name
	}
	return name
}
