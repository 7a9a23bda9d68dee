//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// hears waits until errors of a device are heard: a corrected one of its memory is told once.
func (l *launch) hears(h *testbed.Host, uuid string) {
	l.t.Helper()
	var raised time.Time
	within(l.t, patience, func() string { return "errors of its GPUs are heard; it said:\n" + l.stderr.String() }, func() bool {
		if time.Since(raised) > 200*time.Millisecond {
			raised = time.Now()
			if err := h.RaiseECC(uuid, false); err != nil {
				l.t.Fatal(err)
			}
		}
		return strings.Contains(l.stderr.String(), "an error of its memory was corrected")
	})
}

// waitsThen is a job on two GPUs of a machine: rank 1, on GPU 1, does something once it may.
func (u *user) waitsThen(do string, more ...string) string {
	u.t.Helper()
	return u.onDevice("l40s", fmt.Sprintf("[ $RANK = 1 ] || exec sleep 1000\nwhile [ ! -e %s/go ]; do sleep 0.02; done\n%s", u.dir, do), append(more, machinesOwn)...)
}

// raised starts a job of waitsThen, raises errors of GPU 1 and lets rank 1 go on.
func (u *user) raised(path string, raise func(h *testbed.Host, uuid string) error) *launch {
	u.t.Helper()
	h, uuid := u.bed.Host("l40s"), u.bed.Host("l40s").GPUs().GPUs[1].UUID
	l := u.start("run", path)
	l.hears(h, uuid)
	if err := raise(h, uuid); err != nil {
		u.t.Fatal(err)
	}
	return l
}

func xids(numbers ...uint64) func(h *testbed.Host, uuid string) error {
	return func(h *testbed.Host, uuid string) error {
		for _, n := range numbers {
			if err := h.RaiseXid(uuid, n); err != nil {
				return err
			}
		}
		return nil
	}
}

// The worker itself says nothing of its GPU.
func TestAnErrorThatTheDriverReportsIsTheCauseOfADeath(t *testing.T) {
	for _, c := range []struct {
		name     string
		raise    func(h *testbed.Host, uuid string) error
		notice   string // "": none
		class    string
		xid      float64
		says     string
		more     string
		attempts int
	}{
		{"a GPU that has fallen off the bus", xids(79), "Xid 79", "gpu.lost", 79, "GPU 1", "", 1},
		{"memory that is broken", xids(48), "Xid 48", "gpu.ecc", 48, "double-bit", "", 1},
		{"an error that hit this program only", xids(94), "Xid 94", "gpu.ecc", 94, "this program only", "", 2},
		{"the contained error among others", xids(63, 48, 94), "Xid 48", "gpu.ecc", 48, "GPU 1", "", 2},
		{"an error that may have hit all", xids(95), "Xid 95", "gpu.ecc", 95, "every program", "", 1},
		{"an error that was counted only", func(h *testbed.Host, uuid string) error { return h.RaiseECC(uuid, true) }, "could not be corrected", "gpu.ecc", 0, "GPU 1", "", 1},
		{"a number without a class", xids(8), "Xid 8", "gpu.xid", 8, "stopped processing", "", 2},
		{"a number in no table", xids(999), "Xid 999", "gpu.xid", 999, "in no table", "", 2},
		{"the program's own fault", xids(31, 43, 45), "Xid 31", "gpu.app_fault", 31, "address without memory", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, theMachines(t))
			script := "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0\nexit 1"
			job := u.waitsThen(script, fmt.Sprintf("restart {\n attempts = 1\n backoff = \"0s\"\n %s\n}\nearly_exit { limit = \"1s\" }", c.more))
			l := u.raised(job, c.raise)
			l.waitToSay(c.notice)
			u.file("go", "")
			r := l.wait()
			rep := u.lastReport()
			if len(rep.Attempts) != c.attempts {
				t.Errorf("%d attempts, want %d: %+v\n%s", len(rep.Attempts), c.attempts, rep.Attempts, r.stderr)
			}
			if c.attempts == 2 {
				if a := rep.Attempts[0]; a.Class != c.class || !strings.Contains(a.Message, c.says) || !strings.Contains(a.Message, "l40s") {
					t.Errorf("the first attempt: %+v", a)
				}
				return
			}
			r.exits(1).says(c.class, c.says)
			rep.isOf(t, c.class, "l40s")
			if rep.FirstCause.Numbers["xid"] != c.xid {
				t.Errorf("numbers %v", rep.FirstCause.Numbers)
			}
			if c.class != "exit" && !strings.Contains(rep.FirstCause.Message, "GPU 1") {
				t.Errorf("the message does not name the GPU: %s", rep.FirstCause.Message)
			}
		})
	}
}

