// Package nvidiasmi looks at NVIDIA GPUs by running nvidia-smi, where the plugin that
// asks NVML itself cannot load. It runs four commands at once, each within a time limit,
// and reads them by pure parsers, one source a file: -q -x (all about each GPU), -L (names
// of MIG devices), topo -m (ways between GPUs), nvlink -s (each NVLink). It knows nothing
// of jobs and of sysfs: CPUs and NUMA nodes of a GPU are not taken from nvidia-smi.
package nvidiasmi

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// Source is the name of this prober in what it finds.
const Source = "nvidia-smi"

// Prober is the GPUProber over nvidia-smi.
type Prober struct {
	runner Runner
}

var _ gpu.Prober = (*Prober)(nil)

// New returns a prober that runs the program by r, usually a *Program. One Program serves
// all probes: it remembers what hangs.
func New(r Runner) *Prober { return &Prober{runner: r} }

// answer is what came of one command.
type answer struct {
	Output
	err error // it did not run to its end
}

// answers of the four commands.
type answers struct {
	query, list, topology, links answer
}

// Probe asks nvidia-smi and puts its answers together. Where nothing is known, the error
// is ErrNotInstalled, a *plaintext.Failure or what went wrong with the query.
func (p *Prober) Probe(ctx context.Context) (*gpu.Inventory, error) {
	var a answers
	var running sync.WaitGroup
	ask := func(into *answer, args ...string) {
		running.Go(func() { into.Output, into.err = p.runner.Run(ctx, args...) })
	}
	ask(&a.query, "-q", "-x")
	ask(&a.list, "-L")
	ask(&a.topology, "topo", "-m")
	ask(&a.links, "nvlink", "-s")
	running.Wait()
	return combine(a)
}

// trouble is why an answer as a whole is not what was hoped for: it did not end, or says
// so in a sentence or by its exit status. Nil: all was well, or only one GPU is not.
func (a answer) trouble() error {
	if a.err != nil {
		return a.err
	}
	for _, f := range a.failures() {
		if !strings.HasPrefix(f.Class, "gpu.") {
			return f
		}
	}
	return plaintext.ExitFailure(a.Exit)
}

// failures are the sentences of both streams.
func (a answer) failures() []*plaintext.Failure {
	return plaintext.ParseFailures(slices.Concat(a.Stdout, []byte("\n"), a.Stderr))
}
