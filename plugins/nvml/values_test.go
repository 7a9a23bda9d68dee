//go:build linux && cgo

package nvml

import (
	"math"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// askNothing makes a GPU that supports nothing but to say what it is.
func askNothing(gpu *server.Device, ret nvml.Return) {
	gpu.GetCurrPcieLinkGenerationFunc, gpu.GetMaxPcieLinkGenerationFunc = says[int](ret), says[int](ret)
	gpu.GetCurrPcieLinkWidthFunc, gpu.GetMaxPcieLinkWidthFunc = says[int](ret), says[int](ret)
	gpu.GetMemoryInfo_v2Func, gpu.GetMemoryInfoFunc = says[nvml.Memory_v2](ret), says[nvml.Memory](ret)
	gpu.GetPersistenceModeFunc, gpu.GetComputeModeFunc = says[nvml.EnableState](ret), says[nvml.ComputeMode](ret)
	gpu.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, ret }
	gpu.GetComputeRunningProcessesFunc = says[[]nvml.ProcessInfo](ret)
	gpu.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 0, 0, ret }
	gpu.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, ret }
	gpu.GetSramEccErrorStatusFunc = says[nvml.EccSramErrorStatus](ret)
	gpu.GetMemoryErrorCounterFunc = func(nvml.MemoryErrorType, nvml.EccCounterType, nvml.MemoryLocation) (uint64, nvml.Return) {
		return 0, ret
	}
	gpu.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, ret }
	gpu.GetCurrentClocksEventReasonsFunc = says[uint64](ret)
	gpu.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return ret }
	gpu.GetGpuFabricInfoFunc = says[nvml.GpuFabricInfo](ret)
	gpu.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, ret }
	gpu.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) { return 0, ret }
}

func TestWhatNoGPUSupportsIsNilWithTheReason(t *testing.T) {
	m := dgx(2)
	for _, gpu := range m.gpus {
		askNothing(gpu, nvml.ERROR_NOT_SUPPORTED)
	}
	got := probed(t, m.prober(t))
	gpu := got.GPUs[0]
	unknown := gpu.Unknown()
	if len(unknown) < 20 {
		t.Errorf("nil values are %v only", unknown)
	}
	for _, name := range unknown {
		if why := gpu.Why[name]; why != "not supported by this GPU" && name != "nvlinks" && name != "recovery" {
			t.Errorf("%s: %q", name, why)
		}
	}
	same(t, "state", gpu.State, "ok")
	same(t, "NVLinks", gpu.Why["nvlinks"], "this product has no NVLinks")
	if gpu.MIG.Instances == nil || got.Why["links"] != "not supported by this GPU" {
		t.Errorf("MIG devices %v, links %q", gpu.MIG.Instances, got.Why["links"])
	}
}

func TestAnOldDriverIsAskedForNothingThatItLacks(t *testing.T) {
	m := dgx(2)
	m.lacks = append(m.lacks, "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetRemappedRows",
		"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetFieldValues",
		"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses",
		"nvmlDeviceGetNvLinkRemotePciInfo_v2")
	m.SystemGetCudaDriverVersion_v2Func = nil // to call what is missing would end the test
	for _, gpu := range m.gpus {
		gpu.GetMemoryInfo_v2Func, gpu.GetMigModeFunc, gpu.GetRemappedRowsFunc, gpu.GetSramEccErrorStatusFunc = nil, nil, nil, nil
		gpu.GetCurrentClocksEventReasonsFunc, gpu.GetGpuFabricInfoFunc, gpu.GetFieldValuesFunc = nil, nil, nil
		gpu.GetMPSComputeRunningProcessesFunc = nil
		gpu.GetCurrentClocksThrottleReasonsFunc = told(uint64(nvml.ClocksThrottleReasonHwThermalSlowdown))
		gpu.GetMemoryErrorCounterFunc = func(nvml.MemoryErrorType, nvml.EccCounterType, nvml.MemoryLocation) (uint64, nvml.Return) {
			return 3, nvml.SUCCESS
		}
	}
	got := probed(t, m.prober(t))
	same(t, "CUDA", got.Why["cuda"], "driver 550.54.15 is too old: it has no nvmlSystemGetCudaDriverVersion_v2")
	gpu := got.GPUs[0]
	same(t, "used, which has all", show(gpu.Memory.Used), 1<<30+600<<20)
	same(t, "SRAM", show(gpu.ECC.SRAMVolatile), 3)
	same(t, "throttled", gpu.Throttled, []string{"hw_thermal"})
	same(t, "link", got.Links[0][1], "NV12")
	for _, name := range []string{"memory.reserved", "mig.enabled", "mig.pending", "mig.instances", "remapped.failed", "fabric", "recovery"} {
		if !strings.HasPrefix(gpu.Why[name], "driver 550.54.15 is too old: it has no nvml") {
			t.Errorf("%s: %q", name, gpu.Why[name])
		}
	}
}

func TestCUDAIsUnknownWithoutItsLibrary(t *testing.T) {
	m := dgx(1)
	m.SystemGetCudaDriverVersion_v2Func = says[int](nvml.ERROR_LIBRARY_NOT_FOUND)
	got := probed(t, m.prober(t))
	same(t, "CUDA", show(got.CUDA)+" "+got.Why["cuda"], `nil NVML says "ERROR_LIBRARY_NOT_FOUND"`)
}

