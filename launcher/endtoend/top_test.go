//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

const gib = 1 << 30

// sampledRun is what status, top and report tell of samples.
type sampledRun struct {
	State string
	Ranks []struct {
		Rank    int
		State   string
		Samples *struct {
			GPU       *int
			Total     float64
			Processes int
			Now       map[string]*float64
			Peaks     []struct {
				Attempt int
				Phase   string
				Most    map[string]*float64
			}
		}
		MemoryPeak *float64 `json:"memory_peak"`
	}
	Others []struct {
		Host, Device, User, Name string
		PID                      int
		Bytes                    *float64
	}
	Findings []finding
}

// sampledNow is what status tells; nothing before the run can be asked.
func (u *user) sampledNow() (s sampledRun) {
	u.t.Helper()
	if r := u.run("status", "-", "--json"); r.status == 0 {
		return r.sampled()
	}
	return s
}

func (r result) sampled() (s sampledRun) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		r.t.Fatalf("%v in %s", err, r.stdout)
	}
	return s
}

// now is a number of a rank; -1 where it is not known.
func (s sampledRun) now(rank int, name string) float64 {
	for _, r := range s.Ranks {
		if r.Rank == rank && r.Samples != nil && r.Samples.Now[name] != nil {
			return *r.Samples.Now[name]
		}
	}
	return -1
}

// atWork lets the GPUs of a machine say how busy they are, until the test ends.
func atWork(t *testing.T, machine string, work ...gpus.Utilization) (change func(work ...gpus.Utilization)) {
	t.Helper()
	h := theMachines(t).Host(machine)
	before := h.GPUs()
	t.Cleanup(func() {
		if err := h.SetGPUs(before); err != nil {
			t.Error(err)
		}
	})
	change = func(work ...gpus.Utilization) {
		t.Helper()
		s := before.Clone()
		for i := range work {
			s.GPUs[i].Utilization = &work[i]
		}
		if err := h.SetGPUs(s); err != nil {
			t.Fatal(err)
		}
	}
	change(work...)
	return change
}

// unequal is a job of two ranks on a machine's first two GPUs: the first one holds 30 GiB of
// its GPU, the other 5 GiB, until the file "end" is there. The first one gives back 20 GiB
// once "less" is there.
func (u *user) unequal(more ...string) string {
	u.t.Helper()
	script := fmt.Sprintf(`if [ $RANK = 0 ]; then cudaworker -bytes 30GiB -until %[1]s/less; exec cudaworker -bytes 10GiB -then 0s=10GiB+400MiB -until %[1]s/end
else exec cudaworker -bytes 5GiB -until %[1]s/end; fi`, u.dir)
	return u.onDevice("l40s", script, append(more, machinesOwn)...)
}

