package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/observe"
)

const noNumbers = "RuntimeError: CUDA error: out of memory"

// torchSaw is what torch told before an out of memory.
func torchSaw() []observe.TorchDevice {
	largest := uint64(512 << 20)
	return []observe.TorchDevice{
		{Device: 0, At: 99.6, Allocated: 60 << 30, Reserved: 70 << 30, LargestFree: &largest, OOM: &observe.TorchOOM{Requested: 2 << 30, Total: card, Free: 1 << 30}},
		{Device: 0, At: 91, Allocated: 1 << 30, Reserved: 2 << 30}, // a child's
		{Device: 1, At: 99.6, Allocated: 3 << 30, Reserved: 4 << 30},
	}
}

// reported gives evidence what torch reported.
func reported(e Evidence, devices []observe.TorchDevice) Evidence {
	e.Age, e.Observed = 100, &observe.Latest{Torch: &observe.Torch{Devices: devices}}
	return e
}

func TestTorchsOwnNumbersAreThereWhereTheErrorHasNone(t *testing.T) {
	e := onGPU(noNumbers, func(g []GPU) { g[0].Before = &Use{Total: card, Used: 79 << 30} })
	e = reported(e, torchSaw())
	v := Classify(e)
	for name, want := range map[string]float64{
		verdict.NumAllocated: 60 << 30, verdict.NumReserved: 70 << 30, verdict.NumUnallocated: 10 << 30, verdict.NumLargestFree: 512 << 20,
		verdict.NumDeviceUsed: 79 << 30, verdict.NumDeviceTotal: card, verdict.NumRequested: 2 << 30, verdict.NumFree: 1 << 30,
	} {
		if v.Numbers[name] != want {
			t.Errorf("%s is %.0f, want %.0f", name, v.Numbers[name], want)
		}
	}
	if !strings.HasPrefix(v.Class, "oom.") || !strings.Contains(strings.Join(v.Evidence, "\n"), "torch itself told, 0.4 s before the end, of 60.00 GiB in tensors and 70.00 GiB held on its cuda:0") {
		t.Errorf("%+v", v)
	}
}

func TestTheErrorsOwnNumbersStandBeforeTorchs(t *testing.T) {
	e := onGPU(full80("0"), func([]GPU) {})
	e = reported(e, torchSaw())
	v := Classify(e)
	if v.Numbers[verdict.NumAllocated] != 70<<30 || v.Numbers[verdict.NumRequested] != 2<<30 || strings.Contains(strings.Join(v.Evidence, "\n"), "torch itself") {
		t.Errorf("%+v", v)
	}
}

func TestNumbersOfADeviceThatIsNotTheFailedOneAreNotTaken(t *testing.T) {
	several := wrote(noNumbers) // no plan says which device is the rank's
	several = reported(several, torchSaw())
	other := onGPU(noNumbers, func([]GPU) {})
	other = reported(other, torchSaw()[2:])
	host := reported(Evidence{Signal: "SIGKILL", Worker: evidence.Worker{Memory: evidence.Memory{CgroupBefore: count(0), CgroupAfter: count(1)}}}, torchSaw()[:1])
	for name, e := range map[string]Evidence{"several": several, "another": other, "the host's memory": host} {
		if v := Classify(e); v.Numbers[verdict.NumAllocated] != 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	alone := wrote(noNumbers)
	alone = reported(alone, torchSaw()[:2])
	if v := Classify(alone); v.Numbers[verdict.NumAllocated] != 60<<30 {
		t.Errorf("one device only: %+v", v)
	}
}

func TestWhereAWorkerWasIsSaid(t *testing.T) {
	e := wrote("Segmentation fault")
	e.Observed = &observe.Latest{Phase: "eval", Torch: &observe.Torch{Snapshots: []string{"/state/rank-0.pid-1.oom-1.pickle"}}}
	notes := strings.Join(Classify(e).Notes, "\n")
	if !strings.Contains(notes, "it had come to phase eval") || !strings.Contains(notes, "snapshot of its memory is in /state/rank-0.pid-1.oom-1.pickle") {
		t.Error(notes)
	}
	if v := Classify(Evidence{Worker: evidence.Worker{Observed: &observe.Latest{Phase: "eval"}}}); v.Class != class.None {
		t.Errorf("%+v", v)
	}
}
