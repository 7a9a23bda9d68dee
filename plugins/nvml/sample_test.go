//go:build linux && cgo

package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// sampled takes a sample. Whatever is nil has a reason.
func sampled(t *testing.T, p *Prober) *gpu.Samples {
	t.Helper()
	found, err := p.Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range found.GPUs {
		for _, name := range found.GPUs[i].Unknown() {
			if found.GPUs[i].Why[name] == "" {
				t.Errorf("GPU %d: %s is nil without a reason", i, name)
			}
		}
	}
	return found
}

// working lets a GPU of the mock do something.
func (m *machine) working(index int, card, memory uint32) {
	m.gpus[index].GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: card, Memory: memory}, nvml.SUCCESS
	}
}

func TestSamplesInitialiseNVMLOnceAndAProbeBesideThemLeavesItSo(t *testing.T) {
	m := dgx(2)
	m.working(0, 97, 41)
	m.gpus[1].GetUtilizationRatesFunc = says[nvml.Utilization](nvml.ERROR_NOT_SUPPORTED)
	p := m.prober(t)
	for range 3 {
		got := sampled(t, p)
		same(t, "GPU 0", show(got.GPUs[0].Utilization.GPU)+" "+show(got.GPUs[0].Utilization.Memory), "97 41")
		same(t, "GPU 1", got.GPUs[1].Why["utilization.gpu"], "not supported by this GPU")
		same(t, "UUID", got.GPUs[1].UUID, "GPU-1")
	}
	same(t, "inits and shutdowns", []int{m.inits, m.downs}, "[1 0]")
	probed(t, p)
	same(t, "inits and shutdowns after a probe", []int{m.inits, m.downs}, "[2 1]")
}

func TestASampleTellsWhatAProbeTells(t *testing.T) {
	m := dgx(2)
	m.working(0, 0, 0)
	m.working(1, 0, 0)
	p := m.prober(t)
	probe, sample := probed(t, p), sampled(t, p)
	for i := range probe.GPUs {
		same(t, "memory", show(sample.GPUs[i].Memory.Used), show(probe.GPUs[i].Memory.Used))
		same(t, "processes", len(sample.GPUs[i].Processes), len(probe.GPUs[i].Processes))
		for j, want := range probe.GPUs[i].Processes {
			got := sample.GPUs[i].Processes[j]
			same(t, "process", []any{got.PID, got.Name, got.Kind, show(got.Memory)}, []any{want.PID, want.Name, want.Kind, show(want.Memory)})
		}
	}
}

func TestAGPULostBetweenSamplesIsAskedNoMore(t *testing.T) {
	m := dgx(1)
	m.working(0, 50, 5)
	p := m.prober(t)
	same(t, "state", sampled(t, p).GPUs[0].State, gpu.StateOK)
	m.gpus[0].GetMemoryInfo_v2Func = says[nvml.Memory_v2](nvml.ERROR_GPU_IS_LOST)
	m.gpus[0].GetUtilizationRatesFunc = nil // to call it would end the test
	for range 2 {
		got := sampled(t, p).GPUs[0]
		same(t, "state", got.State, gpu.StateLost)
		same(t, "memory and UUID", show(got.Memory.Used)+" "+got.UUID, "nil GPU-0")
	}
}

func TestAMIGInstanceIsSampledByItsOwnMemory(t *testing.T) {
	m := dgx(1)
	parted(m.gpus[0], migDevice("MIG-a", "NVIDIA A100 MIG 3g.20gb", 1, 0, 20<<30))
	m.gpus[0].GetUtilizationRatesFunc = says[nvml.Utilization](nvml.ERROR_NOT_SUPPORTED)
	got := sampled(t, m.prober(t))
	used, total := got.Used("MIG-a")
	same(t, "used and total", show(used)+" "+show(total), "17825792 21474836480")
}

func TestWhatKeepsNVMLFromStartingIsSaidByASample(t *testing.T) {
	m := dgx(1)
	m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	if _, err := m.prober(t).Sample(t.Context()); err == nil {
		t.Error("no error")
	}
}

// BenchmarkSampleOfEightGPUs is what a sample costs beside the driver itself.
func BenchmarkSampleOfEightGPUs(b *testing.B) {
	m := dgx(8)
	for i := range m.gpus {
		m.working(i, 97, 41)
	}
	p := New(m)
	for b.Loop() {
		if _, err := p.Sample(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
