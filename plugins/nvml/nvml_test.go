//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidia"
)

func TestADGXIsReadWhole(t *testing.T) {
	m := dgx(8)
	got := probed(t, m.prober(t))
	same(t, "source", got.Source, "nvml")
	same(t, "driver and CUDA", show(got.Driver)+" "+show(got.CUDA), "550.54.15 12.4")
	same(t, "GPUs", len(got.GPUs), 8)
	same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 1, 2, 3, 4, 5, 6, 7}})
	same(t, "links", got.Links[0], []string{"X", "NV12", "NV12", "NV12", "NV12", "NV12", "NV12", "NV12"})
	same(t, "machine's reasons", got.Why, map[string]string{})
	same(t, "notes", got.Notes, []string{})

	card := got.GPUs[5]
	links := card.NVLinks
	same(t, "NVLinks", len(links), 12)
	want := gpu.GPU{
		Index: 5, UUID: "GPU-5", PCI: "0000:0c:00.0", Name: "Mock NVIDIA A100-SXM4-40GB", State: gpu.StateOK,
		PCIe:      gpu.PCIe{Generation: new(1), GenerationMax: new(4), Width: new(16), WidthMax: new(16)},
		Memory:    gpu.Memory{Total: new(uint64(40 << 30)), Used: new(uint64(1 << 30)), Reserved: new(uint64(600 << 20))},
		Processes: []gpu.Process{}, ComputeMode: new("default"),
		MIG:       gpu.MIG{Enabled: new(false), Pending: new(false), Instances: []gpu.MIGInstance{}},
		ECC:       gpu.ECC{Enabled: new(true), Volatile: new(uint64(2)), Aggregate: new(uint64(7)), SRAMVolatile: new(uint64(2))},
		Remapped:  gpu.Remapped{Correctable: new(1), Uncorrectable: new(2), Pending: new(true), Failed: new(false)},
		Throttled: []string{}, Recovery: new("none"), NVLinks: links, Persistence: new(true), Fabric: new("completed"),
		Why: map[string]string{
			"retired.single_bit": "not supported by this GPU", "retired.double_bit": "not supported by this GPU",
			"retired.pending": "not supported by this GPU",
		},
	}
	if !reflect.DeepEqual(card, want) {
		t.Errorf("GPU 5 is\n%+v, not\n%+v", card, want)
	}
}

func TestNVMLIsLeftAfterEachProbe(t *testing.T) {
	m := dgx(2)
	p := m.prober(t)
	probed(t, p)
	m.DeviceGetCountFunc = says[int](nvml.ERROR_UNKNOWN)
	if _, err := p.Probe(t.Context()); err == nil {
		t.Error("no error without a number of GPUs")
	}
	same(t, "starts and ends", []int{m.inits, m.downs}, []int{2, 2})
}

func TestAStoppedProbeEndsBetweenGPUs(t *testing.T) {
	m := dgx(8)
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	m.gpus[3].GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) {
		stop(why)
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	m.gpus[4].GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) {
		t.Error("GPU 4 is asked")
		return 0, nvml.SUCCESS
	}
	if _, err := m.prober(t).Probe(ctx); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	same(t, "ends", m.downs, 1)
}

func TestProbesTakeTurns(t *testing.T) {
	m := dgx(1)
	p := m.prober(t)
	p.turn <- struct{}{}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := p.Probe(ctx); !errors.Is(err, context.Canceled) || m.inits > 0 {
		t.Errorf("error %v after %d starts", err, m.inits)
	}
}

func TestAMachineWithoutGPUsIsNoError(t *testing.T) {
	got := probed(t, dgx(0).prober(t))
	if got.GPUs == nil || len(got.GPUs) != 0 || got.Links == nil || len(got.Notes) != 1 {
		t.Errorf("%+v", got)
	}
	same(t, "driver", show(got.Driver), "550.54.15")
}

func TestWhyNVMLDoesNotStart(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_DRIVER_NOT_LOADED:       "modprobe nvidia",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "different versions",
		nvml.ERROR_NO_PERMISSION:           "/dev/nvidia*",
		nvml.ERROR_UNKNOWN:                 "restart the container",
		nvml.ERROR_TIMEOUT:                 `does not start (NVML: "ERROR_TIMEOUT")`,
	} {
		m := dgx(1)
		m.InitFunc = func() nvml.Return { return ret }
		if _, err := m.prober(t).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", ret, err)
		}
	}
}

func TestWithoutALibraryTheErrorSaysWhereItWasLookedFor(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/opt/somewhere")
	_, err := load("")
	if err == nil {
		t.Log("this machine has an NVIDIA driver")
		return
	}
	missing, is := errors.AsType[*NotFoundError](err)
	if !is {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"loader's own", "/opt/somewhere", "more usual places"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	for _, want := range []string{"/usr/lib/wsl/lib", "/run/opengl-driver/lib"} {
		if !slices.Contains(missing.Looked, want) {
			t.Errorf("not looked in %s", want)
		}
	}
	same(t, "refused", missing.Refused, []string{})
}

func TestALibraryThatDoesNotLoadIsNotCalledMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), nvidia.Library)
	if err := os.WriteFile(file, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	failure := &NotFoundError{}
	if failure.open(file, "there") != nil || len(failure.Refused) != 1 || len(failure.Looked) != 0 {
		t.Errorf("%+v", failure)
	}
	failure.open("/nowhere/"+nvidia.Library, "/nowhere")
	text := failure.Error()
	if !strings.HasPrefix(text, "cannot load "+nvidia.Library) || !strings.Contains(text, "also looked in /nowhere") {
		t.Error(text)
	}
	if _, err := Open(file).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("named path: %v", err)
	}
}
