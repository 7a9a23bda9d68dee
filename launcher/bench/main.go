//go:build linux

// Command bench measures how long muster takes to start a job on 1, 4, 8 and 16 hosts of
// a testbed where it is installed already: from the launcher's start to the first
// instruction of the last worker. Beside it stands the time of as many parallel OpenSSH
// "true" on the same hosts, which is what any launcher over SSH has to do at least. Runs
// of both alternate, so that whatever else the machine does hits both. Then it measures how
// long a run on three hosts takes to end when a worker dies or a host is cut off, and to
// start again, beside torchrun, and last what it costs to sample ranks while they run. It
// needs root and gcc, and ends whatever it starts.
//
//	make bench
//	make bench PART=sampling   the last only
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// limit bounds the whole of it.
const limit = 8 * time.Minute

func main() {
	muster := flag.String("muster", "bin/muster", "the binary to measure")
	sizes := flag.String("hosts", "1,4,8,16", "how many hosts")
	runs := flag.Int("runs", 9, "how often each is measured; the median counts")
	sampling := flag.Bool("sampling", false, "measure only what sampling costs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := error(nil)
	if !*sampling {
		err = run(ctx, *muster, *sizes, *runs)
	}
	if err == nil {
		err = sampleIn(ctx, *muster)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func sampleIn(ctx context.Context, muster string) error {
	muster, err := filepath.Abs(muster)
	if err != nil {
		return err
	}
	return measureSampling(ctx, muster)
}

func run(ctx context.Context, muster, sizes string, runs int) error {
	counts, err := parseSizes(sizes)
	if err != nil {
		return err
	}
	if muster, err = filepath.Abs(muster); err != nil {
		return err
	}
	fmt.Printf("Start of N hosts x %d ranks, muster installed; medians of %d, in ms. %s\n\n", ranksPerHost, runs, machine())
	fmt.Println(header)
	for i, n := range counts {
		if err := measure(ctx, muster, n, runs, i == len(counts)-1); err != nil {
			return fmt.Errorf("%d hosts: %w", n, err)
		}
	}
	if err := measureStops(ctx, muster, stopRuns); err != nil {
		return err
	}
	return measureRestarts(ctx, muster, stopRuns)
}

// stopRuns is how often each way to end a run is measured: one that waits for the lease
// takes seconds.
const stopRuns = 5

func parseSizes(text string) ([]int, error) {
	var counts []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-hosts %q is no list of numbers", text)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// measure starts a bed of n hosts and prints its line, and of the last bed what the
// processes of a run take of memory.
func measure(ctx context.Context, muster string, n, runs int, last bool) error {
	bed, err := testbed.Start(ctx, testbed.Options{Hosts: n})
	if err != nil {
		return err
	}
	defer bed.Close()
	b, err := newBench(ctx, bed, muster)
	if err != nil {
		return err
	}
	if err := b.compare(ctx, runs); err != nil {
		return err
	}
	if last {
		return b.weigh(ctx)
	}
	return nil
}
