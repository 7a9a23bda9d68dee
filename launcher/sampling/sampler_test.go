//go:build linux

package sampling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// holding is a sample of one GPU with processes that hold so many bytes.
func holding(at link.Instant, used uint64, held map[int]uint64) Kept {
	g := gpu.Sample{UUID: "GPU-a", State: gpu.StateOK, Memory: gpu.Memory{Used: &used, Total: new(uint64(100))},
		Utilization: gpu.Utilization{GPU: new(97), Memory: new(41)}, Processes: []gpu.Process{}}
	for pid, bytes := range held {
		g.Processes = append(g.Processes, gpu.Process{PID: pid, Memory: new(bytes)})
	}
	return Kept{GPUs: &gpu.Samples{GPUs: []gpu.Sample{g}}, at: at, taken: time.Now()}
}

// measuring is one of rank 0, this process with a child that is not there, on GPU-a.
func measuring(t *testing.T) *Sampler {
	t.Helper()
	file := NewFile(filepath.Join(t.TempDir(), FileName), func(_ context.Context, message string) { t.Error(message) })
	s := newSampler(Means{File: file}, 0, 2, []Rank{{Rank: 0, Slot: 0, Device: "GPU-a"}, {Rank: 1, Slot: 1, Device: "GPU-b"}})
	s.know(map[int]Owner{os.Getpid(): {Rank: 0}, 1 << 30: {Rank: 0, Child: true}})
	t.Cleanup(file.Close)
	return s
}

// settle waits until the disk has all that was measured.
func settle(t testing.TB, f *File) {
	t.Helper()
	done := make(chan struct{})
	f.jobs <- func() error { close(done); return nil }
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the disk takes nothing")
	}
}

func TestARankIsMeasuredByItsProcessesAndItsDevice(t *testing.T) {
	s := measuring(t)
	s.kept = []Kept{holding(1, 50, map[int]uint64{os.Getpid(): 30, 1 << 30: 10, 4242: 5})}
	s.measureOnce(time.Now())
	v := s.ranks[0].now
	if v[samples.DeviceUsed] != 50 || v[samples.Process] != 40 || v[samples.GPU] != 97 || v[samples.Traffic] != 41 || v[samples.RSS] < 1<<20 {
		t.Errorf("rank 0: %v", v)
	}
	if v := s.ranks[1].now; !math.IsNaN(v[samples.RSS]) || len(s.ranks[1].peaks) > 0 {
		t.Errorf("rank 1, of which no process is there: %v", v)
	}
	d := s.digest(time.Now())
	if len(d.Ranks) != 1 || d.Ranks[0].Processes != 2 || d.Ranks[0].Total != 100 || len(d.Others) != 1 || d.Others[0].PID != 4242 || *d.Others[0].Bytes != 5 {
		t.Errorf("the digest is %+v", d)
	}
}

// A driver that hangs leaves the last sample behind, which tells nothing of now.
func TestASampleOfDevicesThatIsOldDoesNotCount(t *testing.T) {
	s := measuring(t)
	s.kept = []Kept{holding(1, 50, nil)}
	s.kept[0].taken = time.Now().Add(-time.Minute)
	s.measureOnce(time.Now())
	if v := s.ranks[0].now; !math.IsNaN(v[samples.DeviceUsed]) || math.IsNaN(v[samples.RSS]) {
		t.Errorf("%v", v)
	}
}

func TestAmountsThatAreNotToldAreNotKnown(t *testing.T) {
	pids := map[int]Owner{7: {Rank: 0}}
	known := holding(1, 50, map[int]uint64{7: 30})
	without := holding(1, 50, map[int]uint64{7: 30})
	without.GPUs.GPUs[0].Processes[0].Memory = nil
	unlisted := holding(1, 50, nil)
	unlisted.GPUs.GPUs[0].Processes = nil
	for name, c := range map[string]struct {
		sample Kept
		want   float64
		known  bool
	}{
		"told":                       {known, 30, true},
		"an amount is not":           {without, 0, false},
		"processes are not":          {unlisted, 0, false},
		"nobody of the rank's there": {holding(1, 50, map[int]uint64{9: 30}), 0, proc.InFirstNamespace()},
	} {
		if got, is := heldBy(c.sample, pids, 0, "GPU-a"); got != c.want || is != c.known {
			t.Errorf("%s: %v, %v", name, got, is)
		}
	}
}

