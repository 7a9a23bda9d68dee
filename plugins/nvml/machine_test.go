//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/muster-dev/muster/plugins/gpu"
)

// machine is one of go-nvml's mock machines, which answer little, made to answer all that
// a probe asks.
type machine struct {
	*server.Server
	gpus []*server.Device
	// lacks are the functions that the driver is too old to have. go-nvml's handle for the
	// newest fabric state cannot be made outside of it, so all lack it.
	lacks []string
	inits int
	downs int
}

// dgx is a DGX A100: twelve NVLinks from each GPU to NVSwitches.
func dgx(count int) *machine {
	m := &machine{Server: dgxa100.New(), lacks: []string{"nvmlDeviceGetGpuFabricInfoV"}}
	m.Devices = m.Devices[:count]
	for i, device := range m.Devices {
		card := device.(*server.Device)
		card.UUID = fmt.Sprintf("GPU-%d", i)
		m.gpus = append(m.gpus, card)
		answerAll(card, i)
		switched(card, 12)
	}
	m.InitFunc = func() nvml.Return { m.inits++; return nvml.SUCCESS }
	m.ShutdownFunc = func() nvml.Return { m.downs++; return nvml.SUCCESS }
	m.LookupSymbolFunc = func(symbol string) error {
		if slices.Contains(m.lacks, symbol) {
			return errors.New("undefined symbol: " + symbol)
		}
		return nil
	}
	m.SystemGetCudaDriverVersion_v2Func = m.SystemGetCudaDriverVersionFunc
	m.SystemGetProcessNameFunc = func(pid int) (string, nvml.Return) {
		if pid < 1000 {
			return "", nvml.ERROR_NOT_FOUND // of another pid namespace
		}
		return fmt.Sprintf("/usr/bin/program-%d", pid), nvml.SUCCESS
	}
	return m
}

// told makes a function that always tells the same.
func told[T any](value T) func() (T, nvml.Return) {
	return func() (T, nvml.Return) { return value, nvml.SUCCESS }
}

// says makes a function that tells no value.
func says[T any](ret nvml.Return) func() (T, nvml.Return) {
	return func() (T, nvml.Return) {
		var none T
		return none, ret
	}
}

// answerAll makes a healthy A100 of a mock. GPUs stand in pairs behind PCIe switches, four
// to a socket.
func answerAll(card *server.Device, index int) {
	card.GetPciInfoFunc = told(pciInfo(index))
	card.GetCurrPcieLinkGenerationFunc, card.GetMaxPcieLinkGenerationFunc = told(1), told(4)
	card.GetCurrPcieLinkWidthFunc, card.GetMaxPcieLinkWidthFunc = told(16), told(16)
	card.GetMemoryInfo_v2Func = told(nvml.Memory_v2{Total: 40 << 30, Reserved: 600 << 20, Used: 1 << 30})
	card.GetMemoryInfoFunc = told(nvml.Memory{Total: 40 << 30, Used: 1<<30 + 600<<20})
	card.GetPersistenceModeFunc = told(nvml.FEATURE_ENABLED)
	card.GetComputeModeFunc = told(nvml.COMPUTEMODE_DEFAULT)
	card.GetComputeRunningProcessesFunc = told([]nvml.ProcessInfo{})
	card.GetGraphicsRunningProcessesFunc = told([]nvml.ProcessInfo{})
	card.GetMPSComputeRunningProcessesFunc = told([]nvml.ProcessInfo{})
	card.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	card.GetTotalEccErrorsFunc = func(_ nvml.MemoryErrorType, since nvml.EccCounterType) (uint64, nvml.Return) {
		return map[nvml.EccCounterType]uint64{nvml.VOLATILE_ECC: 2, nvml.AGGREGATE_ECC: 7}[since], nvml.SUCCESS
	}
	card.GetSramEccErrorStatusFunc = told(nvml.EccSramErrorStatus{VolatileUncParity: 1, VolatileUncSecDed: 1})
	card.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 2, true, false, nvml.SUCCESS }
	card.GetRetiredPagesFunc = func(nvml.PageRetirementCause) ([]uint64, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	card.GetRetiredPagesPendingStatusFunc = says[nvml.EnableState](nvml.ERROR_NOT_SUPPORTED)
	card.GetCurrentClocksEventReasonsFunc = told(uint64(nvml.ClocksEventReasonGpuIdle))
	card.GetFieldValuesFunc = fields(map[uint32]uint64{nvml.FI_DEV_GET_GPU_RECOVERY_ACTION: 0})
	card.GetGpuFabricInfoFunc = told(nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED})
	card.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		switch peer := other.(*server.Device).Index; {
		case peer/2 == index/2:
			return nvml.TOPOLOGY_MULTIPLE, nvml.SUCCESS
		case peer/4 == index/4:
			return nvml.TOPOLOGY_NODE, nvml.SUCCESS
		default:
			return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
		}
	}
}

