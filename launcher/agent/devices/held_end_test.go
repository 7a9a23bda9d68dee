//go:build linux

package devices

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// A restart must not wait for what has nothing to do with it.
func TestOnlyAnEndThatADeviceMayHaveHadToDoWithWaitsForALook(t *testing.T) {
	says := func(text string) *evidence.Worker { return &evidence.Worker{Stderr: []byte(text)} }
	for _, c := range []struct {
		what  string
		ended message.Ended
		want  bool
	}{
		{"an error of CUDA", message.Ended{Code: 1, Evidence: says("RuntimeError: CUDA error: an illegal memory access was encountered")}, true},
		{"no more memory", message.Ended{Code: 1, Evidence: &evidence.Worker{Stdout: []byte("torch.OutOfMemoryError: CUDA out of memory.")}}, true},
		{"an abort", message.Ended{Signal: "SIGABRT", Evidence: says("")}, true},
		{"the program's own mistake", message.Ended{Code: 1, Evidence: says("  File \"/x/torch/cuda/__init__.py\"\nValueError: no such layer")}, false},
		{"a status alone", message.Ended{Code: 7, Evidence: says("")}, false},
		{"a kill", message.Ended{Signal: "SIGKILL", Evidence: says("")}, false},
		{"a good end", message.Ended{Evidence: says("CUDA error: it went on")}, false},
		{"muster's own doing", message.Ended{Code: 1, Sent: "SIGTERM", Evidence: says("CUDA error: x")}, false},
		{"one that was not started", message.Ended{Error: "no such file", Evidence: says("")}, false},
	} {
		if got := fromDevice(&c.ended); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
		if New(Config{}).HoldBack(nil, &c.ended, 0) {
			t.Errorf("%s: nobody watches the devices, and it waits", c.what)
		}
	}
}

func TestAnEndIsKeptBackForALookAndNoLonger(t *testing.T) {
	now := link.Now()
	seen := &snapshot{usage: &gpu.Usage{Used: map[string]uint64{"GPU-a": 5}}, found: gpusWith(3), ended: now}
	for _, c := range []struct {
		what   string
		passed time.Duration
		after  *snapshot
		why    string
		kept   bool
	}{
		{"the look is made", minHold, seen, "", false},
		{"the driver may still report something", minHold / 2, seen, "", true},
		{"the look is under way", afterLimit / 2, nil, "", true},
		{"the look takes too long", afterLimit, nil, "", false},
		{"the look has failed", minHold, &snapshot{}, "the driver hangs", false},
	} {
		released := false
		ws := New(Config{Release: func(*worker.Worker, *message.Ended, link.Instant) { released = true }})
		w := &watch{ecc: uncorrected(gpusWith(1)), events: newDriverEvents()}
		x := &heldEnd{
			worker: &worker.Worker{Rank: 3}, ended: &message.Ended{Rank: 3, Evidence: &evidence.Worker{Devices: &evidence.Devices{}}},
			at: now.Add(-c.passed), watch: w, asked: true, after: c.after, why: c.why,
		}
		ws.waiting = []*heldEnd{x}
		ws.Tick(now)
		if kept := len(ws.waiting) == 1 && !released; kept != c.kept {
			t.Errorf("%s: it is kept back: %v", c.what, kept)
		}
		d := x.ended.Evidence.Devices
		switch {
		case c.kept:
		case c.after == seen && (d.After != seen.usage || d.ECC["GPU-a"] != 2 || d.NoAfter != ""):
			t.Errorf("%s: %+v", c.what, d)
		case c.after != seen && (d.After != nil || d.NoAfter == ""):
			t.Errorf("%s: why there is no look is not said: %+v", c.what, d)
		}
	}
}

func gpusWith(uncorrected uint64) *gpu.Inventory {
	return &gpu.Inventory{GPUs: []gpu.GPU{{UUID: "GPU-a", ECC: gpu.ECC{Volatile: &uncorrected}}, {UUID: "GPU-b"}}}
}

func TestTheLookBeforeADeathHadEndedBeforeIt(t *testing.T) {
	older, newer := &gpu.Usage{}, &gpu.Usage{Blind: "newer"}
	s := watch{last: [2]snapshot{{usage: newer, ended: 20}, {usage: older, ended: 10}}}
	for at, want := range map[link.Instant]*gpu.Usage{25: newer, 20: newer, 19: older, 9: nil} {
		if got := s.before(at); got != want {
			t.Errorf("at %d: %+v", at, got)
		}
	}
}

func TestFloodsOfEventsAreBounded(t *testing.T) {
	ws, w := New(Config{Loop: loop.New()}), &watch{events: newDriverEvents()}
	for range 1000 {
		ws.reportEvent(w, gpu.Event{Kind: gpu.EventSingleBit, UUID: "GPU-a"}, 1)
		ws.reportEvent(w, gpu.Event{Kind: gpu.EventLost, UUID: "GPU-a"}, 1)
	}
	if n := w.events.reported; n != 2 {
		t.Errorf("corrected errors and one loss are told %d times", n)
	}
	for i := range 1000 {
		ws.reportEvent(w, gpu.Event{Kind: gpu.EventXid, UUID: fmt.Sprint("GPU-", i), Xid: 31}, 1)
	}
	if !w.events.once["many"] {
		t.Error("that more is not told is not said")
	}
}

func TestAnEventOfAMIGInstanceIsOfItsUUID(t *testing.T) {
	w := &watch{}
	gi := 2
	w.last[0].found = &gpu.Inventory{GPUs: []gpu.GPU{{UUID: "GPU-a", MIG: gpu.MIG{Instances: []gpu.MIGInstance{{UUID: "MIG-1", GI: new(1)}, {UUID: "MIG-2", GI: new(2)}}}}}}
	for want, e := range map[string]gpu.Event{"MIG-2": {UUID: "GPU-a", GI: &gi}, "GPU-a": {UUID: "GPU-a"}, "GPU-b": {UUID: "GPU-b", GI: &gi}} {
		if got := w.deviceOf(e); got != want {
			t.Errorf("%+v is of %s, want %s", e, got, want)
		}
	}
}