// The driver frees a process's memory before anybody hears of its end.
func TestWhatARankHeldIsFromTheLastSampleInWhichItHeldSomething(t *testing.T) {
	s := measuring(t)
	pids := map[int]Owner{7: {Rank: 0}}
	for i, held := range []map[int]uint64{{7: 30}, {7: 60}, {9: 5}, {9: 6}} {
		k := holding(link.Instant(10*(i+1)), 50, held)
		k.Owners = pids
		s.kept = append(s.kept, k)
	}
	for at, want := range map[link.Instant]link.Instant{45: 20, 25: 20, 15: 10} {
		if k := s.Before(0, at); k == nil || k.at != want {
			t.Errorf("at %d: %+v, want that of %d", at, k, want)
		}
	}
	if k := s.Before(0, 5); k != nil {
		t.Errorf("before all: %+v", k)
	}
	if k := s.Before(1, 45); k == nil || k.at != 40 {
		t.Errorf("of one that held nothing: %+v", k)
	}
}

func TestSamplesOfDevicesAreTakenAtTheirPaceAndSeldomAfterAFailure(t *testing.T) {
	s := measuring(t)
	for _, c := range []struct {
		found *gpu.Samples
		err   error
		want  time.Duration
	}{
		{&gpu.Samples{}, nil, Pace},
		{&gpu.Samples{Every: 30}, nil, 30 * time.Second},
		{nil, errors.New("the driver hangs"), sampleRetry},
		{nil, &external.Error{Kind: external.KindUnsupported, Text: "it does not implement Sample"}, -1},
	} {
		if got := s.take(c.found, c.err); got != c.want || (s.why == "") != (c.err == nil) {
			t.Errorf("%+v, %v: %v, %q", c.found, c.err, got, s.why)
		}
	}
	for range 10 {
		s.take(&gpu.Samples{}, nil)
	}
	if len(s.kept) != samplesKept {
		t.Errorf("%d samples are kept", len(s.kept))
	}
}

func TestRanksThatStartAloneAreAddedAndLeaveWithTheirPeaks(t *testing.T) {
	s := measuring(t)
	s.measureOnce(time.Now())
	if peaks := s.Leave(0, 0); len(peaks) != 1 {
		t.Errorf("peaks %+v", peaks)
	}
	s.Add([]Rank{{Rank: 17, Attempt: 2, Slot: 0}})
	if !s.isBehind() {
		t.Error("nobody looks for the processes of a rank that was added")
	}
	s.know(map[int]Owner{os.Getpid(): {Rank: 17}})
	s.measureOnce(time.Now())
	if s.Leave(17, 1) != nil || len(s.ranks) != 2 {
		t.Error("an earlier attempt takes a later one's peaks away")
	}
	s.File.Close()
	series, err := samples.Read(s.File.path)
	if err != nil {
		t.Fatal(err)
	}
	lines := series.Lines()
	if !slices.ContainsFunc(lines, func(l samples.Line) bool { return l.Rank == 17 && l.Attempt == 2 }) {
		t.Errorf("kept are %+v", lines)
	}
}

// BenchmarkASecondOfSampling is what the agent does each second for eight ranks of nine processes each on eight GPUs;
// 0.5 % of a core are 5 ms.
func BenchmarkASecondOfSampling(b *testing.B) {
	file := NewFile(filepath.Join(b.TempDir(), FileName), func(_ context.Context, message string) { b.Error(message) })
	var ranks []Rank
	pids := map[int]Owner{}
	k := holding(1, 50, nil)
	k.GPUs.GPUs = nil
	for rank := range 8 {
		uuid := string(rune('a' + rank))
		ranks = append(ranks, Rank{Rank: rank, Slot: rank, Device: uuid})
		g := holding(1, 50, map[int]uint64{rank + 1: 30}).GPUs.GPUs[0]
		g.UUID = uuid
		k.GPUs.GPUs = append(k.GPUs.GPUs, g)
		for child := range 9 {
			sleeps := exec.Command("sleep", "1000")
			if err := sleeps.Start(); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { sleeps.Process.Kill(); sleeps.Wait() })
			pids[sleeps.Process.Pid] = Owner{Rank: rank, Child: child > 0}
		}
	}
	s := newSampler(Means{File: file}, 0, 8, ranks)
	s.know(pids)
	s.kept = []Kept{k}
	now := time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		s.kept[0].taken = now
		s.measureOnce(now)
		settle(b, s.File)
	}
	s.File.Close()
}