// The program meets the error first, and its driver tells of it a moment later, while the
// others are being stopped.
func TestAnErrorThatIsReportedAfterTheDeathIsItsCauseToo(t *testing.T) {
	u := newUser(t, theMachines(t))
	script := fmt.Sprintf("if [ $RANK = 0 ]; then trap 'sleep 2; exit 0' TERM; touch %[1]s/traps; while :; do sleep 0.02; done; fi\n"+
		"while [ ! -e %[1]s/traps ] || [ ! -e %[1]s/go ]; do sleep 0.02; done\n"+
		"echo 'torch.AcceleratorError: CUDA error: unspecified launch failure' >&2; touch %[1]s/dies; exit 1", u.dir)
	path := strings.Replace(u.onDevice("l40s", script, machinesOwn), "wrong.hcl", "late.hcl", 1)
	u.file("late.hcl", strings.Replace(u.read("wrong.hcl"), `grace = "1s"`, `grace = "10s"`, 1))
	l := u.raised(path, xids())
	u.file("go", "")
	u.waitFor("dies")
	if err := xids(79)(u.bed.Host("l40s"), cards(t, "l40s")[1].UUID); err != nil {
		t.Fatal(err)
	}
	l.wait().exits(1).says("gpu.lost", "GPU 1")
	u.lastReport().isOf(t, "gpu.lost", "l40s")
}

