//go:build linux && cgo

package nvml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// lose makes the handle of a GPU fail from now on.
func (m *machine) lose(index int, ret nvml.Return) {
	before := m.DeviceGetHandleByIndexFunc
	m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == index {
			return nil, ret
		}
		return before(i)
	}
}

func TestAGPUWithoutAHandleHasAState(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_GPU_IS_LOST: gpu.StateLost, nvml.ERROR_UNKNOWN: gpu.StateLost,
		nvml.ERROR_RESET_REQUIRED: gpu.StateNeedsReset, nvml.ERROR_NO_PERMISSION: gpu.StateUnknown,
		nvml.ERROR_IRQ_ISSUE: gpu.StateUnknown,
	} {
		m := dgx(4)
		m.lose(1, ret)
		got := probed(t, m.prober(t))
		card := got.GPUs[1]
		same(t, ret.Error(), card.State, want)
		same(t, "index", card.Index, 1)
		if card.Why["state"] == "" || card.Why["memory.total"] != card.Why["state"] {
			t.Errorf("%v: reasons %q, %q", ret, card.Why["state"], card.Why["memory.total"])
		}
		same(t, "links", got.Links, `[[X  NV12 NV12] [ X  ] [NV12  X NV12] [NV12  NV12 X]]`)
		same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 2, 3}, {1}})
	}
}

func TestAGPULostWhileReadIsAskedNoMore(t *testing.T) {
	m := dgx(2)
	m.gpus[0].GetPersistenceModeFunc = says[nvml.EnableState](nvml.ERROR_GPU_IS_LOST)
	m.gpus[0].GetComputeModeFunc = says[nvml.ComputeMode](nvml.ERROR_GPU_IS_LOST)
	m.gpus[0].GetTotalEccErrorsFunc = nil // to call it would end the test
	got := probed(t, m.prober(t))
	card := got.GPUs[0]
	same(t, "state", card.State, gpu.StateLost)
	same(t, "UUID and PCI", card.UUID+" "+card.PCI, "GPU-0 0000:07:00.0")
	same(t, "memory", show(card.Memory.Total), 40<<30)
	same(t, "reason", card.Why["ecc.enabled"], `NVML says "ERROR_GPU_IS_LOST"`)
	same(t, "link", got.Links[0][1], "")
}

func TestAGPUThatNeedsAResetTellsTheRest(t *testing.T) {
	m := dgx(1)
	m.gpus[0].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		return 0, 0, false, false, nvml.ERROR_RESET_REQUIRED
	}
	m.gpus[0].GetFieldValuesFunc = fields(map[uint32]uint64{nvml.FI_DEV_GET_GPU_RECOVERY_ACTION: 1})
	card := probed(t, m.prober(t)).GPUs[0]
	same(t, "state", card.State, gpu.StateNeedsReset)
	same(t, "recovery", show(card.Recovery), "gpu_reset")
	same(t, "remapped", show(card.Remapped.Pending)+" "+card.Why["remapped.pending"], `nil NVML says "ERROR_RESET_REQUIRED"`)
	same(t, "NVLinks", len(card.NVLinks), 12)
}

func TestUnknownErrorsOfWhatEveryGPUTellsMakeAStateUnknown(t *testing.T) {
	m := dgx(2)
	m.gpus[0].GetMemoryInfo_v2Func = says[nvml.Memory_v2](nvml.ERROR_UNKNOWN)
	m.gpus[0].GetMemoryInfoFunc = says[nvml.Memory](nvml.ERROR_UNKNOWN)
	m.gpus[1].GetComputeModeFunc = says[nvml.ComputeMode](nvml.ERROR_UNKNOWN)
	got := probed(t, m.prober(t))
	same(t, "states", got.GPUs[0].State+" "+got.GPUs[1].State, "unknown ok")
	same(t, "compute mode", got.GPUs[1].Why["compute_mode"], `NVML says "ERROR_UNKNOWN"`)
}

func TestALostGPUIsKnownFromTheProbeBefore(t *testing.T) {
	m := dgx(4)
	p := m.prober(t)
	probed(t, p)
	m.lose(2, nvml.ERROR_GPU_IS_LOST)
	for range 2 {
		card := probed(t, p).GPUs[2]
		same(t, "GPU", strings.Join([]string{card.UUID, card.PCI, card.Name, card.State}, " "), "GPU-2 0000:09:00.0 Mock NVIDIA A100-SXM4-40GB lost")
		same(t, "reason for what is there", card.Why["uuid"]+card.Why["pci"]+card.Why["name"], "")
	}
}

// driverLists makes the driver's folder with GPUs of these positions.
func driverLists(t *testing.T, p *Prober, gpus ...int) {
	t.Helper()
	for _, i := range gpus {
		folder := filepath.Join(p.folder, pciAddress(i))
		text := "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 123\nGPU UUID: \t GPU-driver-" + pciAddress(i) + "\nBus Location: \t " + pciAddress(i) + "\n"
		if i == 3 {
			text = "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "information"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALostGPUIsKnownFromTheDriversFolder(t *testing.T) {
	m := dgx(4)
	m.lose(1, nvml.ERROR_GPU_IS_LOST)
	m.lose(3, nvml.ERROR_UNKNOWN)
	p := m.prober(t)
	driverLists(t, p, 0, 1, 2, 3)
	got := probed(t, p)
	same(t, "GPU 1", got.GPUs[1].PCI+" "+got.GPUs[1].UUID, "0000:08:00.0 GPU-driver-0000:08:00.0")
	same(t, "GPU 3", got.GPUs[3].PCI+" "+got.GPUs[3].UUID+got.GPUs[3].Name, "0000:0a:00.0 ")
	same(t, "notes", got.Notes, []string{})
}

func TestWhatTheDriversFolderHasMoreIsNotGuessedAt(t *testing.T) {
	m := dgx(3)
	m.lose(1, nvml.ERROR_GPU_IS_LOST)
	p := m.prober(t)
	driverLists(t, p, 0, 1, 2, 3)
	got := probed(t, p)
	same(t, "PCI", got.GPUs[1].PCI, "")
	same(t, "notes", got.Notes, []string{"NVML does not show all GPUs that the driver has, as in a container or a job's cgroup: 2 less"})
}

func TestAddressesComeFromWhicheverFieldHasOne(t *testing.T) {
	legacy := nvml.PciInfo{}
	for i, c := range "0000:0F:00.0" {
		legacy.BusIdLegacy[i] = int8(c)
	}
	same(t, "old", address(legacy), "0000:0f:00.0")
	same(t, "numbers", address(nvml.PciInfo{Domain: 0x10000, Bus: 0x1b, Device: 3}), "10000:1b:03.0")
	same(t, "new", address(pciInfo(8)), "0000:0f:00.0")
}
