package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func told(lines ...string) *Record {
	r := NewRecord(100, true)
	for i, line := range lines {
		r.Take([]byte(line), 100, float64(i+1))
	}
	return r
}

func TestTheNewestOfEachWordIsKept(t *testing.T) {
	l := told("step 1", "value loss 2.5", "phase train", "step 7\nvalue loss 1.25\n", "phase eval of set 2", "value lr 3e-4", "checkpoint /data/ck point/7").Latest()
	want := map[string]Value{"loss": 1.25, "lr": 3e-4}
	if l.Progress != (Mark{-1, 7}) || l.ProgressAt != 4 || l.Phase != "eval of set 2" || !reflect.DeepEqual(l.Values, want) || l.Checkpoint != "/data/ck point/7" || l.CheckpointAt != 7 || l.Refused != 0 {
		t.Errorf("%+v", l)
	}
}

func TestStepsCountWithinTheirEpochAndNeverBack(t *testing.T) {
	l := told("epoch 0", "step 5", "epoch 1", "step 2", "step 1").Latest()
	if l.First != (Mark{0, -1}) || l.Furthest != (Mark{1, 2}) || l.FurthestAt != 4 || l.Progress != (Mark{1, 1}) {
		t.Errorf("%+v", l)
	}
}

func TestWhatIsNoMessageIsRefusedWithItsReason(t *testing.T) {
	for line, why := range map[string]string{
		"step":                                  "no whole number",
		"step -1":                               "no whole number",
		"step 1.5":                              "no whole number",
		"step 99999999999999999999":             "no whole number",
		"loss 3":                                "the first word is none of",
		"STEP 3":                                "the first word is none of",
		"value loss":                            "no number",
		"value loss low":                        "no number",
		"value":                                 "the name of a value",
		"value " + strings.Repeat("x", 65):      "the name of a value",
		"checkpoint ck/7":                       "absolute path",
		"phase " + strings.Repeat("x", 81):      "a phase is",
		"phase \x1b[31mred":                     "control characters",
		"step \xff":                             "no UTF-8",
		"phase " + strings.Repeat("x", MaxLine): "a line has at most",
		"torch device 0 allocated=-1":           "no NAME=NUMBER",
		"torch device 99 allocated=1":           "no number of a device",
		"torch memory 3":                        "none of the hook's words",
	} {
		l := told(line).Latest()
		if l.Refused != 1 || !strings.Contains(l.RefusedWhy, why) || len(l.RefusedWhy) > 500 {
			t.Errorf("%.40q: refused %d: %s", line, l.Refused, l.RefusedWhy)
		}
	}
}

func TestNumbersThatAreNoneSurviveJSON(t *testing.T) {
	l := told("value a nan", "value b inf", "value c -inf", "value d 1e999", "value e 0.5").Latest()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var back Latest
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(float64(back.Values["a"])) || !math.IsInf(float64(back.Values["b"]), 1) || !math.IsInf(float64(back.Values["c"]), -1) || !math.IsInf(float64(back.Values["d"]), 1) || back.Values["e"] != 0.5 {
		t.Errorf("%s", text)
	}
	delete(back.Values, "a")
	delete(l.Values, "a")
	if !reflect.DeepEqual(&back, l) {
		t.Errorf("%+v\n%+v", &back, l)
	}
}

