//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// programs are built once for all tests, in a folder that hosts see.
var programs = sync.OnceValues(buildPrograms)

func TestMain(m *testing.M) {
	testbed.DefaultSignals()
	status := m.Run()
	if dir, err := programs(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// buildPrograms builds gpucheck, muster and its plugin. Muster is what $MUSTER_BINARY names,
// or made as the Makefile does.
func buildPrograms() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "gpucheck-"); err != nil {
		return "", err
	}
	c := []string{"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -Wno-deprecated-declarations", "CGO_LDFLAGS=-O2 -Wl,-z,lazy"}
	if err := build(c, "-tags", "netgo,osusergo", "-o", filepath.Join(dir, "muster-plugin-nvml"), "./cmd/muster-plugin-nvml"); err != nil {
		return dir, err
	}
	if err := build(nil, "-o", filepath.Join(dir, "gpucheck"), "./launcher/gpucheck"); err != nil {
		return dir, err
	}
	muster := filepath.Join(dir, "muster")
	if given := os.Getenv("MUSTER_BINARY"); given != "" {
		program, err := os.ReadFile(given)
		if err != nil {
			return dir, err
		}
		return dir, os.WriteFile(muster, program, 0o755)
	}
	overlay, err := carried(dir)
	if err != nil {
		return dir, err
	}
	return dir, build(nil, "-tags", "carry", "-overlay", overlay, "-o", muster, "./cmd/muster")
}

// carried makes the programs that muster carries, and what lays them over the source tree.
func carried(dir string) (overlay string, err error) {
	into := filepath.Join(dir, "carried")
	if err := inTree(nil, "go", "run", "./cmd/carry", "-into", into, "-ldflags", "-s -w", "linux/"+runtime.GOARCH); err != nil {
		return "", err
	}
	place, err := filepath.Abs("../../cmd/muster/carried")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	own, _ := filepath.Glob(filepath.Join(place, "*"))
	for _, file := range own {
		replace[file] = ""
	}
	made, _ := filepath.Glob(filepath.Join(into, "*"))
	for _, file := range made {
		replace[filepath.Join(place, filepath.Base(file))] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

func build(env []string, args ...string) error {
	return inTree(env, "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w"}, args...)...)
}

func inTree(env []string, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "../.."
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	return nil
}

