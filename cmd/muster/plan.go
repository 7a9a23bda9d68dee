package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/view"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "show which rank would run where, and start nothing",
		ArgsUsage: "JOB.hcl [-- WORDS FOR THE COMMAND]",
		Description: `Connects to the job's hosts and looks at them; no worker is started.

   muster plan train.hcl
   muster plan train.hcl --json | jq '.ranks[3].env.OMP_NUM_THREADS'`,
		Flags: []cli.Flag{
			varFlag(),
			&cli.BoolFlag{Name: "json", Usage: "one JSON object"},
		},
		Action:       planJob,
		OnUsageError: onUsageError,
	}
}

func planJob(c *cli.Context) error {
	screen := openScreen()
	_, job, err := readJob(c, screen)
	if err != nil {
		return err
	}
	v := view.NewRun(screen)
	connect, err := connector(job.HostsKind, v, v.Say)
	if err != nil {
		return err
	}
	ctx, end := untilSignal()
	defer end()
	look := launcher.Look{Hosts: job.Hosts, Connect: connect, View: v}
	p, err := look.Plan(ctx, job)
	screen.Status("")
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return view.PlanJSON(os.Stdout, p)
	}
	return view.Plan(os.Stdout, p)
}
