package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/planfile"
	"github.com/muster-dev/muster/launcher/view/runs"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a job and stay with it until it ends",
		ArgsUsage: "JOB.hcl [-- WORDS FOR THE COMMAND]  |  --plan FILE",
		Description: `Connects to the job's hosts, starts its ranks and shows their output, each line with
the host and rank that it came from. When a rank fails the others are stopped, and the
rank that failed first is named with its last lines.

   muster run examples/local.hcl
   muster run train.hcl -var config=configs/7b.yaml
   muster run train.hcl --ranks 0,3-5      show the output of these ranks only
   muster run train.hcl -- --lr 3e-4       words appended to the job's command
   muster run --plan plan.json             what muster plan --save wrote, if the hosts are still so

Ctrl-C stops the run in good order; a second one kills it; a third leaves at once.
d leaves the run and lets it go on (so do a closed terminal and a lost connection);
muster attach comes back to it. SIGQUIT (Ctrl-\) shows where it stands; SIGUSR1 and
SIGUSR2 are passed on to every rank.`,
		Flags: []cli.Flag{
			varFlag(),
			&cli.StringFlag{Name: "plan", Usage: "run the plan in this file, which muster plan --save wrote; refused if the hosts have changed"},
			&cli.BoolFlag{Name: "no-check", Usage: "start whatever checks of the hosts would find"},
			&cli.BoolFlag{Name: "detach", Usage: "leave once the workers run"},
			&cli.StringFlag{Name: "ranks", Aliases: []string{"rank"}, Usage: "show the output of these ranks only: all, none, or a list such as 0,3-5", DefaultText: "logs.show of the job file"},
		},
		Action: runJob,
	}
}

func runJob(c *cli.Context) error {
	screen := openScreen()
	source, job, saved, err := jobToRun(c, screen)
	if err != nil {
		return err
	}
	show := job.Logs.Show
	if c.IsSet("ranks") {
		if show, err = config.ParseRankSet(c.String("ranks")); err != nil {
			return usage("--%v", err)
		}
	}
	v, connect, err := reach(screen, job.HostsKind)
	if err != nil {
		return err
	}
	sayUnsent(job, v.Say)
	store, err := history.Open()
	if err != nil {
		return err
	}
	requests, end := listenForRequests(true)
	defer end()
	spec := launcher.Spec{
		Source: source, Job: job, Saved: saved, Show: show, Detach: c.Bool("detach"),
		Connect: connect, History: store, Requests: requests,
	}
	if c.Bool("no-check") {
		spec.Check = submission.CheckNone
	}
	out, err := launcher.Launch(context.Background(), spec, v)
	return ended(v, out, err)
}

// ended shows the end of a run, and makes its exit status the command's.
func ended(v *runs.Run, out launcher.Outcome, err error) error {
	if out.Report != nil {
		v.Report(out.Report)
	}
	v.Phase("")
	return statusError(out.Exit, err)
}

// jobToRun is the job of a job file, or of a saved plan.
func jobToRun(c *cli.Context, screen *terminal.Screen) (config.Source, *config.Job, *planfile.Saved, error) {
	if c.IsSet("plan") {
		return readPlan(c, screen)
	}
	source, job, err := readJob(c, screen)
	return source, job, nil, err
}

// statusError makes a run's exit status the command's.
func statusError(status int, err error) error {
	if err == nil && status != 0 {
		return exitError(status)
	}
	return err
}