func TestARecordIsBoundedWhateverIsTold(t *testing.T) {
	r := NewRecord(1, true)
	for i := range 10_000 {
		r.Take(fmt.Appendf(nil, "value v%d 1\ntorch device %d allocated=%d\ntorch snapshot /s/%d\ntorch trouble %d", i, i%maxDevices, i, i, i), i, float64(i))
	}
	l := r.Latest()
	if len(l.Values) != maxValues || len(l.Torch.Devices) > maxInAll || len(l.Torch.Snapshots) != maxSnapshots {
		t.Errorf("%d values, %d devices, %d snapshots", len(l.Values), len(l.Torch.Devices), len(l.Torch.Snapshots))
	}
	if last := l.Torch.Devices[len(l.Torch.Devices)-1]; last.PID != 9999 {
		t.Errorf("the newest process was forgotten: %+v", last)
	}
	if text, err := json.Marshal(l); err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestTorchTellsHowFarItIsOrWhyThereAreNoNumbers(t *testing.T) {
	for _, c := range []struct {
		name, state, why string
		lines            []string
	}{
		{"nothing", TorchNotSeen, "-S, -I or -E", nil},
		{"Python only", TorchWaiting, "not imported (Python 3.11.7)", []string{"torch python 3.11.7"}},
		{"built without CUDA", TorchNoCUDA, "torch 2.5.1+cpu is built without CUDA", []string{"torch python 3.11.7", "torch imported 2.5.1+cpu none"}},
		{"CUDA not in use", TorchUnused, "has not used CUDA", []string{"torch python 3.11.7", "torch imported 1.13.1 11.7"}},
		{"a child that begins later", TorchUnused, "has not used CUDA", []string{"torch imported 1.13.1 11.7", "torch python 3.11.7"}},
		{"numbers", TorchReporting, "", []string{"torch imported 1.13.1 11.7", "torch device 0 allocated=5 reserved=9", "torch python 3.11.7"}},
		{"an old Python", TorchUnknown, "too old", []string{"torch unsupported Python 2.7.18 is too old"}},
	} {
		l := told(c.lines...).Latest().Torch
		if l.State != c.state || !strings.Contains(l.Why, c.why) || (c.why == "") != (l.Why == "") {
			t.Errorf("%s: %+v", c.name, l)
		}
	}
	if l := NewRecord(1, false); l.Latest().Torch != nil || !l.Seen() {
		t.Error("torch is told of where nobody asked")
	}
}

func TestDevicesOfTheLeaderAndOfItsChildrenAreToldApart(t *testing.T) {
	r := told("torch device 1 allocated=5 reserved=9 inactive=1 peak_allocated=6 peak_reserved=10 largest_free=3 ooms=1 retries=2", "torch oom 1 requested=7 total=20 free=2")
	r.Take([]byte("torch device 0 allocated=1 reserved=2"), 101, 9)
	largest := uint64(3)
	want := []TorchDevice{
		{Device: 1, PID: 100, At: 1, Allocated: 5, Reserved: 9, Inactive: 1, PeakAllocated: 6, PeakReserved: 10, LargestFree: &largest, Retries: 2, OOMs: 1,
			OOM: &TorchOOM{At: 2, Requested: 7, Total: 20, Free: 2}},
		{Device: 0, PID: 101, Child: true, At: 9, Allocated: 1, Reserved: 2},
	}
	if got := r.Latest().Torch.Devices; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsHandedOutIsNotChangedLater(t *testing.T) {
	r := told("value loss 1", "torch device 0 allocated=1")
	l, changes := r.Latest(), r.Changes()
	r.Take([]byte("value loss 2\ntorch device 0 allocated=2"), 100, 9)
	if l.Values["loss"] != 1 || l.Torch.Devices[0].Allocated != 1 || r.Changes() != changes+2 {
		t.Errorf("%+v", l)
	}
}

func FuzzTake(f *testing.F) {
	for _, line := range []string{"step 1", "epoch 2\nstep 3", "value loss nan", "torch device 0 allocated=1 reserved=2", "torch oom 0 requested=1", "checkpoint /x", "phase \u00e4", "step 1\x00\n\n"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		r := NewRecord(1, true)
		r.Take(datagram, 1, 1)
		l := r.Latest()
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var back Latest
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if l.First.Known() != l.Furthest.Known() || l.First.Known() && l.Furthest.Compare(l.First) < 0 {
			t.Errorf("from %v to %v", l.First, l.Furthest)
		}
	})
}

func BenchmarkTakeStep(b *testing.B) {
	r, line := NewRecord(1, true), []byte("step 1200")
	b.ReportAllocs()
	for b.Loop() {
		r.Take(line, 1, 1)
	}
}