func TestStatusTopAndReportTellHowRanksUseMemoryAndDevices(t *testing.T) {
	u := newUser(t, theMachines(t))
	change := atWork(t, "l40s", gpus.Utilization{GPU: 97, Memory: 41}, gpus.Utilization{})
	run := u.start("run", u.unequal())
	var s sampledRun
	status := u.sampledNow
	eventually(t, "status tells what ranks hold", func() bool {
		s = status()
		return s.now(0, "process") == 30*gib && s.now(1, "process") == 5*gib
	})
	if busy, traffic := s.now(0, "gpu"), s.now(0, "traffic"); busy != 97 || traffic != 41 || s.now(1, "gpu") != 0 {
		t.Errorf("rank 0 is busy %v %% with %v %% traffic, rank 1 %v %%", busy, traffic, s.now(1, "gpu"))
	}
	if used, rss := s.now(0, "device_used"), s.now(0, "rss"); used < 30*gib || used > 31*gib || rss <= 0 || rss > gib || s.now(0, "allocated") != -1 {
		t.Errorf("device %v, resident %v, tensors %v", used, rss, s.now(0, "allocated"))
	}
	if r := s.Ranks[1].Samples; r.GPU == nil || *r.GPU != 1 || r.Total < 40*gib {
		t.Errorf("rank 1: %+v", r)
	}
	u.run("status", "-").exits(0).prints("HELD/PEAK", "30.0/30.0 GiB", "97 %", "41 %")

	// Both patterns of a hang show: 0 %, and all the time without traffic.
	change(gpus.Utilization{GPU: 100}, gpus.Utilization{})
	eventually(t, "status tells that rank 0 spins", func() bool {
		s = status()
		return s.now(0, "gpu") == 100 && s.now(0, "traffic") == 0
	})

	leave := alien(t, u.bed.Host("l40s"), cards(t, "l40s")[1].UUID, "3GiB")
	eventually(t, "status names who else is on a device", func() bool {
		s = status()
		return len(s.Others) == 1 && s.Others[0].User == "1042" && *s.Others[0].Bytes == 3*gib && s.Others[0].Host == "l40s"
	})
	leave()

	u.file("less", "")
	eventually(t, "what rank 0 has given back shows, and its peak stays", func() bool {
		s = status()
		return s.now(0, "process") == 10*gib && s.now(0, "rss") > 400<<20 && *s.Ranks[0].Samples.Peaks[0].Most["process"] == 30*gib
	})

	top := u.start("top", "-", "--json")
	eventually(t, "top tells each second", func() bool { return strings.Count(top.stdout.String(), "\n") >= 3 })
	if once := u.run("top", "-", "--json", "--once").exits(0).sampled(); once.now(1, "process") != 5*gib {
		t.Errorf("once: %+v", once)
	}
	u.run("top", "-").exits(0).prints("HELD/PEAK", "10.0/30.0 GiB")
	series := u.run("top", "-", "--series").exits(0)
	u.file("end", "")
	run.wait().exits(0)
	lines := strings.Split(strings.TrimSpace(top.wait().exits(0).stdout), "\n")
	if last := (result{t: t, stdout: lines[len(lines)-1]}).sampled(); last.State != "ok" {
		t.Errorf("the last that top says is %+v", last)
	}

	rep := u.run("report", "-", "--json").exits(0).sampled()
	if p := rep.Ranks[0].MemoryPeak; p == nil || *p != 30*gib || *rep.Ranks[1].MemoryPeak != 5*gib {
		t.Errorf("the report has peaks %+v", rep.Ranks)
	}
	if i := slices.IndexFunc(rep.Findings, func(f finding) bool { return f.Code == "memory_imbalance" }); i < 0 || !strings.Contains(rep.Findings[i].Message, "rank 0") {
		t.Errorf("findings %+v", rep.Findings)
	}
	u.run("report", "-").exits(0).prints("memory at most", "30.0 GiB")
	u.run("top", "-").exits(0).prints("ok (exit status 0)", "memory at most")

	// All samples stay on the host, and are there after the run too.
	after := u.run("top", "-", "--series").exits(0)
	most := 0.0
	for line := range strings.Lines(after.stdout) {
		var period struct {
			Version, Rank int
			Host          string
			Max           map[string]*float64
		}
		if err := json.Unmarshal([]byte(line), &period); err != nil || period.Version != 1 || period.Host != "l40s" {
			t.Fatalf("%v: %s", err, line)
		}
		if n := period.Max["process"]; period.Rank == 0 && n != nil {
			most = max(most, *n)
		}
	}
	if most != 30*gib || strings.Count(after.stdout, "\n") < strings.Count(series.stdout, "\n") {
		t.Errorf("%v of rank 0 at most; %d lines, %d before", most, strings.Count(after.stdout, "\n"), strings.Count(series.stdout, "\n"))
	}
}

func TestTopLeavesTheTerminalAsItWasByQCtrlCAndTheRunsEnd(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	run := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z", "host-a"}}))
	u.waitReady(2)
	for name, leave := range map[string]func(term *terminal){
		"q":      func(term *terminal) { term.typeKeys("q") },
		"Ctrl-C": func(term *terminal) { term.typeKeys("\x03") },
	} {
		term := u.inTerminal(muster(t), "top", "-")
		term.shows("RSS/PEAK")
		leave(term)
		term.waitFor(atOnce).exits(0)
		term.shows("\x1b[?1049l")
		if got := term.settings(); got != asItWas {
			t.Errorf("%s: the terminal's settings are %#x, want %#x", name, got, asItWas)
		}
	}
	term := u.inTerminal(muster(t), "top", "-")
	term.shows("RSS/PEAK")
	u.file("end", "")
	term.wait().exits(0)
	term.shows("ok (exit status 0)")
	run.wait().exits(0)
	term = u.inTerminal(muster(t), "top", "-")
	term.wait().exits(0)
	term.shows("memory at most")
}