// checked runs gpucheck on a host with these GPUs: the checks of the first part, unless
// arguments say otherwise.
func checked(t *testing.T, s *gpus.Scenario, prepare func(*testbed.Host), args ...string) (results map[string]result, exit int, folder string) {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.OnThisMachine(); err != nil {
		t.Fatal(err)
	}
	python, err := standInTorch(dir, "good", goodTorch, "$NCCL_BUFFSIZE", fullCapacity, 0)
	if err != nil {
		t.Fatal(err)
	}
	bed := testbed.New(t, testbed.Options{GPUs: s, Keep: []string{dir}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	host := bed.Hosts[0]
	if prepare != nil {
		prepare(host)
	}
	out, _, err := host.Run(ctx, append([]string{filepath.Join(dir, "gpucheck"), "-worker", "/usr/bin/cudaworker", "-python", python, "-out", "/root/out", "-json", "-part", startPart}, args...)...)
	var said struct{ Checks []result }
	if bad := json.Unmarshal(out, &said); bad != nil {
		t.Fatalf("%v: %v: %s", err, bad, out)
	}
	if err != nil {
		exit = 1
	}
	results = map[string]result{}
	for _, r := range said.Checks {
		results[r.Name] = r
		t.Logf("%-45s %-13s %5.1f s %s", r.Name, r.Outcome, r.Seconds, strings.Join(lines(r), "\n      "))
	}
	if want := len(made(args)); len(results) != want {
		t.Errorf("%d results of %d checks", len(results), want)
	}
	return results, exit, filepath.Join(host.Home, "out")
}

// made are the checks that gpucheck makes with these arguments.
func made(args []string) []check {
	asked := startPart
	if i := slices.Index(args, "-part"); i >= 0 {
		asked = args[i+1]
	}
	list := firstChecks()
	for _, p := range parts() {
		if asked == "" || asked == p.name {
			list = append(list, p.checks...)
		}
	}
	return append(list, lastCheck)
}

// mustBe compares outcomes: all checks are ok but those of these names.
func mustBe(t *testing.T, results map[string]result, others map[string]string) {
	t.Helper()
	for name, r := range results {
		want := passed
		for beginning, other := range others {
			if strings.HasPrefix(name, beginning) {
				want = other
			}
		}
		if r.Outcome != want {
			t.Errorf("%s: %s, want %s: %s", name, r.Outcome, want, r.Why)
		}
	}
}

func TestAllIsWellOnAMachineWithSeveralGPUs(t *testing.T) {
	results, exit, folder := checked(t, gpus.H200(), nil)
	mustBe(t, results, nil)
	if exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	for _, name := range []string{"nvidia-smi-q-x.xml", "nvidia-smi-topo-m.txt", "nvidia-smi-nvlink-s.txt", "nvidia-smi-L.txt",
		"nvidia-smi-query-gpu.csv", "probe-nvml.json", "probe-nvidia-smi.json", "muster-probe.json", "checks.json", "checks.txt", "commands.log"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is not kept (%v)", name, err)
		}
	}
	if kept, _ := filepath.Glob(filepath.Join(folder, "runs", "*.plan.json")); len(kept) == 0 {
		t.Error("no plan is kept")
	}
	if notes := results["ranks land as planned: by default"].Notes; !slices.Contains(notes, "nvidia-smi shows the ranks "+byPID) {
		t.Errorf("notes %q", notes)
	}
	if notes := results["torch: it takes what the allocator block becomes"].Notes; !strings.Contains(strings.Join(notes, " "), "per_process_memory_fraction:0.9") {
		t.Errorf("notes %q", notes)
	}
	if notes := results["workers share a GPU by MPS with their limits"].Notes; !slices.Contains(notes, "rank 3: 33 multiprocessors, 2024 MiB free") {
		t.Errorf("notes %q", notes)
	}
	if notes := results["torch: a setting that it does not know"].Notes; !slices.Contains(notes, "torch 2.10.0+cu128 stops there") {
		t.Errorf("notes %q", notes)
	}
}

func TestOneGPUAllowsAllButWhatTakesTwo(t *testing.T) {
	s := gpus.L40S()
	s.GPUs, s.NICs = s.GPUs[:1], nil
	results, _, _ := checked(t, s, nil)
	mustBe(t, results, map[string]string{"one GPU each": notPossible})
}

func TestGPUsInUseAreLeftAlone(t *testing.T) {
	results, exit, _ := checked(t, gpus.Busy(), nil)
	others := map[string]string{"muster plan": notPossible}
	for _, c := range made(nil)[10:] {
		others[c.name] = notPossible
	}
	delete(others, lastCheck.name)
	mustBe(t, results, others)
	if exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// besideOthers are checks that take a second process on a GPU, and one that can be told from
// the first.
var besideOthers = map[string]string{"an OOM beside": notPossible, "torch: an OOM is told as oom.foreign": notPossible}

func TestExclusiveModeIsKnown(t *testing.T) {
	s := gpus.L40S()
	for i := range s.GPUs {
		s.GPUs[i].ComputeMode = new("exclusive_process")
	}
	results, _, _ := checked(t, s, nil)
	mustBe(t, results, besideOthers)
}

// In a container nvidia-smi shows no processes: memory tells then.
func TestProcessesThatAreNotShownAreSeenByMemory(t *testing.T) {
	results, _, _ := checked(t, gpus.L40S(), func(host *testbed.Host) {
		script := "#!/bin/sh\ncase $1 in --query-compute-apps*) exit;; esac\nexec /usr/bin/real-smi \"$@\"\n"
		err := host.Do(func() error {
			if err := os.Rename("/usr/bin/nvidia-smi", "/usr/bin/real-smi"); err != nil {
				return err
			}
			return os.WriteFile("/usr/bin/nvidia-smi", []byte(script), 0o755)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	mustBe(t, results, besideOthers)
	if notes := results["ranks land as planned: by default"].Notes; !slices.Contains(notes, "nvidia-smi shows the ranks "+byMemory) {
		t.Errorf("notes %q", notes)
	}
}

// A check that cannot fail proves nothing: here each rank takes its neighbour's GPU.
func TestRanksOnOtherGPUsThanPlannedFail(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nLOCAL_RANK=$(( (LOCAL_RANK + 1) % 4 )) exec /usr/bin/cudaworker \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "astray"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	results, exit, _ := checked(t, gpus.L40S(), nil, "-worker", filepath.Join(dir, "astray"))
	r := results["ranks land as planned: by default"]
	if r.Outcome != failedCheck || !strings.Contains(r.Why, "rank 0 has the GPU") || exit != 1 {
		t.Errorf("exit status %d, %+v", exit, r)
	}
}

func TestAMachineWithoutDriverFails(t *testing.T) {
	results, exit, _ := checked(t, gpus.NoDriver(), nil)
	if r := results["nvidia-smi tells of GPUs"]; r.Outcome != failedCheck || exit != 1 {
		t.Errorf("exit status %d, %+v", exit, r)
	}
	if r := results["ranks land as planned: by default"]; r.Outcome != notPossible {
		t.Errorf("%+v", r)
	}
}
