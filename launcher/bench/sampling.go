//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// What sampling is measured by: a host with eight GPUs, on each a rank with eight children,
// as data loaders are.
const (
	sampledRanks    = 8
	sampledChildren = 8
	// calm is how long after the start devices are looked at wholly each second, which is no
	// part of sampling.
	calm = 100 * time.Second
	// sampledFor is how long is measured.
	sampledFor = 30 * time.Second
)

// measureSampling prints what it costs to watch ranks while they run.
func measureSampling(ctx context.Context, muster string) error {
	look, err := gpus.DGXA100().OnThisMachine()
	if err != nil {
		return err
	}
	bed, err := testbed.Start(ctx, testbed.Options{Hosts: 1, Each: func(_ int, h *testbed.HostOptions) { h.GPUs = look }})
	if err != nil {
		return err
	}
	defer bed.Close()
	job := filepath.Join(bed.Dir, "sampled.hcl")
	script := fmt.Sprintf("for i in $(seq %d); do sleep 1000 & done; exec cudaworker -bytes 10GiB -for 10m", sampledChildren)
	text := fmt.Sprintf("job \"sampled\" {\n  command = [\"sh\", \"-c\", %q]\n  hosts \"ssh\" { names = [%q] }\n  stop { grace = \"1s\" }\n}\n", script, bed.Hosts[0].Name)
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, calm+sampledFor+patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, muster, "run", job)
	cmd.Env = bed.ClientEnv()
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	err = printCosts(ctx, bed.Hosts[0])
	cancel() // asks muster to stop the run
	if waitErr := cmd.Wait(); err != nil {
		return fmt.Errorf("%w; muster: %v\n%s", err, waitErr, out.Bytes())
	}
	return nil
}

func printCosts(ctx context.Context, h *testbed.Host) error {
	if err := pause(ctx, calm); err != nil {
		return err
	}
	before, err := costs(h)
	if err != nil {
		return err
	}
	if err := pause(ctx, sampledFor); err != nil {
		return err
	}
	after, err := costs(h)
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU time to watch %d ranks with %d children each on %d GPUs, in %% of a core, by the stand-in for NVML\n\n", sampledRanks, sampledChildren, sampledRanks)
	sum := 0.0
	var roles []string
	for role := range after {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	for _, role := range roles {
		share := 100 * (after[role] - before[role]).Seconds() / sampledFor.Seconds()
		sum += share
		fmt.Printf("%-12s %5.2f\n", role, share)
	}
	fmt.Printf("%-12s %5.2f\n", "all", sum)
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

// costs is the CPU time of muster's processes on a host, by role, in their user and system
// time (fields 14 and 15 of /proc/PID/stat, in hundredths of a second).
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
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.MachinePID))
		if role == "" || err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			found[role] += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	if found["agent"] == 0 {
		return nil, fmt.Errorf("there is no agent on %s", h.Name)
	}
	return found, nil
}
