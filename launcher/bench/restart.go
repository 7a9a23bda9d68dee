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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
)

// healthy is how long workers run before one is killed, so that muster takes each death for
// a new one.
const healthy = time.Second

// measureRestarts prints how long it takes from a worker's death to the first instruction of
// the next attempt's last worker, on three hosts, beside torchrun on the same hosts. Workers
// end at once when they get SIGTERM. Deaths under both alternate; the one that it is not the
// turn of waits.
func measureRestarts(ctx context.Context, muster string, runs int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	python, err := findTorch(ctx)
	if err != nil {
		return err
	}
	opts := testbed.Options{Hosts: stopHosts}
	if python != nil {
		opts.Keep = python
	}
	bed, err := testbed.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer bed.Close()
	b, err := newBench(ctx, bed, muster)
	if err != nil {
		return err
	}
	if err := b.setRestarts(runs); err != nil {
		return err
	}
	sides := []*side{{name: "muster", start: b.underMuster}}
	if python != nil {
		sides = append(sides, &side{name: "torchrun", start: func(ctx context.Context) (*session, error) { return b.underTorchrun(ctx, python[0], runs) }})
	}
	fmt.Printf("\nRestart on %d hosts x %d ranks: a worker is killed -> the last one of the next attempt runs; medians of %d, in ms\n\n", stopHosts, ranksPerHost, runs)
	if err := b.alternate(ctx, sides, runs); err != nil {
		return err
	}
	line := ""
	for _, s := range sides {
		line += fmt.Sprintf("%s %s    ", s.name, spread(s.times))
	}
	if python == nil {
		fmt.Printf("%s   torchrun is left out: there is no PyTorch here (.ci/torch makes one)\n", line)
		return nil
	}
	fmt.Printf("%s   ratio %5.2f\n", line, float64(median(sides[0].times))/float64(median(sides[1].times)))
	return nil
}

// findTorch returns a Python environment that has PyTorch and what that was made from, nil
// where there is none: see .ci/torch.
func findTorch(ctx context.Context) ([]string, error) {
	cache := os.Getenv("MUSTER_TEST_CACHE")
	if cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			return nil, nil // no home, no environment
		}
		cache = filepath.Join(folder, "muster-tests")
	}
	found, _ := filepath.Glob(filepath.Join(cache, "torch-*", "bin", "torchrun"))
	if len(found) == 0 {
		return nil, nil
	}
	venv := filepath.Dir(filepath.Dir(slices.Max(found)))
	base, err := exec.CommandContext(ctx, filepath.Join(venv, "bin", "python"), "-c", "import sys; print(sys.base_prefix)").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", venv, err)
	}
	return []string{venv, strings.TrimSpace(string(base))}, nil
}

func (b *bench) setRestarts(runs int) error {
	text, err := os.ReadFile(b.job)
	if err != nil {
		return err
	}
	block := fmt.Sprintf("{\n  restart {\n    attempts = %d\n    backoff = \"0s\"\n    healthy_after = %q\n  }\n", 2*runs, healthy)
	return os.WriteFile(b.job, bytes.Replace(text, []byte("{\n"), []byte(block), 1), 0o644)
}

// side is a launcher that is measured.
type side struct {
	name  string
	start func(context.Context) (*session, error)
	times []time.Duration
}

// session is a run of a launcher.
type session struct {
	marks string
	end   func() error // with what the launcher said, where it had ended before
	out   *safeBuffer
}

// safeBuffer takes in what several processes say.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// alternate has a worker die under each side by turns. The first deaths do not count.
func (b *bench) alternate(ctx context.Context, sides []*side, runs int) (err error) {
	var sessions []*session
	defer func() {
		for _, s := range sessions {
			err = errors.Join(err, s.end())
		}
	}()
	for _, side := range sides {
		s, err := side.start(ctx)
		if err != nil {
			return err
		}
		sessions = append(sessions, s)
		if err := poll(ctx, func() bool { _, err := b.lastMark(s.marks); return err == nil }); err != nil {
			return fmt.Errorf("wait for workers under %s: %w\n%s", side.name, err, s.out)
		}
	}
	for i := range runs + 1 {
		for j, side := range sides {
			took, err := b.restartOnce(ctx, sessions[j].marks)
			if err != nil {
				return fmt.Errorf("restart under %s: %w\n%s", side.name, err, sessions[j].out)
			}
			if i > 0 {
				side.times = append(side.times, took)
			}
		}
	}
	return nil
}

