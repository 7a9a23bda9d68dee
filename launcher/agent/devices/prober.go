//go:build linux

package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi"
)

// Limits of a probe. The launcher waits somewhat longer than all together: see helloWait there.
const (
	pluginWait = 10 * time.Second // for a plug-in to start
	nvmlWait   = 30 * time.Second // for NVML: a driver that nothing keeps loaded takes seconds a GPU
	smiWait    = 20 * time.Second // for nvidia-smi, which has limits of its own
)

// SMICommand is the subcommand by which this program is the plug-in that asks nvidia-smi.
const SMICommand = "nvidia-smi"

// prober asks one plug-in after the other until one answers.
type prober []*external.Prober

func (f *Flags) prober(here rundir.Place, starter external.Starter) prober {
	first := f.first(here, starter)
	if f.plugin != nil {
		return prober{first}
	}
	program := here.Program
	smi := newPlugin(here, starter, external.Program{
		Name: nvidiasmi.Source, Path: program[0], ProbeLimit: smiWait,
		Args: append(program[1:len(program):len(program)], SMICommand),
	})
	if first == nil {
		return prober{smi}
	}
	return prober{first, smi}
}

// first is the plug-in that is asked first, and the only one that the driver may report errors to; nil: there is none
// but nvidia-smi.
func (f *Flags) first(here rundir.Place, starter external.Starter) *external.Prober {
	if p := f.plugin; p != nil {
		path := p.Path
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(os.Getenv("HOME"), rest)
		}
		return newPlugin(here, starter, external.Program{
			Name: p.Name, Path: path, Args: p.Args, SHA256: p.SHA256, ProbeLimit: nvmlWait,
		})
	}
	if f.nvml == "" {
		return nil
	}
	return newPlugin(here, starter, external.Program{Name: "nvml", Path: f.nvml, ProbeLimit: nvmlWait})
}

func newPlugin(here rundir.Place, starter external.Starter, p external.Program) *external.Prober {
	p.Env, p.StartLimit = os.Environ(), pluginWait
	if here.Sockets != "" {
		p.SocketDir = filepath.Join(here.Sockets, rundir.PluginSockets)
		if err := os.MkdirAll(p.SocketDir, 0o700); err != nil {
			p.SocketDir = ""
		}
	}
	return external.New(p, starter)
}

// Probe returns the first answer. Its notes say why there was none before.
func (p prober) Probe(ctx context.Context) (*gpu.Inventory, error) {
	found, failed := firstAnswer(ctx, p, (*external.Prober).Probe)
	if found == nil {
		return nil, failed
	}
	for _, why := range failed {
		found.Notes = append(found.Notes, fmt.Sprintf("looked at by %s, because %v", found.Source, why))
	}
	return found, nil
}

func (p prober) sample(ctx context.Context) (*gpu.Samples, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotLimit)
	defer cancel()
	found, failed := firstAnswer(ctx, p, (*external.Prober).Sample)
	switch {
	case found != nil:
		return found, nil
	case len(failed) == 1:
		return nil, failed[0]
	}
	return nil, failed
}

// firstAnswer asks plug-ins until one answers, and says why those before did not.
func firstAnswer[T any](
	ctx context.Context, p prober, ask func(*external.Prober, context.Context) (*T, error),
) (_ *T, failed oneLine) {
	for _, one := range p {
		found, err := ask(one, ctx)
		if err == nil {
			return found, failed
		}
		failed = append(failed, withoutPath(err))
	}
	return nil, failed
}

type oneLine []error

func (e oneLine) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// withoutPath is an error without the path of the plug-in that reports it, which is of no interest.
func withoutPath(err error) error {
	var of *external.Error
	if errors.As(err, &of) && of.Kind == external.KindRefused {
		return fmt.Errorf("%s: %s", of.Name, strings.TrimPrefix(of.Text, "it says: "))
	}
	return err
}

func (p prober) close() {
	for _, one := range p {
		_ = one.Close() // Probe has said what cannot be ended, and the keeper sees to it
	}
}