func TestThrottledListsWhatCounts(t *testing.T) {
	for mask, want := range map[uint64][]string{
		0:     {},
		0x1:   {},
		0x4:   {"sw_power_cap"},
		0x48:  {"hw_slowdown", "hw_thermal"},
		0x7ff: {"hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal", "sw_power_cap"},
	} {
		m := dgx(1)
		m.gpus[0].GetCurrentClocksEventReasonsFunc = told(mask)
		gpu := probed(t, m.prober(t)).GPUs[0]
		same(t, "throttled", gpu.Throttled, want)
	}
}

func TestRecoveryOfAnyDriver(t *testing.T) {
	const action, reset, drain = nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, nvml.FI_DEV_RESET_STATUS, nvml.FI_DEV_DRAIN_AND_RESET_STATUS
	for _, c := range []struct {
		fields map[uint32]uint64
		want   string
	}{
		{map[uint32]uint64{action: 0, reset: 1}, "none"},
		{map[uint32]uint64{action: 2}, "node_reboot"},
		{map[uint32]uint64{action: 3}, "drain_p2p"},
		{map[uint32]uint64{action: 4}, "drain_and_reset"},
		{map[uint32]uint64{action: 77}, "action_77"},
		{map[uint32]uint64{reset: 1, drain: 1}, "gpu_reset"},
		{map[uint32]uint64{reset: 0, drain: 1}, "drain_and_reset"},
		{map[uint32]uint64{reset: 0, drain: 0}, "nil"},
		{map[uint32]uint64{}, "nil"},
	} {
		m := dgx(1)
		m.gpus[0].GetFieldValuesFunc = fields(c.fields)
		gpu := probed(t, m.prober(t)).GPUs[0]
		same(t, "recovery", show(gpu.Recovery), c.want)
		if c.want == "nil" && !strings.Contains(gpu.Why["recovery"], "driver 550.54.15 does not tell it") {
			t.Errorf("%v: %q", c.fields, gpu.Why["recovery"])
		}
	}
}

func TestFieldsOfEachTypeAreNumbers(t *testing.T) {
	for kind, value := range map[nvml.ValueType][8]byte{
		nvml.VALUE_TYPE_UNSIGNED_INT:       {7, 0, 0, 0, 0xEE},
		nvml.VALUE_TYPE_UNSIGNED_SHORT:     {7, 0, 0xEE},
		nvml.VALUE_TYPE_UNSIGNED_LONG:      {7},
		nvml.VALUE_TYPE_UNSIGNED_LONG_LONG: {7},
		nvml.VALUE_TYPE_DOUBLE:             {0, 0, 0, 0, 0, 0, 0x1c, 0x40},
	} {
		same(t, "number", show(number(nvml.FieldValue{ValueType: uint32(kind), Value: value})), 7)
	}
	same(t, "double", math.Float64bits(7), uint64(0x401c000000000000))
	same(t, "failed", show(number(nvml.FieldValue{NvmlReturn: uint32(nvml.ERROR_NOT_SUPPORTED)})), "nil")
}

func TestFabricIsCompletedOnlyWithSuccess(t *testing.T) {
	for _, c := range []struct {
		state  uint8
		status nvml.Return
		want   string
		reason string
	}{
		{nvml.GPU_FABRIC_STATE_COMPLETED, nvml.SUCCESS, "completed", ""},
		{nvml.GPU_FABRIC_STATE_COMPLETED, nvml.ERROR_INVALID_STATE, "failed", `NVML says "ERROR_INVALID_STATE"`},
		{nvml.GPU_FABRIC_STATE_IN_PROGRESS, nvml.ERROR_NOT_READY, "in_progress", ""},
		{nvml.GPU_FABRIC_STATE_NOT_STARTED, nvml.SUCCESS, "not_started", ""},
		{nvml.GPU_FABRIC_STATE_NOT_SUPPORTED, nvml.SUCCESS, "nil", "not supported by this GPU"},
		{9, nvml.SUCCESS, "nil", "NVML says 9, which is not known here"},
	} {
		m := dgx(1)
		m.gpus[0].GetGpuFabricInfoFunc = told(nvml.GpuFabricInfo{State: c.state, Status: uint32(c.status)})
		gpu := probed(t, m.prober(t)).GPUs[0]
		same(t, "fabric", show(gpu.Fabric)+" "+gpu.Why["fabric"], c.want+" "+c.reason)
	}
}

func TestComputeModesHaveTheirNames(t *testing.T) {
	for mode, want := range map[nvml.ComputeMode]string{0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process", 9: "nil"} {
		m := dgx(1)
		m.gpus[0].GetComputeModeFunc = told(mode)
		same(t, "mode", show(probed(t, m.prober(t)).GPUs[0].ComputeMode), want)
	}
}

func TestRetiredPagesAreCounted(t *testing.T) {
	m := dgx(1)
	m.gpus[0].GetRetiredPagesFunc = func(cause nvml.PageRetirementCause) ([]uint64, nvml.Return) {
		return make([]uint64, 3+int(cause)), nvml.SUCCESS
	}
	m.gpus[0].GetRetiredPagesPendingStatusFunc = told(nvml.FEATURE_ENABLED)
	retired := probed(t, m.prober(t)).GPUs[0].Retired
	same(t, "retired", show(retired.SingleBit)+" "+show(retired.DoubleBit)+" "+show(retired.Pending), "3 4 true")
}
