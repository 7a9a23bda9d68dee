package launcher

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Look contacts hosts, learns their facts and starts nothing that stays.
type Look struct {
	Hosts    []config.Host
	Job      *config.Job // nil: hosts are looked at for themselves
	All      bool        // look at devices also where the job uses none
	Environ  bool        // learn what workers would find in the environment there
	Connect  fleet.Connector
	Observer Observer
}

// Seen is what was learnt of a host.
type Seen struct {
	Facts facts.Host
	// ClockOffset is how far the host's clock is ahead of this machine's, in seconds, and
	// ClockError by how much that may be wrong.
	ClockOffset, ClockError float64
	// Environment is what workers would find there, where it was asked for; setup may
	// change it.
	Environment map[string]string
}

// Facts returns what was learnt of the hosts, in their order.
func (l *Look) Facts(ctx context.Context) ([]Seen, error) {
	invited := make([]fleet.Invitation, len(l.Hosts))
	for i, h := range l.Hosts {
		invited[i] = fleet.Invitation{Name: h.Name, Target: targetOf(h), Launch: l.launchOn(h)}
	}
	l.Observer.Phase("asking " + plural.Of(len(invited), "host"))
	f, err := fleet.Assemble(ctx, l.Connect, invited, func(n int) { l.Observer.HostDone(n, len(invited)) })
	if err != nil {
		return nil, err
	}
	defer f.Dismiss(fleet.EndWait)
	seen := make([]Seen, len(f.Hosts))
	for i, h := range f.Hosts {
		seen[i] = Seen{h.Hello.Facts, h.ClockOffset, h.ClockError, h.Hello.Environment}
	}
	return seen, nil
}

func (l *Look) launchOn(h config.Host) remote.Launch {
	launch := remote.Launch{Program: "muster-agent", Args: []string{"facts"}}
	if l.All {
		h.Devices = config.Devices{}
	}
	probeDevices(&launch, l.Job, h, false)
	if l.Job != nil {
		program := l.Job.Python
		if program == "" {
			program = l.Job.Command[0]
		}
		launch.Args = append(launch.Args, "-program", program, "-workdir", h.Workdir)
	}
	if l.Environ {
		launch.Args = append(launch.Args, "-environ")
	}
	return launch
}

// Plan returns how the job would run on its hosts, and what was learnt of them.
func (l *Look) Plan(ctx context.Context) (*plan.Plan, []Seen, error) {
	seen, err := l.Facts(ctx)
	if err != nil {
		return nil, nil, err
	}
	hosts := make([]facts.Host, len(seen))
	for i, s := range seen {
		hosts[i] = s.Facts
	}
	p, problems := lint.Plan(l.Job, hosts)
	if len(problems) > 0 {
		return nil, nil, refused(problems)
	}
	return p, seen, nil
}

// nvmlPlugin is muster's program that asks NVIDIA's library.
const nvmlPlugin = "muster-plugin-nvml"

// nvidiaSigns are files of which a host with NVIDIA's driver has one: the plugin is as large
// as the agent, and hosts without GPUs are not sent it.
var nvidiaSigns = []string{
	"/proc/driver/nvidia", "/dev/nvidiactl", "/sys/module/nvidia", "/dev/dxg", "/usr/bin/nvidia-smi",
}

// probeDevices has a program that is started on a host look at the devices there; job is nil
// where nothing is going to run.
func probeDevices(launch *remote.Launch, job *config.Job, h config.Host, claims bool) {
	if job != nil {
		for _, name := range job.HostEnvNames() {
			launch.Args = append(launch.Args, "-name", name)
		}
	}
	switch {
	case job != nil && h.Devices.Kind == config.DevicesNone:
		launch.Args = append(launch.Args, "-no-devices")
		return
	case job != nil && job.Plugin != nil:
		p := job.Plugin
		plugin := message.Plugin{Name: p.Name, Path: p.Path, Args: p.Args, SHA256: p.SHA256}
		launch.Args = append(launch.Args, "-plugin", string(message.Encode(plugin)))
	default:
		launch.Optional = append(launch.Optional, remote.Optional{Program: nvmlPlugin, Where: nvidiaSigns})
		launch.Args = append(launch.Args, "-nvml", "{"+nvmlPlugin+"}")
	}
	// A list is what the user wants whoever else is there; else the look decides, and two
	// launches must not see the same devices idle.
	if claims && !h.Devices.Named() && !job.WithOthers() {
		launch.Args = append(launch.Args, "-choose")
	}
}

// MPS returns what there is of CUDA's MPS on hosts, in their order. With stop it ends what
// earlier runs of the user have left, and touches nothing else.
func MPS(ctx context.Context, hosts []config.Host, connect fleet.Connector, stop bool) ([]facts.MPSThere, error) {
	args := []string{"mps"}
	if stop {
		args = append(args, "-stop")
	}
	found, errs := make([]facts.MPSThere, len(hosts)), make([]error, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, fleet.AskWait)
			defer cancel()
			errs[i] = askOnce(ctx, connect, targetOf(h), args, func(line []byte) error {
				return json.Unmarshal(line, &found[i])
			})
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, report.Errorf(report.ExitUnreachable, "%s: %v", hosts[i].Name, err)
		}
	}
	return found, nil
}

// askOnce asks a host over a connection of its own.
func askOnce(
	ctx context.Context, connect fleet.Connector, target remote.Target, args []string, take func([]byte) error,
) error {
	host, err := connect(ctx, target)
	if err != nil {
		return err
	}
	defer host.Close()
	return fleet.Ask(ctx, host, args, take)
}
