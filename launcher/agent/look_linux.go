package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/claim"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi"
)

// look is how a host's devices are looked at.
type look struct {
	none    bool            // the job uses no device: nothing is looked at
	choose  bool            // devices are going to be claimed
	nvml    string          // path of muster's NVML plugin; "": there is none for this host
	plugin  *message.Plugin // a site's own; nil: NVML, else nvidia-smi
	program string          // whose torch is looked for, for commands that only look
	workdir string
	names   []string // variables of the host that the job file refers to
	turn    *os.File // held from the look until devices are claimed
}

// lookFlags are flags of each command that looks. They are the launcher's words.
func lookFlags(flags *flag.FlagSet) *look {
	l := &look{}
	flags.BoolVar(&l.none, "no-devices", false, "look at no devices")
	flags.BoolVar(&l.choose, "choose", false, "devices are going to be claimed: one launch after the other")
	flags.StringVar(&l.nvml, "nvml", "", "muster's NVML plugin")
	flags.StringVar(&l.program, "program", "", "find the torch that this program would use")
	flags.StringVar(&l.workdir, "workdir", "", "where that is started")
	flags.Func("name", "a variable whose value is to be told; may be given several times", func(name string) error {
		l.names = append(l.names, name)
		return nil
	})
	flags.Func("plugin", "a site's own plugin, as JSON", func(text string) error {
		l.plugin = &message.Plugin{}
		return json.Unmarshal([]byte(text), l.plugin)
	})
	return l
}

// args are the flags anew, for a child.
func (l *look) args() []string {
	args := []string{"-nvml", l.nvml}
	if l.none {
		args = append(args, "-no-devices")
	}
	if l.choose {
		args = append(args, "-choose")
	}
	for _, name := range l.names {
		args = append(args, "-name", name)
	}
	if l.plugin != nil {
		args = append(args, "-plugin", string(message.Encode(l.plugin)))
	}
	return args
}

// Limits of a look. The launcher waits somewhat longer than all together: see helloWait
// there.
const (
	turnWait  = 10 * time.Second // at most, for other launches that choose at the moment
	startWait = 10 * time.Second // for a plugin to start
	probeWait = 30 * time.Second // for NVML: a driver that nothing keeps loaded takes seconds a GPU
	smiWait   = 20 * time.Second // for nvidia-smi, which has limits of its own
)

// devices looks at the devices of this host. It never fails: what cannot be known is said.
func (l *look) devices(here rundir.Place, starter external.Starter, allowed []int) *facts.Devices {
	sign, hardware := facts.HasNVIDIA("")
	switch {
	case l.none:
		return nil
	case sign == "" && l.plugin == nil:
		return &facts.Devices{None: "there is no NVIDIA GPU on its PCI bus, and no NVIDIA driver"}
	}
	if l.choose {
		l.awaitTurn(here.Run)
	}
	prober := l.prober(here, starter)
	defer prober.close()
	d := facts.LookAtDevices(context.Background(), "", prober, allowed)
	d.Taken = claim.Holders()
	switch {
	case l.plugin != nil:
		d.Expected = "the job file's plugin " + l.plugin.Name
	case hardware:
		d.Expected = sign
	}
	return d
}

// awaitTurn waits for this launch's turn. Two launches over several hosts may have one
// host's turn each and wait for the other's: how long is a run's own, so that one of them
// gives up first, on all of its hosts at once, and the other sees what it has taken.
func (l *look) awaitTurn(run string) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(run)) // never fails
	wait := turnWait/5 + time.Duration(hash.Sum32()%1000)*(turnWait*4/5)/1000
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	l.turn = claim.Choosing(ctx)
}

