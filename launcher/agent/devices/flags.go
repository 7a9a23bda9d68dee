//go:build linux

// Package devices watches the devices of a host: what they are, who uses them while workers run, and what the driver
// reports.
package devices

import (
	"context"
	"encoding/json"
	"flag"
	"hash/fnv"
	"os"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/claim"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/plugins/external"
)

// Flags say how a host's devices are probed.
type Flags struct {
	Program string // whose torch is looked for, for commands that only look
	Workdir string
	none    bool            // the job uses no device
	choose  bool            // devices are going to be claimed
	nvml    string          // path of muster's NVML plug-in; "": there is none for this host
	plugin  *message.Plugin // a site's own; nil: NVML, else nvidia-smi
	names   []string        // variables of the host that the job file refers to
	turn    *os.File        // held from the probe until devices are claimed
}

// NewFlags adds to the flags of a command those by which devices are probed. The launcher gives them.
func NewFlags(flags *flag.FlagSet) *Flags {
	f := &Flags{}
	flags.BoolVar(&f.none, "no-devices", false, "look at no devices")
	flags.BoolVar(&f.choose, "choose", false, "devices are going to be claimed: one launch after the other")
	flags.StringVar(&f.nvml, "nvml", "", "muster's NVML plugin")
	flags.StringVar(&f.Program, "program", "", "find the torch that this program would use")
	flags.StringVar(&f.Workdir, "workdir", "", "where that is started")
	flags.Func("name", "a variable whose value is to be told; may be given several times", func(name string) error {
		f.names = append(f.names, name)
		return nil
	})
	flags.Func("plugin", "a site's own plugin, as JSON", func(text string) error {
		f.plugin = &message.Plugin{}
		return json.Unmarshal([]byte(text), f.plugin)
	})
	return f
}

// Args are the flags again, for a child.
func (f *Flags) Args() []string {
	args := []string{"-nvml", f.nvml}
	if f.none {
		args = append(args, "-no-devices")
	}
	if f.choose {
		args = append(args, "-choose")
	}
	for _, name := range f.names {
		args = append(args, "-name", name)
	}
	if f.plugin != nil {
		args = append(args, "-plugin", string(message.Encode(f.plugin)))
	}
	return args
}

// turnWait is how long a launch waits at most for others that choose devices at the moment.
const turnWait = 10 * time.Second

// Facts adds to a host's facts what was asked for: its devices, and variables of its environment.
func (f *Flags) Facts(host facts.Host, here rundir.Place, starter external.Starter) facts.Host {
	host.Devices = f.devices(here, starter, host.CPUs.Allowed)
	names, env := f.names, environ.Host(os.Environ())
	if host.Devices != nil && host.Devices.Inventory != nil {
		if variable := host.Devices.Visibility.Variable; variable != "" {
			names = append(slices.Clone(names), variable)
		}
		host.MPS = facts.LookForMPS("", env)
	}
	host.Environ = facts.Telling(env, names)
	return host
}

// devices probes the devices of this host. It never fails: it says what cannot be known.
func (f *Flags) devices(here rundir.Place, starter external.Starter, allowed []int) *facts.Devices {
	sign, hardware := facts.HasNVIDIA("")
	switch {
	case f.none:
		return nil
	case sign == "" && f.plugin == nil:
		return &facts.Devices{None: "there is no NVIDIA GPU on its PCI bus, and no NVIDIA driver"}
	}
	if f.choose {
		f.awaitTurn(here.Run)
	}
	prober := f.prober(here, starter)
	defer prober.close()
	d := facts.LookAtDevices(context.Background(), "", prober, allowed)
	d.Taken = claim.Holders()
	switch {
	case f.plugin != nil:
		d.Expected = "the job file's plugin " + f.plugin.Name
	case hardware:
		d.Expected = sign
	}
	return d
}

// awaitTurn waits for this launch's turn. Two launches over several hosts may have one host's turn each and wait for
// the other's. The limit differs from run to run, so that one of them gives up first, on all of its hosts at once, and
// the other sees what it has taken.
func (f *Flags) awaitTurn(run string) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(run)) // never fails
	wait := turnWait/5 + time.Duration(hash.Sum32()%1000)*(turnWait*4/5)/1000
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	f.turn = claim.Choosing(ctx)
}

// Claimed lets the next launch choose.
func (f *Flags) Claimed() {
	if f.turn != nil {
		f.turn.Close()
		f.turn = nil
	}
}
