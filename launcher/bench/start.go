//go:build linux

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
)

const ranksPerHost = 2

// patience bounds one start.
const patience = time.Minute

//go:embed worker/first.c
var workerSource string

// bench is a bed with a job to start on it.
type bench struct {
	bed    *testbed.Bed
	muster string
	job    string // the job file
	worker string
	runs   int // so far; each has a folder for what its workers write
}

func newBench(ctx context.Context, bed *testbed.Bed, muster string) (*bench, error) {
	b := &bench{bed: bed, muster: muster, job: filepath.Join(bed.Dir, "job.hcl"), worker: filepath.Join(bed.Shared, "first")}
	gcc := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-x", "c", "-o", b.worker, "-")
	gcc.Stdin = strings.NewReader(workerSource)
	if out, err := gcc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	var names []string
	for _, h := range bed.Hosts {
		names = append(names, strconv.Quote(h.Name))
	}
	text := fmt.Sprintf("job \"bench\" {\n  command = [%q]\n  hosts \"ssh\" { names = [%s] }\n  ranks { per_host = %d }\n}\n",
		b.worker, strings.Join(names, ", "), ranksPerHost)
	return b, os.WriteFile(b.job, []byte(text), 0o644)
}

const header = "hosts  ranks    muster (min-max)         ssh true (min-max)    ratio   until muster ends"

// compare measures both by turns and prints a line.
func (b *bench) compare(ctx context.Context, runs int) error {
	var starts, ends, logins []time.Duration
	for i := range runs + 1 {
		start, end, err := b.start(ctx)
		if err != nil {
			return err
		}
		login, err := b.logIn(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // muster was being installed, and nothing was in memory yet
		}
		starts, ends, logins = append(starts, start), append(ends, end), append(logins, login)
	}
	n := len(b.bed.Hosts)
	fmt.Printf("%5d  %5d  %s      %s    %5.2f   %s\n", n, n*ranksPerHost, spread(starts), spread(logins),
		float64(median(starts))/float64(median(logins)), ms(median(ends)))
	return nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%7.1f", float64(d.Microseconds())/1000) }

func spread(all []time.Duration) string {
	m := median(all)
	return fmt.Sprintf("%s (%s -%s)", ms(m), ms(all[0]), ms(all[len(all)-1]))
}

// start runs the job once. It returns the times from the launcher's start to the first
// instruction of the last worker and to the launcher's end.
func (b *bench) start(ctx context.Context) (start, end time.Duration, err error) {
	cmd, marks, err := b.launch(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := monotonic()
	out, err := cmd.CombinedOutput()
	end = monotonic() - began
	if err != nil {
		return 0, 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	last, err := b.lastMark(marks)
	return last - began, end, err
}

// launch makes the command that starts the job, and the folder for its workers' marks.
func (b *bench) launch(ctx context.Context, words ...string) (*exec.Cmd, string, error) {
	b.runs++
	marks := filepath.Join(b.bed.Shared, "run"+strconv.Itoa(b.runs))
	if err := os.Mkdir(marks, 0o777); err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, b.muster, append([]string{"run", b.job, "--", marks}, words...)...)
	cmd.Env = b.bed.ClientEnv()
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd, marks, nil
}

// lastMark is when the last worker was started.
func (b *bench) lastMark(marks string) (time.Duration, error) {
	var last time.Duration
	for rank := range len(b.bed.Hosts) * ranksPerHost {
		text, err := os.ReadFile(filepath.Join(marks, strconv.Itoa(rank)))
		if err != nil {
			return 0, err
		}
		at, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("mark of rank %d: %w", rank, err)
		}
		last = max(last, time.Duration(at))
	}
	return last, nil
}

// logIn runs "true" by OpenSSH on all hosts at once and returns the time until the last
// has ended.
func (b *bench) logIn(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all errgroup.Group
	began := monotonic()
	for _, h := range b.bed.Hosts {
		all.Go(func() error {
			out, err := exec.CommandContext(ctx, "ssh", "-F", b.bed.SSHConfig, "-o", "BatchMode=yes", h.Name, "true").CombinedOutput()
			if err != nil {
				return fmt.Errorf("ssh %s true: %w\n%s", h.Name, err, out)
			}
			return nil
		})
	}
	err := all.Wait()
	return monotonic() - began, err
}

// monotonic reads the clock that workers read.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("Linux has this clock: " + err.Error())
	}
	return time.Duration(now.Nano())
}