// restartOnce kills a worker of the last host and returns when the last new one ran.
func (b *bench) restartOnce(ctx context.Context, marks string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(healthy + healthy/5):
	}
	processes, err := b.bed.Hosts[stopHosts-1].Leftovers()
	if err != nil {
		return 0, err
	}
	victim := slices.IndexFunc(processes, func(p testbed.Process) bool {
		return len(p.Args) > 1 && p.Args[0] == b.worker && p.Args[1] == marks
	})
	if victim < 0 {
		return 0, errors.New("there is no worker on the last host")
	}
	began := monotonic()
	if err := unix.Kill(processes[victim].MachinePID, unix.SIGKILL); err != nil {
		return 0, err
	}
	var last time.Duration
	err = poll(ctx, func() bool {
		var first time.Duration
		first, last, err = b.markSpan(marks)
		return err == nil && first > began
	})
	return last - began, err
}

// markSpan is when the first and the last worker were started.
func (b *bench) markSpan(marks string) (first, last time.Duration, err error) {
	if last, err = b.lastMark(marks); err != nil {
		return 0, 0, err
	}
	first = last
	for rank := range len(b.bed.Hosts) * ranksPerHost {
		text, err := os.ReadFile(filepath.Join(marks, strconv.Itoa(rank)))
		if err != nil {
			return 0, 0, err
		}
		at, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, 0, err // it is being written
		}
		first = min(first, time.Duration(at))
	}
	return first, last, nil
}

func (b *bench) underMuster(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, marks, err := b.launch(ctx, "wait")
	if err != nil {
		cancel()
		return nil, err
	}
	s := &session{marks: marks, out: &safeBuffer{}}
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	s.end = func() error {
		cancel() // asks muster to stop the run
		_ = cmd.Wait()
		return nil // it was stopped
	}
	return s, nil
}

// torchrunPort is where torchrun's agents meet.
const torchrunPort = "29500"

// underTorchrun starts torchrun's agents, one on each host, as its manual has it for a job
// of so many nodes that is started again when a worker fails.
func (b *bench) underTorchrun(ctx context.Context, venv string, runs int) (*session, error) {
	b.runs++
	s := &session{marks: filepath.Join(b.bed.Shared, "run"+strconv.Itoa(b.runs)), out: &safeBuffer{}}
	if err := os.Mkdir(s.marks, 0o777); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var agents sync.WaitGroup
	for i, h := range b.bed.Hosts {
		argv := []string{
			filepath.Join(venv, "bin", "python"), "-m", "torch.distributed.run", "--nnodes", fmt.Sprint(len(b.bed.Hosts)), "--nproc-per-node", fmt.Sprint(ranksPerHost),
			"--max-restarts", fmt.Sprint(2 * runs), "--rdzv-backend", "c10d", "--rdzv-id", "bench", "--rdzv-endpoint", fmt.Sprintf("%v:%s", b.bed.Hosts[0].Addr, torchrunPort),
			"--rdzv-conf", fmt.Sprintf("is_host=%t", i == 0), "--local-addr", h.Addr.String(), "--no-python", b.worker, s.marks, "wait",
		}
		agents.Go(func() {
			_, errs, err := h.Run(ctx, argv...)
			fmt.Fprintf(s.out, "%s: %v\n%s\n", h.Name, err, errs)
		})
	}
	s.end = func() error {
		cancel()
		agents.Wait()
		for _, h := range b.bed.Hosts { // its workers are in sessions of their own
			left, err := h.Leftovers()
			if err != nil {
				return err
			}
			for _, p := range left {
				if len(p.Args) > 1 && p.Args[0] == b.worker && p.Args[1] == s.marks {
					_ = unix.Kill(p.MachinePID, unix.SIGKILL) // it may be gone by now
				}
			}
		}
		return nil
	}
	return s, nil
}
