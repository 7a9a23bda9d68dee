package main

import (
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	checks "github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/view/hosts"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

func probeCommand() *cli.Command {
	return &cli.Command{
		Name:      "probe",
		Usage:     "show what machines really are: GPUs and the ways between them, CPUs, network",
		ArgsUsage: "[JOB.hcl]",
		Description: `Without hosts and job file it looks at this machine. Nothing is started that stays, and
no CUDA context is opened.

   muster probe
   muster probe -H 'gpu[01-04]'
   muster probe train.hcl --json | jq '.hosts[].islands'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "hosts", Aliases: []string{"H"}, Usage: "look at these hosts: ssh aliases, user@host:port, ranges, separated by commas"},
			varFlag(),
			jsonFlag(),
		},
		Action: probe,
	}
}

func probe(c *cli.Context) error {
	screen := openScreen()
	kind, asked, job, err := probedHosts(c, screen)
	if err != nil {
		return err
	}
	v, connect, err := reach(screen, kind)
	if err != nil {
		return err
	}
	ctx, end := untilSignal()
	defer end()
	look := launcher.Look{Hosts: asked, Job: job, All: true, Connect: connect, Observer: v}
	found, err := look.Facts(ctx)
	screen.Status("")
	if err != nil {
		return err
	}
	probed, known := make([]hosts.Probed, len(asked)), make([]checks.Host, len(asked))
	for i, h := range asked {
		f := found[i]
		probed[i] = hosts.Probed{Name: h.Name, Address: h.Address, Facts: f.Facts,
			ClockOffset: &f.ClockOffset, ClockError: f.ClockError}
		known[i] = checks.Host{Name: h.Name, Facts: f.Facts, ClockOffset: &f.ClockOffset, ClockError: f.ClockError}
	}
	for i, findings := range checks.OfHosts(known) {
		probed[i].Findings = findings
	}
	if c.Bool("json") {
		return hosts.ProbeJSON(os.Stdout, probed)
	}
	hosts.Probe(screen, probed)
	return nil
}

// probedHosts are those of -H, of the job file, or this machine.
func probedHosts(c *cli.Context, screen *terminal.Screen) (kind string, hosts []config.Host,
	job *config.Job, err error) {
	switch {
	case c.IsSet("hosts") && c.Args().Present():
		return "", nil, nil, usage("muster probe takes hosts by -H or a job file, not both")
	case c.IsSet("hosts"):
		kind, hosts, err := namedHosts(c)
		return kind, hosts, nil, err
	case c.Args().Present():
		_, job, err := readJob(c, screen)
		if err != nil {
			return "", nil, nil, err
		}
		return job.HostsKind, job.Hosts, job, nil
	}
	kind, hosts, err = namedHosts(c)
	return kind, hosts, nil, err
}

// namedHosts are those of -H, or this machine.
func namedHosts(c *cli.Context) (kind string, hosts []config.Host, err error) {
	if !c.IsSet("hosts") {
		return config.HostsLocal, []config.Host{{Name: config.LocalName, Address: config.LocalName}}, nil
	}
	hosts, err = config.ParseHosts(strings.TrimSpace(c.String("hosts")))
	if err != nil {
		return "", nil, usage("-H: %v", err)
	}
	return config.HostsSSH, hosts, nil
}