// What ranks use is told though the agent was stopped for a while, and the hole is no harm.
func TestAnAgentThatWasStoppedGoesOnSampling(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	run := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z"}}))
	u.waitReady(1)
	h := bed.Host("host-z")
	stopped := inRole(t, h, agent)
	eventually(t, "there are samples", func() bool { return u.sampledNow().now(0, "rss") > 0 })
	signalTo(t, h, stopped, syscall.SIGSTOP)
	pass(t, 2*time.Second)
	signalTo(t, h, stopped, syscall.SIGCONT)
	before := time.Now()
	eventually(t, "there are new samples", func() bool {
		text := u.run("top", "-", "--series").stdout
		lines := strings.Split(strings.TrimSpace(text), "\n")
		var last struct{ At float64 }
		return json.Unmarshal([]byte(lines[len(lines)-1]), &last) == nil && last.At > float64(before.Unix())
	})
	u.file("end", "")
	run.wait().exits(0).saysNothingOf("memory_growth")
}

// The last look that is told may be ten seconds old, and the worker's memory has grown since.
func TestAnOutOfMemoryShowsWhoHeldWhatJustBefore(t *testing.T) {
	u := newUser(t, theMachines(t))
	uuid := cards(t, "l40s")[0].UUID
	words := "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 44.99 GiB of which 1.00 GiB is free."
	script := fmt.Sprintf("[ $RANK = 0 ] || exec sleep 1000\ncudaworker -bytes 1GiB -then 3s=21GiB -until %[1]s/full\necho '%s' >&2; exit 1", u.dir, words)
	run := u.start("run", u.onDevice("l40s", script, machinesOwn))
	eventually(t, "rank 0 holds memory", func() bool { return u.sampledNow().now(0, "process") > 0 })
	alien(t, u.bed.Host("l40s"), uuid, "15GiB")
	eventually(t, "the device is nearly full", func() bool {
		s := u.sampledNow()
		return s.now(0, "device_used") >= 36*gib && s.now(0, "process") == 21*gib
	})
	u.file("full", "")
	r := run.wait().exits(1)
	r.says("oom.foreign_process", "NVML saw 36.", "of 1042 has 15.00 GiB")
}

// Tasks come and go in a place; what each has used is its own.
func TestEachTasksMemoryIsItsOwn(t *testing.T) {
	u := newUser(t, theMachines(t))
	path := u.file("tasks.hcl", fmt.Sprintf(`job "g" {
  command = ["cudaworker", "-for", "3s"]
  mode    = "independent"
  tasks   = [["-bytes", "30GiB"], ["-bytes", "5GiB"], ["-bytes", "6GiB"]]
  hosts "ssh" {
    names = ["l40s"]
  }
  ranks {
    devices = 1
  }
  stop { grace = "1s" }
  %s
}
`, machinesOwn))
	u.run("run", path).exits(0)
	rep := u.run("report", "-", "--json").exits(0).sampled()
	for task, want := range []float64{30 * gib, 5 * gib, 6 * gib} {
		if got := rep.Ranks[task].MemoryPeak; got == nil || *got != want {
			t.Errorf("task %d has used %v at most, want %v", task, got, want)
		}
	}
	if slices.ContainsFunc(rep.Findings, func(f finding) bool { return f.Code == "memory_imbalance" }) {
		t.Errorf("tasks are compared with each other: %+v", rep.Findings)
	}
	seen := map[float64]bool{}
	for line := range strings.Lines(u.run("top", "-", "--series").exits(0).stdout) {
		var period struct{ Rank float64 }
		if err := json.Unmarshal([]byte(line), &period); err != nil {
			t.Fatal(err)
		}
		seen[period.Rank] = true
	}
	if len(seen) != 3 {
		t.Errorf("there are samples of tasks %v", seen)
	}
}
