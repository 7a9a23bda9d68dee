//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// What sampling is measured by: a host with eight GPUs, on each a rank with eight children,
// as data loaders are; and beside it a host without GPUs on which one process runs, for a run
// costs something too that has nothing to sample.
const (
	sampledRanks    = 8
	sampledChildren = 8
	// calm is how long after the start devices are looked at wholly each second, which is no
	// part of sampling.
	calm = 100 * time.Second
	// sampledFor is how long is measured.
	sampledFor = 40 * time.Second
)

// measureSampling prints what it costs to watch ranks while they run.
func measureSampling(ctx context.Context, muster string) error {
	look, err := gpus.DGXA100().OnThisMachine()
	if err != nil {
		return err
	}
	for i := range look.GPUs { // as ranks have them that train
		look.GPUs[i].Utilization = &gpus.Utilization{GPU: 97, Memory: 41}
	}
	bed, err := testbed.Start(ctx, testbed.Options{Hosts: 2, Each: func(i int, h *testbed.HostOptions) {
		if i == 0 {
			h.GPUs = look
		}
	}})
	if err != nil {
		return err
	}
	defer bed.Close()
	ctx, cancel := context.WithTimeout(ctx, calm+2*sampledFor+patience)
	defer cancel()
	var runs []*watched
	for i, ranks := range []string{`backend = "none"`, "backend = \"none\"\n    devices = \"none\"\n    per_host = 1"} {
		script := "exec sleep 1000"
		if i == 0 {
			script = fmt.Sprintf("for i in $(seq %d); do sleep 1000 & done; exec cudaworker -bytes 10GiB -for 10m", sampledChildren)
		}
		w, err := watch(ctx, muster, bed, bed.Hosts[i], script, ranks)
		if err != nil {
			return err
		}
		runs = append(runs, w)
	}
	err = printCosts(ctx, muster, bed)
	cancel() // asks muster to stop the runs
	for _, w := range runs {
		if waitErr := w.cmd.Wait(); err != nil {
			err = fmt.Errorf("%w; muster: %v\n%s", err, waitErr, w.out.Bytes())
		}
	}
	return err
}

// watched is a run that is watched.
type watched struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func watch(ctx context.Context, muster string, bed *testbed.Bed, h *testbed.Host, script, ranks string) (*watched, error) {
	job := filepath.Join(bed.Dir, h.Name+".hcl")
	text := fmt.Sprintf("job %q {\n  command = [\"sh\", \"-c\", %q]\n  hosts \"ssh\" { names = [%q] }\n  ranks {\n    %s\n  }\n  stop { grace = \"1s\" }\n}\n", h.Name, script, h.Name, ranks)
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		return nil, err
	}
	w := &watched{cmd: exec.CommandContext(ctx, muster, "run", job)}
	w.cmd.Env = bed.ClientEnv()
	w.cmd.Cancel = func() error { return w.cmd.Process.Signal(unix.SIGTERM) }
	w.cmd.WaitDelay = 10 * time.Second
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	return w, w.cmd.Start()
}

// shares is what each role has used of a core, in percent.
type shares map[string]float64

// sharesOf measures processes of a host for a while.
func sharesOf(ctx context.Context, hosts ...*testbed.Host) ([]shares, error) {
	var before []map[string]time.Duration
	for _, h := range hosts {
		used, err := costs(h)
		if err != nil {
			return nil, err
		}
		before = append(before, used)
	}
	if err := pause(ctx, sampledFor); err != nil {
		return nil, err
	}
	var all []shares
	for i, h := range hosts {
		after, err := costs(h)
		if err != nil {
			return nil, err
		}
		share := shares{}
		for role := range after {
			share[role] = 100 * (after[role] - before[i][role]).Seconds() / sampledFor.Seconds()
			share["all"] += share[role]
		}
		all = append(all, share)
	}
	return all, nil
}

// printCosts measures both hosts, and the first again while somebody looks on.
func printCosts(ctx context.Context, muster string, bed *testbed.Bed) error {
	if err := pause(ctx, calm); err != nil {
		return err
	}
	found, err := sharesOf(ctx, bed.Hosts[0], bed.Hosts[1])
	if err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	top := exec.CommandContext(looking, muster, "top", bed.Hosts[0].Name, "--json")
	top.Env = bed.ClientEnv()
	if err := top.Start(); err != nil {
		return err
	}
	seen, err := sharesOf(ctx, bed.Hosts[0])
	stop()
	_ = top.Wait() // it was killed
	if err != nil {
		return err
	}
	watched, one, looked := found[0], found[1], seen[0]
	fmt.Printf("\nCPU time of muster on a host, in %% of a core: to watch %d ranks with %d children each on %d GPUs (by the stand-in for NVML), and one process without GPU; and the former while muster top looks on\n\n", sampledRanks, sampledChildren, sampledRanks)
	fmt.Printf("%-12s %7s %7s %7s %9s %7s\n", "", "watched", "one", "more", "with top", "more")
	for _, role := range []string{"agent", "coordinator", "keeper", "plugins", "all"} {
		fmt.Printf("%-12s %7.2f %7.2f %7.2f %9.2f %7.2f\n", role, watched[role], one[role], watched[role]-one[role], looked[role], looked[role]-watched[role])
	}
	used := top.ProcessState.UserTime() + top.ProcessState.SystemTime()
	fmt.Printf("\nmuster top itself: %.2f\n", 100*used.Seconds()/sampledFor.Seconds())
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// costs is the CPU time of muster's processes on a host, by role: of their threads, the first
// number of /proc/PID/task/TID/schedstat, in nanoseconds. A thread that ends between two looks
// is missed; Go's do not.
func costs(h *testbed.Host) (map[string]time.Duration, error) {
	processes, err := h.Leftovers()
	if err != nil {
		return nil, err
	}
	found := map[string]time.Duration{}
	for _, p := range processes {
		role := roleOf(p)
		if len(p.Args) > 0 && strings.Contains(p.Args[0], "muster-plugin") {
			role = "plugins"
		}
		if role == "" {
			continue
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.MachinePID))
		if err != nil {
			return nil, err
		}
		for _, thread := range threads {
			var ran time.Duration
			text, err := os.ReadFile(thread)
			if err != nil {
				continue // it has ended
			}
			if _, err := fmt.Sscan(string(text), &ran); err != nil {
				return nil, fmt.Errorf("%s: %w", thread, err)
			}
			found[role] += ran
		}
	}
	if found["agent"] == 0 {
		return nil, fmt.Errorf("there is no agent on %s", h.Name)
	}
	return found, nil
}