// Hours pass at once here: what is measured at them is kept and judged as in real ones.
func TestGrowthOverHoursIsToldWithWhoseItIs(t *testing.T) {
	const mib = 1 << 20
	// How much is in use, of it the rank's, reserved by torch (0: it does not tell) and in tensors, all in MiB.
	type numbers struct{ used, own, reserved, allocated uint64 }
	for name, c := range map[string]struct {
		kind string
		at   func(minute uint64) numbers
	}{
		"tensors":             {samples.KindTensors, func(m uint64) numbers { return numbers{900 + 8*m, 800 + 8*m, 700 + 8*m, 600 + 8*m} }},
		"the allocator":       {samples.KindCache, func(m uint64) numbers { return numbers{900 + 8*m, 800 + 8*m, 700 + 8*m, 600} }},
		"outside torch":       {samples.KindOutside, func(m uint64) numbers { return numbers{900 + 8*m, 800 + 8*m, 700, 600} }},
		"torch does not tell": {samples.KindDevice, func(m uint64) numbers { return numbers{900 + 8*m, 800 + 8*m, 0, 0} }},
		"somebody else":       {samples.KindForeign, func(m uint64) numbers { return numbers{900 + 8*m, 800, 700, 600} }},
		"it levels off":       {"", func(m uint64) numbers { return numbers{900 + min(8*m, 200), 800 + min(8*m, 200), 700, 600} }},
		"a saw-tooth":         {"", func(m uint64) numbers { return numbers{3000, 800 + 100*(m%20), 700 + 100*(m%20), 600 + 100*(m%20)} }},
		"evaluations":         {"", func(m uint64) numbers { return numbers{3000, 800 + 1000*(m/15%2), 700 + 1000*(m/15%2), 600} }},
	} {
		s := measuring(t)
		record := observe.NewRecord(os.Getpid(), true)
		s.ranks[0].Reported, s.ranks[0].Began = record.Latest, link.Now()
		start := time.Now()
		for second := 0; second < 3*3600; second += 10 {
			n := c.at(uint64(second / 60))
			k := holding(1, n.used*mib, map[int]uint64{os.Getpid(): n.own * mib})
			k.taken = start.Add(time.Duration(second) * time.Second)
			k.GPUs.GPUs[0].Memory.Total = new(uint64(8 << 30))
			s.kept = []Kept{k}
			if n.reserved > 0 {
				record.Take(fmt.Appendf(nil, "torch device 0 allocated=%d reserved=%d", n.allocated*mib, n.reserved*mib), os.Getpid(), 0)
			}
			s.measureOnce(k.taken)
			settle(t, s.File)
		}
		s.judge()
		settle(t, s.File)
		var found []string
		for _, g := range s.digest(time.Now()).Ranks[0].Growth {
			found = append(found, g.Kind)
			if g.Slope < 440*mib || g.Slope > 520*mib || g.FullIn == 0 {
				t.Errorf("%s: %+v", name, g)
			}
		}
		if want := slices.DeleteFunc([]string{c.kind}, func(k string) bool { return k == "" }); !slices.Equal(found, want) {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

func TestWhatARankTellsOfTorchIsOfItsOwnDeviceAndOfNow(t *testing.T) {
	s := measuring(t)
	record := observe.NewRecord(os.Getpid(), true)
	r := s.ranks[0]
	r.Reported, r.Began = record.Latest, link.Now()
	record.Take([]byte("torch device 0 allocated=5 reserved=7 largest_free=1\ntorch device 1 allocated=900 reserved=900\nphase evaluation"), os.Getpid(), 0)
	record.Take([]byte("torch device 0 allocated=2 reserved=3 largest_free=2"), os.Getpid()+1, 0)
	v := samples.None()
	if phase := r.fillTorch(&v, samples.PhaseLater); phase != "evaluation" || v[samples.Allocated] != 7 || v[samples.Reserved] != 10 || v[samples.LargestFree] != 2 {
		t.Errorf("%s: %v", phase, v)
	}
	for i := range maxPhases {
		r.peaks = samples.Raise(r.peaks, 0, fmt.Sprint("phase ", i), v)
	}
	v, r.Began = samples.None(), link.Now().Add(-time.Hour)
	if phase := r.fillTorch(&v, samples.PhaseLater); phase != samples.PhaseLater || !math.IsNaN(v[samples.Allocated]) {
		t.Errorf("an hour later, after many phases: %s: %v", phase, v)
	}
}