// pciAddress is that of a mock.
func pciAddress(index int) string { return fmt.Sprintf("0000:%02x:00.0", 7+index) }

// pciInfo is as drivers tell it: with a domain of eight digits.
func pciInfo(index int) nvml.PciInfo {
	var info nvml.PciInfo
	for i, c := range strings.ToUpper("0000" + pciAddress(index)) {
		info.BusId[i] = int8(c)
	}
	return info
}

// fields answers nvmlDeviceGetFieldValues; the driver does not know the others.
func fields(values map[uint32]uint64) func([]nvml.FieldValue) nvml.Return {
	return func(fields []nvml.FieldValue) nvml.Return {
		for i := range fields {
			f := &fields[i]
			f.NvmlReturn = uint32(nvml.ERROR_INVALID_ARGUMENT)
			if value, known := values[f.FieldId]; known {
				f.NvmlReturn, f.ValueType = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
				f.Value = [8]byte{byte(value), 0, 0, 0, 0xEE, 0xEE, 0xEE, 0xEE} // the rest of the union is not written
			}
		}
		return nvml.SUCCESS
	}
}

// linked gives a GPU these ports: each leads to the GPU of that index, or nowhere (-1).
func linked(card *server.Device, peers ...int) {
	card.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		switch {
		case link >= len(peers):
			return 0, nvml.ERROR_INVALID_ARGUMENT
		case peers[link] < 0:
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		default:
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
	}
	card.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
	}
	card.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
		return pciInfo(peers[link]), nvml.SUCCESS
	}
}

// switched gives a GPU this many active links to NVSwitches.
func switched(card *server.Device, count int) {
	linked(card, make([]int, count)...)
	card.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
	}
}

// migDevice is a MIG device of a mock.
func migDevice(uuid, name string, gi, ci int, memory uint64) nvml.Device {
	return &mock.Device{
		GetUUIDFunc: told(uuid), GetNameFunc: told(name),
		GetGpuInstanceIdFunc: told(gi), GetComputeInstanceIdFunc: told(ci),
		GetMemoryInfo_v2Func: told(nvml.Memory_v2{Total: memory, Used: 17 << 20}),
		GetAttributesFunc: told(nvml.DeviceAttributes{
			GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 1, MemorySizeMB: memory >> 20,
		}),
		GetComputeRunningProcessesFunc:    told([]nvml.ProcessInfo{{Pid: uint32(2000 + gi), UsedGpuMemory: 5 << 20, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}}),
		GetGraphicsRunningProcessesFunc:   says[[]nvml.ProcessInfo](nvml.ERROR_NOT_SUPPORTED),
		GetMPSComputeRunningProcessesFunc: told([]nvml.ProcessInfo{}),
	}
}

// parted puts a GPU into MIG mode with these devices; nil is a free index.
func parted(card *server.Device, instances ...nvml.Device) {
	card.MigMode = nvml.DEVICE_MIG_ENABLE
	card.GetMaxMigDeviceCountFunc = told(7)
	card.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i >= len(instances) || instances[i] == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return instances[i], nvml.SUCCESS
	}
}

// prober is one over the machine, without the folder of a driver that may be here.
func (m *machine) prober(t *testing.T) *Prober {
	p := New(m)
	p.folder = filepath.Join(t.TempDir(), "none")
	return p
}

// probed reads the machine. Whatever is nil has a reason.
func probed(t *testing.T, p *Prober) *gpu.Inventory {
	t.Helper()
	found, err := p.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found.Unknown() {
		if found.Why[name] == "" {
			t.Errorf("%s is nil without a reason", name)
		}
	}
	for i := range found.GPUs {
		card := &found.GPUs[i]
		for _, name := range card.Unknown() {
			if card.Why[name] == "" {
				t.Errorf("GPU %d: %s is nil without a reason", card.Index, name)
			}
		}
	}
	return found
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}

// show writes what a pointer points to.
func show[T any](p *T) string {
	if p == nil {
		return "nil"
	}
	return fmt.Sprint(*p)
}
