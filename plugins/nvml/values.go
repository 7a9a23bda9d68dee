//go:build linux && cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// enabled is an nvmlEnableState_t.
func enabled(state *nvml.EnableState) *bool {
	if state == nil {
		return nil
	}
	return new(*state == nvml.FEATURE_ENABLED)
}

// readPCIe reads the link as it is, and what card and slot are able to do together.
func (d *device) readPCIe() {
	pcie := &d.card.PCIe
	pcie.Generation = ask(d, "pcie.generation", "nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration)
	pcie.GenerationMax = ask(d, "pcie.generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration)
	pcie.Width = ask(d, "pcie.width", "nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth)
	pcie.WidthMax = ask(d, "pcie.width_max", "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth)
}

// readMemory reads nvmlDeviceGetMemoryInfo_v2, of drivers since 510. The first version
// counts what the driver keeps as used.
func (d *device) readMemory() {
	memory := &d.card.Memory
	if info := ask(d, "memory.reserved", "nvmlDeviceGetMemoryInfo_v2", d.GetMemoryInfo_v2); info != nil {
		memory.Total, memory.Used, memory.Reserved = &info.Total, &info.Used, &info.Reserved
		return
	}
	if !d.alive() {
		return
	}
	if info := ask(d, "memory.total", "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo); info != nil {
		memory.Total, memory.Used = &info.Total, &info.Used
	} else {
		d.card.Why["memory.used"] = d.card.Why["memory.total"]
	}
}

// computeModes are the names of nvmlComputeMode_t.
var computeModes = map[nvml.ComputeMode]string{
	nvml.COMPUTEMODE_DEFAULT:           "default",
	nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  "exclusive_thread",
	nvml.COMPUTEMODE_PROHIBITED:        "prohibited",
	nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}

func (d *device) readModes() {
	d.card.Persistence = enabled(ask(d, "persistence", "nvmlDeviceGetPersistenceMode", d.GetPersistenceMode))
	if mode := ask(d, "compute_mode", "nvmlDeviceGetComputeMode", d.GetComputeMode); mode != nil {
		d.card.ComputeMode = nameOf(d, "compute_mode", computeModes[*mode], int(*mode))
	}
}

// nameOf is the name of a number, nil where it has none.
func nameOf(d *device, value, name string, number int) *string {
	if name == "" {
		d.card.Why[value] = fmt.Sprintf("NVML says %d, which is not known here", number)
		return nil
	}
	return &name
}

// throttles are the bits of nvmlDeviceGetCurrentClocksEventReasons that count.
var throttles = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksThrottleReasonHwSlowdown, "hw_slowdown"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "hw_thermal"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake"},
	{nvml.ClocksEventReasonSwThermalSlowdown, "sw_thermal"},
	{nvml.ClocksEventReasonSwPowerCap, "sw_power_cap"},
}

// readThrottled reads why clocks are held down, which drivers before 535 call throttle
// reasons.
func (d *device) readThrottled() {
	symbol, call := "nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons
	if !d.probe.has(symbol) {
		symbol, call = "nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons
	}
	mask := ask(d, "throttled", symbol, call)
	if mask == nil {
		return
	}
	d.card.Throttled = []string{}
	for _, reason := range throttles {
		if *mask&reason.bit != 0 {
			d.card.Throttled = append(d.card.Throttled, reason.name)
		}
	}
}

// fabricStates are the names of nvmlGpuFabricState_t.
var fabricStates = map[uint8]string{
	nvml.GPU_FABRIC_STATE_NOT_STARTED: "not_started",
	nvml.GPU_FABRIC_STATE_IN_PROGRESS: "in_progress",
	nvml.GPU_FABRIC_STATE_COMPLETED:   "completed",
}

// fabric is what both versions of nvmlDeviceGetGpuFabricInfo tell.
type fabric struct {
	state  uint8
	status nvml.Return // of a completed one
}

// readFabric reads the state of the registration with the fabric manager. Completed alone
// does not say how.
func (d *device) readFabric() {
	symbol, call := "nvmlDeviceGetGpuFabricInfoV", func() (fabric, nvml.Return) {
		info, ret := d.GetGpuFabricInfoV().V2()
		return fabric{info.State, nvml.Return(info.Status)}, ret
	}
	if !d.probe.has(symbol) {
		symbol, call = "nvmlDeviceGetGpuFabricInfo", func() (fabric, nvml.Return) {
			info, ret := d.GetGpuFabricInfo()
			return fabric{info.State, nvml.Return(info.Status)}, ret
		}
	}
	info := ask(d, "fabric", symbol, call)
	switch {
	case info == nil:
	case info.state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED:
		d.card.Why["fabric"] = "not supported by this GPU"
	case info.state == nvml.GPU_FABRIC_STATE_COMPLETED && info.status != nvml.SUCCESS:
		d.card.Fabric, d.card.Why["fabric"] = new("failed"), d.probe.reason("", info.status)
	default:
		d.card.Fabric = nameOf(d, "fabric", fabricStates[info.state], int(info.state))
	}
}
