// Command gpucheck proves on a machine with NVIDIA GPUs what stand-ins cannot: that muster
// sees what is there, that a rank lands on the GPU of its plan, why its memory ran out, what
// of it is used meanwhile, and that it hangs. It changes no setting of a GPU, needs neither
// Go nor a C compiler nor a network where it runs, and ends within minutes. What the tools
// said is kept, to become test data.
//
// It knows muster from outside only: its commands, and their JSON. It starts one goroutine
// for each program that it reads while that runs, and waits for it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const help = `usage: gpucheck [flags]

Checks on this machine, with its real NVIDIA GPUs, what muster finds and where ranks
land. Nothing of the GPUs is set or reset; each is used for seconds, with 64 MiB of its
memory, for one check 2 GiB, and the first one for some seconds with all of it, for it is
to run out. GPUs that somebody uses are left alone, and the checks that need them are then
said to be not possible.

To check a machine without Go, compiler or network, build elsewhere and copy one folder:

  make gpu-check-programs            makes bin/gpu-check: gpucheck, muster,
                                     muster-plugin-nvml, cudaworker
  scp -r bin/gpu-check HOST:
  ssh HOST gpu-check/gpucheck        and fetch HOST:gpu-check-out

Where a Python has torch, what muster sets for it and for NCCL is tried too (-python), and
whether muster tells the ways apart in which it runs out of memory. The checks have two
parts, each within the time of -limit (-part makes one of them):

  start    what is found, where ranks land, what is refused, how ranks fail
  watch    what is seen of ranks that run: their memory, NCCL's buffers, hangs (by torch)

It needs nvidia-smi and the driver's libraries (libnvidia-ml.so.1, libcuda.so.1), a glibc
of the last ten years, and a machine of the kind that it was built for (amd64, arm64).

Exit status: 0 nothing failed, 1 something did, 2 wrong arguments.

`

// options are the flags.
type options struct {
	muster, plugin, worker, out string
	python, part                string
	json                        bool
	limit                       time.Duration
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(2)
	}
	if failed(results) {
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("gpucheck", flag.ExitOnError)
	flags.StringVar(&o.muster, "muster", "", "the muster to check (default: that beside gpucheck)")
	flags.StringVar(&o.plugin, "plugin", "", "its NVML plugin (default: muster-plugin-nvml beside gpucheck)")
	flags.StringVar(&o.worker, "worker", "", "what ranks run (default: cudaworker beside gpucheck)")
	flags.StringVar(&o.python, "python", "python3", "a Python with torch, for checks of that")
	flags.StringVar(&o.out, "out", "gpu-check-out", "folder for what tools said; made if missing")
	flags.StringVar(&o.part, "part", "", "make only the checks of this part: start or watch")
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	flags.DurationVar(&o.limit, "limit", 210*time.Second, "start no check of a part after this time")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), help)
		flags.PrintDefaults()
	}
	_ = flags.Parse(args) // it exits
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.part != "" && !slices.ContainsFunc(parts(), func(p part) bool { return p.name == o.part }) {
		return o, fmt.Errorf("there is no part %q: -part start or -part watch", o.part)
	}
	return o, o.find()
}

// find makes paths absolute, and takes programs that are not named from beside this one.
func (o *options) find() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, p := range []struct {
		path *string
		name string
	}{{&o.muster, "muster"}, {&o.plugin, "muster-plugin-nvml"}, {&o.worker, "cudaworker"}} {
		if *p.path == "" {
			*p.path = filepath.Join(filepath.Dir(self), p.name)
		}
		if *p.path, err = filepath.Abs(*p.path); err != nil {
			return err
		}
		if _, err := os.Stat(*p.path); err != nil {
			return fmt.Errorf("%w; see gpucheck -help for what to copy", err)
		}
	}
	o.out, err = filepath.Abs(o.out)
	return err
}

// run makes all checks, prints what came of them and keeps it in the folder.
func run(ctx context.Context, o options) ([]result, error) {
	s, err := open(o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	results := s.checkAll(ctx)
	return results, s.tell(results)
}
