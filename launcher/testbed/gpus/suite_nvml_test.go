//go:build linux && cgo

package gpus_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi"
	"github.com/muster-dev/muster/plugins/nvml"
)

func init() {
	probers = append(probers, prober{nvml.Source, func(p gpus.Programs) gpu.Prober { return nvml.Open(p.Library) }})
}

// What both probers tell of a machine must be the same.
func TestBothProbersTellTheSame(t *testing.T) {
	built := programs(t)
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			busied(t, machine(t, s), s)
			ctx, cancel := context.WithTimeout(t.Context(), probeTime)
			defer cancel()
			var found [2]*gpu.Inventory
			for i, p := range probers {
				found[i], _ = p.new(built).Probe(ctx)
			}
			a, b := found[0], found[1]
			if (a == nil) != (b == nil) {
				t.Fatalf("%s finds %v, %s finds %v", probers[0].name, a, probers[1].name, b)
			}
			if a == nil {
				return
			}
			if len(a.GPUs) != len(b.GPUs) {
				t.Fatalf("%d and %d GPUs", len(a.GPUs), len(b.GPUs))
			}
			for i := range a.GPUs {
				sameGPU(t, &a.GPUs[i], &b.GPUs[i])
			}
		})
	}
}

func sameGPU(t *testing.T, smi, nvml *gpu.GPU) {
	t.Helper()
	told := tell(nvml)
	for name, value := range tell(smi) {
		other, is := told[name]
		if name == "nvlinks" && allInactive(smi.NVLinks) && allInactive(nvml.NVLinks) || value == "" || other == "" {
			continue
		}
		if is && !reflect.DeepEqual(value, other) {
			t.Errorf("GPU %d: %s is %v by %s, %v by NVML", smi.Index, name, value, nvidiasmi.Source, other)
		}
	}
}

// look probes by NVML in this process.
func look(t *testing.T, s *gpus.Scenario) (*gpu.Inventory, error) {
	t.Helper()
	machine(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), probeTime)
	defer cancel()
	library, err := gpus.Library(s)
	if err != nil {
		t.Fatal(err)
	}
	return nvml.Open(library).Probe(ctx)
}

// A driver 470 lacks what later ones brought.
func TestNVMLOfAnOldDriver(t *testing.T) {
	s := gpus.DGXA100()
	s.Driver, s.CUDA = "470.239.06", "11.4"
	s.Lacks = []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV",
		"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}
	s.GPUs[0].Throttled = []string{"sw_power_cap"}
	found, err := look(t, s)
	if err != nil {
		t.Fatal(err)
	}
	g := found.GPUs[0]
	if g.Memory.Reserved != nil || g.Why["memory.reserved"] == "" {
		t.Errorf("reserved memory: %v (%q)", g.Memory.Reserved, g.Why["memory.reserved"])
	}
	if want := *s.GPUs[0].Memory.Reserved; g.Memory.Used == nil || *g.Memory.Used != want {
		t.Errorf("used memory is %v, want %d: it includes what the driver keeps", g.Memory.Used, want)
	}
	if !slices.Equal(g.Throttled, []string{"sw_power_cap"}) {
		t.Errorf("throttled: %v", g.Throttled)
	}
	if g.Processes == nil {
		t.Errorf("processes: %s", g.Why["processes"])
	}
}

func TestNVMLFunctionsFailOnPurpose(t *testing.T) {
	s := gpus.L40S()
	s.Faults = []gpus.Fault{{Function: "nvmlDeviceGetComputeMode", GPU: new(2), Do: "error", Error: 999}}
	found, err := look(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range found.GPUs {
		if known := g.ComputeMode != nil; known == (i == 2) {
			t.Errorf("GPU %d: compute mode known: %v (%s)", i, known, g.Why["compute_mode"])
		}
	}

	s.Faults = []gpus.Fault{{Function: "nvmlDeviceGetComputeMode", GPU: new(0), Do: "hang", Seconds: 1}}
	start := time.Now()
	if _, err := look(t, s); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("a function that hangs for a second took %v", took)
	}
}

// crashVariable in the environment makes TestNVMLCrash the process that crashes.
const crashVariable = "TESTBED_GPUS_CRASH"

