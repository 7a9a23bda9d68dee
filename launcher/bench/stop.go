//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
)

// stopHosts is how many hosts a run has whose end is measured, stopLease its lease.
const (
	stopHosts = 3
	stopLease = "3s"
)

// measureStops prints how long it takes from a worker's death, and from a host's being cut
// off without a sign, until the workers on the other hosts are gone. They end at once when
// they get SIGTERM.
func measureStops(ctx context.Context, muster string, runs int) error {
	bed, err := testbed.Start(ctx, testbed.Options{Hosts: stopHosts})
	if err != nil {
		return err
	}
	defer bed.Close()
	b, err := newBench(ctx, bed, muster)
	if err != nil {
		return err
	}
	if err := b.setLease(stopLease); err != nil {
		return err
	}
	victim := bed.Hosts[stopHosts-1]
	fmt.Printf("\nEnd of a run on %d hosts x %d ranks, lease %s; medians of %d, in ms\n\n", stopHosts, ranksPerHost, stopLease, runs)
	for _, harm := range []struct {
		what string
		do   func(workers map[*testbed.Host][]int) error
	}{
		{"a worker is killed  -> all others are gone          ", func(workers map[*testbed.Host][]int) error { return unix.Kill(workers[victim][0], unix.SIGKILL) }},
		{"a host is cut off   -> workers elsewhere are gone   ", func(map[*testbed.Host][]int) error { return victim.CutSilently() }},
	} {
		var times, own []time.Duration
		for range runs {
			elsewhere, there, err := b.stopOnce(ctx, victim, harm.do)
			if err != nil {
				return err
			}
			times, own = append(times, elsewhere), append(own, there)
		}
		fmt.Printf("%s %s   on the host itself %s\n", harm.what, spread(times), spread(own))
	}
	return nil
}

func (b *bench) setLease(lease string) error {
	text, err := os.ReadFile(b.job)
	if err != nil {
		return err
	}
	return os.WriteFile(b.job, bytes.Replace(text, []byte("{\n"), []byte("{\n  lease = \""+lease+"\"\n"), 1), 0o644)
}

// stopOnce starts a run, does it harm and returns when the workers on other hosts, and
// those on the victim, were gone.
func (b *bench) stopOnce(ctx context.Context, victim *testbed.Host, harm func(map[*testbed.Host][]int) error) (elsewhere, there time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd, marks, err := b.launch(ctx, "wait")
	if err != nil {
		return 0, 0, err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	elsewhere, there, err = b.timeStop(ctx, marks, victim, harm)
	healErr := victim.Heal()
	waitErr := cmd.Wait()
	var failed *exec.ExitError
	if err == nil && healErr == nil && errors.As(waitErr, &failed) {
		return elsewhere, there, b.untilEmpty(ctx) // it failed, as it should
	}
	return 0, 0, fmt.Errorf("%w; muster: %v\n%s", errors.Join(err, healErr), waitErr, out.Bytes())
}

func (b *bench) timeStop(ctx context.Context, marks string, victim *testbed.Host, harm func(map[*testbed.Host][]int) error) (elsewhere, there time.Duration, err error) {
	if err := poll(ctx, func() bool { _, err := b.lastMark(marks); return err == nil }); err != nil {
		return 0, 0, fmt.Errorf("wait for workers: %w", err)
	}
	workers, err := b.workers()
	if err != nil {
		return 0, 0, err
	}
	began := monotonic()
	if err := harm(workers); err != nil {
		return 0, 0, err
	}
	err = poll(ctx, func() bool {
		now := monotonic() - began
		if elsewhere == 0 && gone(workers, func(h *testbed.Host) bool { return h != victim }) {
			elsewhere = now
		}
		if there == 0 && gone(workers, func(h *testbed.Host) bool { return h == victim }) {
			there = now
		}
		return elsewhere != 0 && there != 0
	})
	return elsewhere, there, err
}

// workers are the machine's pids of the run's workers.
func (b *bench) workers() (map[*testbed.Host][]int, error) {
	found := map[*testbed.Host][]int{}
	for _, h := range b.bed.Hosts {
		processes, err := h.Leftovers()
		if err != nil {
			return nil, err
		}
		for _, p := range processes {
			if p.Name == filepath.Base(b.worker) {
				found[h] = append(found[h], p.MachinePID)
			}
		}
		if len(found[h]) != ranksPerHost {
			return nil, fmt.Errorf("%s has %d workers", h.Name, len(found[h]))
		}
	}
	return found, nil
}

func gone(workers map[*testbed.Host][]int, on func(*testbed.Host) bool) bool {
	for h, pids := range workers {
		for _, pid := range pids {
			if on(h) && unix.Kill(pid, 0) == nil {
				return false
			}
		}
	}
	return true
}

// untilEmpty waits until nothing of the run is left.
func (b *bench) untilEmpty(ctx context.Context) error {
	return poll(ctx, func() bool {
		for _, h := range b.bed.Hosts {
			if left, err := h.Leftovers(); err != nil || len(left) > 0 {
				return false
			}
		}
		return true
	})
}

// poll asks again and again, a millisecond apart.
func poll(ctx context.Context, ok func() bool) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
