//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// settle is how long a run idles before it is weighed.
const settle = 5 * time.Second

// weigh starts workers that wait, and prints what the run's processes take of memory
// meanwhile.
func (b *bench) weigh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd, marks, err := b.launch(ctx, "wait")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	err = b.untilStarted(ctx, marks)
	if err == nil {
		err = b.printWeights(cmd.Process.Pid)
	}
	cancel() // asks muster to stop the run
	if waitErr := cmd.Wait(); err != nil {
		return fmt.Errorf("%w; muster: %v\n%s", err, waitErr, out.Bytes())
	}
	return nil
}

// untilStarted waits until all workers run, and then for the processes to settle.
func (b *bench) untilStarted(ctx context.Context, marks string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if _, err := b.lastMark(marks); err == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(settle):
				return nil
			}
		}
	}
}

// weight is what a process has in memory, in KiB: all of it, and what it shares with no
// file, such as its own program.
type weight struct{ resident, anonymous int }

func (b *bench) printWeights(launcher int) error {
	byRole := map[string][]weight{"launcher": {weightOf(launcher)}}
	for _, h := range b.bed.Hosts {
		processes, err := h.Leftovers()
		if err != nil {
			return err
		}
		for _, p := range processes {
			if role := roleOf(p); role != "" {
				byRole[role] = append(byRole[role], weightOf(p.MachinePID))
			}
		}
	}
	fmt.Printf("\nMemory of an idle run on %d hosts, in MB: resident (of it anonymous)\n\n", len(b.bed.Hosts))
	for _, role := range []string{"launcher", "coordinator", "keeper", "agent"} {
		all := byRole[role]
		if len(all) == 0 {
			return fmt.Errorf("there is no %s on the hosts", role)
		}
		slices.SortFunc(all, func(a, b weight) int { return a.resident - b.resident })
		m := all[len(all)/2]
		fmt.Printf("%-12s %5.1f (%4.1f)", role, mb(m.resident), mb(m.anonymous))
		if len(all) > 1 {
			fmt.Printf("   median of %d; the largest %.1f", len(all), mb(all[len(all)-1].resident))
		}
		fmt.Println()
	}
	return nil
}

func mb(kib int) float64 { return float64(kib) * 1024 / 1e6 }

// roleOf tells by its command line what a process is in a run.
func roleOf(p testbed.Process) string {
	for _, word := range p.Args[:min(3, len(p.Args))] {
		switch word {
		case "keeper", "coordinator":
			return word
		case "worker":
			return "agent"
		}
	}
	return ""
}

func weightOf(pid int) weight {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // one that has gone weighs nothing
	return weight{field(status, "VmRSS:"), field(status, "RssAnon:")}
}

// field reads a line of /proc/PID/status, such as "VmRSS:     1234 kB".
func field(status []byte, name string) int {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return n
		}
	}
	return 0
}

// machine says what it was measured on, and whether something else was running.
func machine() string {
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d cores, load before: %s", runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:1], ""))
}