func TestNVMLCrash(t *testing.T) {
	if folder := os.Getenv(crashVariable); folder != "" {
		_, err := nvml.Open(programs(t).Library).Probe(t.Context())
		t.Fatalf("still here: %v", err)
	}
	s := gpus.L40S()
	s.Faults = []gpus.Fault{{Function: "nvmlDeviceGetMemoryInfo_v2", Do: "crash"}}
	folder := machine(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestNVMLCrash$")
	cmd.Env = append(os.Environ(), crashVariable+"="+folder)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || strings.Contains(string(out), "still here") {
		t.Errorf("a library that crashes ends the process with %v: %s", err, out)
	}
}

// initialised is the library itself on a machine, until the test ends.
func initialised(t *testing.T, s *gpus.Scenario) (lib gonvml.Interface, folder string) {
	t.Helper()
	folder = machine(t, s)
	lib = gonvml.New(gonvml.WithLibraryPath(programs(t).Library))
	check(t, "init", lib.Init())
	t.Cleanup(func() { lib.Shutdown() })
	return lib, folder
}

func check(t *testing.T, what string, ret gonvml.Return) {
	t.Helper()
	if ret != gonvml.SUCCESS {
		t.Fatalf("%s: %v", what, ret)
	}
}

func TestNVMLFindsDevicesByEveryName(t *testing.T) {
	s := gpus.MIG()
	lib, _ := initialised(t, s)
	second, ret := lib.DeviceGetHandleByPciBusId("0000:0f:00.0")
	check(t, "by PCI address", ret)
	if uuid, _ := second.GetUUID(); uuid != s.GPUs[1].UUID {
		t.Errorf("GPU at 0f:00.0 is %s", uuid)
	}
	if _, ret := lib.DeviceGetHandleByUUID("GPU-none"); ret != gonvml.ERROR_NOT_FOUND {
		t.Errorf("a GPU that is not there: %v", ret)
	}
	mig, ret := lib.DeviceGetHandleByUUID(s.GPUs[0].MIG.Instances[1].UUID)
	check(t, "MIG device by UUID", ret)
	size, ret := mig.GetAttributes()
	check(t, "attributes", ret)
	if size.GpuInstanceSliceCount != 1 || size.MemorySizeMB != 9728 {
		t.Errorf("attributes of a 1g.10gb: %+v", size)
	}
	parent, ret := mig.GetDeviceHandleFromMigDeviceHandle()
	check(t, "parent of the MIG device", ret)
	gi, ret := parent.GetGpuInstanceById(9)
	check(t, "GPU instance 9", ret)
	if info, ret := gi.GetInfo(); ret != gonvml.SUCCESS || info.Id != 9 {
		t.Errorf("GPU instance 9 is %+v (%v)", info, ret)
	}
	if name, ret := lib.SystemGetProcessName(21180); ret != gonvml.SUCCESS || name != "python" {
		t.Errorf("process 21180 is %q (%v)", name, ret)
	}
	cpus, ret := second.GetCpuAffinity(256)
	check(t, "affinity", ret)
	if cpus[0] != 0xffff<<48 || cpus[2] != 0xffff<<48 { // 48-63,176-191
		t.Errorf("affinity %x", cpus)
	}
}

func TestNVMLTellsWhatHappens(t *testing.T) {
	s := gpus.L40S()
	lib, folder := initialised(t, s)
	card, ret := lib.DeviceGetHandleByIndex(1)
	check(t, "by index", ret)
	set, ret := lib.EventSetCreate()
	check(t, "event set", ret)
	defer set.Free()
	check(t, "register", card.RegisterEvents(gonvml.EventTypeXidCriticalError, set))
	if _, ret := set.Wait(20); ret != gonvml.ERROR_TIMEOUT {
		t.Errorf("no event: %v", ret)
	}
	if err := gpus.RaiseXid(folder, s.GPUs[1].UUID, 79); err != nil {
		t.Fatal(err)
	}
	event, ret := set.Wait(5000)
	check(t, "event", ret)
	if uuid, _ := event.Device.GetUUID(); event.EventData != 79 || uuid != s.GPUs[1].UUID {
		t.Errorf("event %d of %s", event.EventData, uuid)
	}
	if err := gpus.RaiseXid(folder, s.GPUs[0].UUID, 13); err != nil { // nobody has asked for it
		t.Fatal(err)
	}
	if event, ret := set.Wait(20); ret != gonvml.ERROR_TIMEOUT {
		t.Errorf("an event of another GPU: %+v, %v", event, ret)
	}
	// The machine changes under the handles.
	s.GPUs[1].State = gpu.StateLost
	if err := s.Write(folder); err != nil {
		t.Fatal(err)
	}
	if _, ret := card.GetMemoryInfo(); ret != gonvml.ERROR_GPU_IS_LOST {
		t.Errorf("a lost GPU answers %v", ret)
	}
	if _, ret := set.Wait(20); ret != gonvml.ERROR_GPU_IS_LOST {
		t.Errorf("a set with a lost GPU says %v", ret)
	}
}

// The prober as a whole over the library: new and old drivers, and GPUs that tell nothing.
func TestTheProberHearsWhatIsRaised(t *testing.T) {
	for name, lacks := range map[string][]string{"new driver": nil, "without nvmlEventSetWait_v2": {"nvmlEventSetWait_v2"}} {
		t.Run(name, func(t *testing.T) {
			s := gpus.L40S()
			s.GPUs[3].NoEvents, s.Lacks = true, lacks
			folder := machine(t, s)
			library, err := gpus.Library(s)
			if err != nil {
				t.Fatal(err)
			}
			p := nvml.Open(library)
			begun, err := p.WatchEvents(t.Context(), 0)
			if err != nil || begun.Unsupported[s.GPUs[3].UUID] != "not supported by this GPU" || len(begun.Unsupported) != 1 {
				t.Fatalf("%+v, %v", begun, err)
			}
			if err := errors.Join(gpus.RaiseXid(folder, s.GPUs[1].UUID, 48), gpus.RaiseECC(folder, s.GPUs[2].UUID, true), gpus.RaiseECC(folder, s.GPUs[0].UUID, false)); err != nil {
				t.Fatal(err)
			}
			heard, err := p.WatchEvents(t.Context(), time.Minute)
			if err != nil || len(heard.Events) != 3 {
				t.Fatalf("%+v, %v", heard, err)
			}
			for i, want := range []gpu.Event{
				{Kind: gpu.EventXid, Xid: 48, UUID: s.GPUs[1].UUID, PCI: s.GPUs[1].PCI}, {Kind: gpu.EventDoubleBit, UUID: s.GPUs[2].UUID, PCI: s.GPUs[2].PCI},
				{Kind: gpu.EventSingleBit, UUID: s.GPUs[0].UUID, PCI: s.GPUs[0].PCI},
			} {
				got := heard.Events[i]
				if got.At = 0; got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
			s.GPUs[0].State = gpu.StateLost
			if err := s.Write(folder); err != nil {
				t.Fatal(err)
			}
			if heard, err = p.WatchEvents(t.Context(), time.Minute); err != nil || len(heard.Events) != 1 || heard.Events[0].Kind != gpu.EventLost || heard.Events[0].UUID != s.GPUs[0].UUID {
				t.Errorf("%+v, %v", heard, err)
			}
		})
	}
}

// samplers take samples of a machine, each in its own way.
func samplers(t *testing.T) map[string]gpu.Sampler {
	t.Helper()
	found := map[string]gpu.Sampler{}
	for _, p := range probers {
		found[p.name] = p.new(programs(t)).(gpu.Sampler)
	}
	return found
}

func TestBothSamplersTellTheSameAndSeeWhatChanges(t *testing.T) {
	s := gpus.Busy()
	folder := machine(t, s)
	all := samplers(t)
	for _, work := range []*gpus.Utilization{nil, {GPU: 0, Memory: 0}, {GPU: 100, Memory: 0}, {GPU: 73, Memory: 12}} {
		s.GPUs[0].Utilization = work
		if err := s.Write(folder); err != nil {
			t.Fatal(err)
		}
		want := gpus.Utilization{GPU: 100, Memory: 40} // somebody works there
		if work != nil {
			want = *work
		}
		for name, sampler := range all {
			got, err := sampler.Sample(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			g := got.GPUs[0]
			if *g.Utilization.GPU != want.GPU || *g.Utilization.Memory != want.Memory {
				t.Errorf("%s says %d %% and %d %%, not %+v", name, *g.Utilization.GPU, *g.Utilization.Memory, want)
			}
			if len(g.Processes) == 0 || *g.Memory.Used>>20 != 15360 {
				t.Errorf("%s says %+v", name, g)
			}
		}
	}
}
