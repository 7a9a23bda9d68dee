//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// spinsWhenSaid has a host's GPUs be busy without traffic once the stand-in of torch has begun
// to spin, and as before once its run is over.
func spinsWhenSaid(t *testing.T) func(*testbed.Host) {
	return func(host *testbed.Host) {
		before, spinning := host.GPUs(), host.GPUs().Clone()
		for i := range spinning.GPUs {
			spinning.GPUs[i].Utilization = &gpus.Utilization{GPU: 100}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if waitForFile(t, filepath.Join(host.Home, "out", runFolder, "spinning")) {
				setGPUs(t, host, spinning)
				waitForFile(t, filepath.Join(host.Home, "out", runFolder, "*-torch-spins.report.json"))
				setGPUs(t, host, before)
			}
		}()
		t.Cleanup(func() { <-done })
	}
}

// waitForFile waits for a file of a pattern; it is not there if the test ends before.
func waitForFile(t *testing.T, pattern string) bool {
	for {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return true
		}
		select {
		case <-t.Context().Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func setGPUs(t *testing.T, host *testbed.Host, s *gpus.Scenario) {
	if err := host.SetGPUs(s); err != nil {
		t.Error(err)
	}
}

func TestWhatIsSeenOfRanksThatRunIsWhatTorchAndTheDriverSay(t *testing.T) {
	results, exit, folder := checked(t, gpus.H200(), spinsWhenSaid(t), "-part", watchPart)
	mustBe(t, results, nil)
	if exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	for name, note := range map[string]string{
		watchChecks()[0].name: "its process holds 1280 MiB by nvidia-smi: 256 MiB beside what torch has reserved",
		watchChecks()[1].name: "that is 224 MiB more; estimated are 224 to 896 MiB more",
		watchChecks()[2].name: "by faulthandler in spins (",
	} {
		if notes := strings.Join(results[name].Notes, "\n"); !strings.Contains(notes, note) {
			t.Errorf("%s notes %q, want %q", name, notes, note)
		}
	}
	for _, kept := range []string{"*-torch-numbers.status.json", "*-torch-spins.report.json", "*-torch-works.report.json"} {
		if found, _ := filepath.Glob(filepath.Join(folder, runFolder, kept)); len(found) != 1 {
			t.Errorf("%s is not kept", kept)
		}
	}
}

// A check that cannot fail proves nothing: here torch tells other numbers, what spins works, and
// what is to work does nothing. NCCL takes far more, but between two ranks of one GPU, of which
// the estimate says nothing.
func TestWhatIsSeenOfRanksMustBeTrue(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	python, err := standInTorchOf("2.30.7", filepath.Join(dir, "newer"), "lying", goodTorch, "$NCCL_BUFFSIZE", fullCapacity, 4096)
	if err != nil {
		t.Fatal(err)
	}
	s := gpus.L40S()
	s.GPUs, s.NICs = s.GPUs[:1], nil
	results, exit, _ := checked(t, s, nil, "-part", watchPart, "-python", python)
	mustBe(t, results, map[string]string{"torch: muster's": failedCheck, "torch: a kernel": failedCheck, "torch: silent": failedCheck, "torch: NCCL's": notPossible})
	for i, why := range []string{`"allocated" 805310464 bytes, and torch 805306368`, "two ranks of one GPU take 114912 MiB more", "status 0, not 124", "status 124"} {
		if got := results[watchChecks()[i].name].Why; !strings.Contains(got, why) {
			t.Errorf("%s fails with %q, want %q", watchChecks()[i].name, got, why)
		}
	}
	if exit != 1 {
		t.Errorf("exit status %d", exit)
	}
}

// With one GPU NCCL connects nobody, unless it lets two ranks have it.
func TestWithOneGPUWhatNCCLTakesIsMeasuredAndNotJudged(t *testing.T) {
	one := session{usable: []row{{UUID: "GPU-a"}}, torch: torch{NCCL: "2.27.5"}}
	for version, want := range map[string][]string{"2.27.5": {"one rank"}, "2.30.7": {"two ranks on one GPU", "one rank"}, "3.1": {"two ranks on one GPU", "one rank"}, "": {"one rank"}} {
		one.torch.NCCL = version
		var got []string
		for _, l := range one.layouts() {
			got = append(got, l.what)
		}
		if !slices.Equal(got, want) {
			t.Errorf("NCCL %s: %q, want %q", version, got, want)
		}
	}
	const mib = 1 << 20
	alone, two := layout{world: 1, sharers: 1}, layout{world: 2, sharers: 1}
	shared := layout{world: 2, sharers: 2}
	for _, c := range []struct {
		name  string
		l     layout
		large float64 // with the larger buffers, in MiB; 100 with the smaller
		fails string
		judge bool // it is a failure, not only what cannot be had here
	}{
		{"one rank takes the same", alone, 100, "takes 100 MiB with buffers of 4MiB and 100 MiB with 32MiB", false},
		{"two GPUs as estimated", two, 400, "", false},
		{"two GPUs more", two, 1500, "1400 MiB more of each GPU, and 224 to 896", true},
		{"two GPUs less", two, 150, "50 MiB more of each GPU", true},
		{"two ranks of one GPU as estimated", shared, 400, "", false},
		{"two ranks of one GPU less", shared, 110, "take 10 MiB more, and not 224 to 896", false},
	} {
		err := one.compareTakings(c.l, taking{100 * mib, 100 * mib, 400 * mib}, taking{c.large * mib, 324 * mib, 1296 * mib})
		_, cannot := err.(impossible)
		if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails) || cannot == c.judge) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAPartThatIsNotThereIsRefused(t *testing.T) {
	if _, err := parse([]string{"-part", "stop"}); err == nil || !strings.Contains(err.Error(), "-part start or -part watch") {
		t.Errorf("%v", err)
	}
}