func TestAnErrorOfAGPUWithoutADeathIsANoticeAndNoFailure(t *testing.T) {
	u := newUser(t, theMachines(t))
	all := cards(t, "l40s")
	h := u.bed.Host("l40s")
	l := u.start("run", u.onDevice("l40s", fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.02; done", u.dir), machinesOwn))
	l.hears(h, all[1].UUID)
	for _, raise := range []struct {
		gpu int
		xid uint64
	}{{2, 79}, {1, 45}, {0, 63}, {0, 63}} { // nobody's of the run, what comes of a kill, a notice, and again
		if err := h.RaiseXid(all[raise.gpu].UUID, raise.xid); err != nil {
			t.Fatal(err)
		}
	}
	l.waitToSay("Xid 63")
	u.file("go", "")
	r := l.wait().exits(0).says("l40s: GPU 0 (" + all[0].UUID + "): the driver reported Xid 63").saysNothingOf("Xid 79").saysNothingOf("Xid 45")
	if n := strings.Count(r.stderr, "Xid 63"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, r.stderr)
	}
	if rep := u.lastReport(); rep.Outcome != "ok" || rep.FirstCause != nil {
		t.Errorf("%+v", rep)
	}
}

// writesKernelLog gives a host a kernel log of its own, and returns what adds a line to it.
func writesKernelLog(t *testing.T, h *testbed.Host) (add func(line string)) {
	t.Helper()
	const path = "/dev/kmsg"
	var was unix.Stat_t
	there := false
	err := h.Do(func() error {
		there = unix.Stat(path, &was) == nil
		if there {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		return os.WriteFile(path, nil, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := h.Do(func() error {
			if err := os.Remove(path); err != nil || !there {
				return err
			}
			return unix.Mknod(path, was.Mode, int(was.Rdev))
		})
		if err != nil {
			t.Error(err)
		}
	})
	return func(line string) {
		err := h.Do(func() error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = fmt.Fprintf(f, "4,1,1,-;%s\n", line)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnErrorInTheKernelLogAndFromTheDriverCountsOnce(t *testing.T) {
	u := newUser(t, theMachines(t))
	h, gpu := u.bed.Host("l40s"), cards(t, "l40s")[1]
	add := writesKernelLog(t, h)
	l := u.raised(u.waitsThen("exit 1"), xids(79))
	l.waitToSay("Xid 79")
	add(fmt.Sprintf("NVRM: Xid (PCI:%s): 79, pid=1, name=python, GPU has fallen off the bus.", strings.TrimSuffix(gpu.PCI, ".0")))
	u.file("go", "")
	l.wait().exits(1)
	rep := u.lastReport()
	rep.isOf(t, "gpu.lost", "l40s")
	var told []string
	for _, e := range rep.FirstCause.Evidence {
		if strings.Contains(e, "Xid 79") {
			told = append(told, e)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "GPU 1") || !strings.Contains(told[0], "fallen off the bus") {
		t.Errorf("it is told as %q", told)
	}
}

// Where NVML is missing, or tells nothing of the product.
func TestWithoutTheDriversEventsTheKernelLogTells(t *testing.T) {
	s := gpus.L40S()
	for i := range s.GPUs {
		s.GPUs[i].NoEvents = true
	}
	bed := ownBed(t, testbed.Options{Hosts: 1, GPUs: onThisMachine(t, s)})
	u := newUser(t, bed)
	h := bed.Hosts[0]
	add := writesKernelLog(t, h)
	path := u.onDevice(h.Name, fmt.Sprintf("touch %[1]s/here-$RANK; [ $RANK = 1 ] || exec sleep 1000\nwhile [ ! -e %[1]s/go ]; do sleep 0.02; done\nexit 1", u.dir), machinesOwn)
	l := u.start("run", path)
	eventually(t, "the ranks are there", func() bool { return u.exists("here-0") && u.exists("here-1") })
	pass(t, 2*time.Second) // nobody tells that nothing is heard
	add(fmt.Sprintf("NVRM: Xid (PCI:%s): 48, pid=1, name=python, DBE", strings.TrimSuffix(h.GPUs().GPUs[1].PCI, ".0")))
	u.file("go", "")
	l.wait().exits(1).says("gpu.ecc")
	rep := u.lastReport()
	rep.isOf(t, "gpu.ecc", h.Name)
	if text := u.run("report", "-", "--json").exits(0).stdout; !strings.Contains(text, "could not be heard: nvml: no GPU tells of its errors: not supported by this GPU") {
		t.Errorf("the report does not say why: %s", text)
	}
}

func TestAPluginThatDiesWhileItListensIsSaidAndTheRunGoesOn(t *testing.T) {
	bed := ownBed(t, testbed.Options{Hosts: 1, GPUs: onThisMachine(t, gpus.L40S())})
	u := newUser(t, bed)
	h := bed.Hosts[0]
	l := u.start("run", u.onDevice(h.Name, fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.02; done", u.dir), machinesOwn))
	l.hears(h, h.GPUs().GPUs[1].UUID)
	s := h.GPUs()
	s.Faults = []gpus.Fault{{Function: "next", Do: "crash"}} // of the wait for events
	if err := h.SetGPUs(s); err != nil {
		t.Fatal(err)
	}
	l.waitToSay("errors of its GPUs may be missed: plugin nvml")
	s.Faults = nil
	if err := h.SetGPUs(s); err != nil {
		t.Fatal(err)
	}
	l.waitToSay("the run goes on")
	// It is started anew, and hears again.
	var raised time.Time
	eventually(t, "errors are heard again", func() bool {
		if time.Since(raised) > 200*time.Millisecond {
			raised = time.Now()
			if err := h.RaiseXid(s.GPUs[0].UUID, 63); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Contains(l.stderr.String(), "Xid 63")
	})
	u.file("go", "")
	l.wait().exits(0).says("died while it was asked")
}

func TestWhoHoldsAGPUsMemoryAfterADeathIsTold(t *testing.T) {
	u := newUser(t, theMachines(t))
	h, uuid := u.bed.Host("l40s"), cards(t, "l40s")[1].UUID
	alien(t, h, uuid, "30GiB")
	u.run("run", u.crowded("", "")).exits(1).says("oom.foreign_process", "when it had ended")
	rep := u.lastReport()
	rep.isOf(t, "oom.foreign_process", "l40s")
	if after := rep.FirstCause.Numbers["device_used_after"]; after < 30<<30 || after > 31<<30 {
		t.Errorf("numbers %v", rep.FirstCause.Numbers)
	}
}