// facts adds to a host's facts what was asked for: its devices, and variables of its
// environment.
func (l *look) facts(host facts.Host, here rundir.Place, starter external.Starter) facts.Host {
	host.Devices = l.devices(here, starter, host.CPUs.Allowed)
	names := l.names
	if host.Devices != nil && host.Devices.Inventory != nil && host.Devices.Visibility.Variable != "" {
		names = append(slices.Clone(names), host.Devices.Visibility.Variable)
	}
	env := environ.Host(os.Environ())
	host.Environ = facts.Telling(env, names)
	if host.Devices != nil && host.Devices.Inventory != nil {
		host.MPS = facts.LookForMPS("", env)
	}
	return host
}

// chosen lets the next launch choose.
func (l *look) chosen() {
	if l.turn != nil {
		l.turn.Close()
		l.turn = nil
	}
}

// prober asks one plugin after the other until one answers.
type prober []*external.Prober

func (l *look) prober(here rundir.Place, starter external.Starter) prober {
	if p := l.first(here, starter); l.plugin != nil {
		return prober{p}
	} else if p != nil {
		return prober{p, l.smi(here, starter)}
	}
	return prober{l.smi(here, starter)}
}

// first is the plugin that is asked first, and the only one that may be told of errors by
// the driver; nil: there is none but nvidia-smi.
func (l *look) first(here rundir.Place, starter external.Starter) *external.Prober {
	if p := l.plugin; p != nil {
		path := p.Path
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(os.Getenv("HOME"), rest)
		}
		return external.New(pluginIn(here, external.Program{Name: p.Name, Path: path, Args: p.Args, SHA256: p.SHA256, ProbeLimit: probeWait}), starter)
	}
	if l.nvml == "" {
		return nil
	}
	return external.New(pluginIn(here, external.Program{Name: "nvml", Path: l.nvml, ProbeLimit: probeWait}), starter)
}

func (l *look) smi(here rundir.Place, starter external.Starter) *external.Prober {
	argv := append(here.Program[:len(here.Program):len(here.Program)], smiCommand)
	return external.New(pluginIn(here, external.Program{Name: nvidiasmi.Source, Path: argv[0], Args: argv[1:], ProbeLimit: smiWait}), starter)
}

// plugin completes a program by what all have in common.
func pluginIn(p rundir.Place, program external.Program) external.Program {
	program.Env, program.StartLimit = os.Environ(), startWait
	if p.Sockets != "" {
		program.SocketDir = filepath.Join(p.Sockets, rundir.PluginSockets)
		if err := os.MkdirAll(program.SocketDir, 0o700); err != nil {
			program.SocketDir = ""
		}
	}
	return program
}

// smiCommand makes this program the plugin that asks nvidia-smi.
const smiCommand = "nvidia-smi"

// Probe returns the first answer. Why there was none before is among its notes.
func (p prober) Probe(ctx context.Context) (*gpu.Inventory, error) {
	var failed []error
	for _, one := range p {
		found, err := one.Probe(ctx)
		if err != nil {
			failed = append(failed, ownWords(err))
			continue
		}
		for _, why := range failed {
			found.Notes = append(found.Notes, fmt.Sprintf("looked at by %s, because %v", found.Source, why))
		}
		return found, nil
	}
	return nil, oneLine(failed)
}

// oneLine joins errors that are about one thing.
type oneLine []error

func (e oneLine) Error() string {
	words := make([]string, len(e))
	for i, err := range e {
		words[i] = err.Error()
	}
	return strings.Join(words, "; ")
}

// ownWords are the words of one of muster's own plugins: where its program lies is of no
// interest, unless that is what is wrong.
func ownWords(err error) error {
	var of *external.Error
	if errors.As(err, &of) && of.Kind == external.KindRefused {
		return fmt.Errorf("%s: %s", of.Name, strings.TrimPrefix(of.Text, "it says: "))
	}
	return err
}

func (p prober) close() {
	for _, one := range p {
		_ = one.Close() // what cannot be ended was said by Probe, and the keeper sees to it
	}
}

// clock is the wall clock, for a comparison with the launcher's.
func clock() float64 { return float64(time.Now().UnixNano()) / 1e9 }
