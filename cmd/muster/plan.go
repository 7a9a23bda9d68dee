package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/planfile"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/view/plans"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "show which rank would run on which GPU, and start nothing",
		ArgsUsage: "JOB.hcl [-- WORDS FOR THE COMMAND]",
		Description: `Connects to the job's hosts and looks at them; no worker is started, and setup is not run.

   muster plan train.hcl
   muster plan train.hcl --env 3                       the whole environment of rank 3
   muster plan train.hcl --diff                        what is not the same on all ranks and hosts
   muster plan train.hcl --json | jq '.ranks[3].gpu'
   muster plan train.hcl --save plan.json              and then, as long as the hosts are the same:
   muster run --plan plan.json`,
		Flags: []cli.Flag{
			varFlag(),
			&cli.IntFlag{Name: "env", Usage: "show the environment of this rank, each value with where it comes from", DefaultText: "none"},
			&cli.BoolFlag{Name: "diff", Usage: "show what differs between ranks and between hosts"},
			&cli.StringFlag{Name: "save", Usage: "write the plan to this file, for muster run --plan"},
			jsonFlag(),
		},
		Action: planJob,
	}
}

func planJob(c *cli.Context) error {
	o, err := openJob(c)
	if err != nil {
		return err
	}
	ctx, end := untilSignal()
	defer end()
	look := launcher.Look{
		Hosts: o.job.Hosts, Job: o.job, Environ: c.IsSet("env"), Connect: o.connect, Observer: o.view,
	}
	p, seen, err := look.Plan(ctx)
	o.screen.Status("")
	if err != nil {
		return err
	}
	if path := c.String("save"); path != "" {
		if err := planfile.Write(path, planfile.Of(p, o.source.WithoutSecrets())); err != nil {
			return report.Errorf(report.ExitRefused, "%v", err)
		}
		o.view.Say("the plan is in " + path + "; muster run --plan " + path + " runs it as long as the hosts are the same")
	}
	switch {
	case c.IsSet("env"):
		return showEnv(c, o.screen, p, seen)
	case c.Bool("diff") && c.Bool("json"):
		return plans.PlanDiffJSON(os.Stdout, p)
	case c.Bool("diff"):
		return plans.PlanDiff(o.screen, p)
	case c.Bool("json"):
		return plans.PlanJSON(os.Stdout, p)
	}
	return plans.Plan(o.screen, p)
}

func showEnv(c *cli.Context, screen *terminal.Screen, p *plan.Plan, seen []launcher.Seen) error {
	rank := c.Int("env")
	if rank < 0 || rank >= p.WorldSize {
		return usage("--env %d: the ranks of this job are 0 to %d", rank, p.WorldSize-1)
	}
	vars, err := environ.Whole(p, rank, plan.Meeting{}, seen[p.Ranks[rank].Host].Environment)
	if err != nil {
		return err
	}
	e := plans.RankEnv{Plan: p, Rank: rank, Vars: vars}
	if c.Bool("json") {
		return plans.PlanEnvJSON(os.Stdout, e)
	}
	plans.PlanEnv(screen, e)
	return nil
}

// sayUnsent says what becomes of this machine's own choice of GPUs: it is for this machine.
func sayUnsent(job *config.Job, say func(string)) {
	if value, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set && job.HostsKind != config.HostsLocal {
		say(fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s of this machine is not sent to the hosts: each goes by its own; ranks { devices = ... } chooses for all", value))
	}
}

// readPlan reads a saved plan and evaluates its job again.
func readPlan(c *cli.Context, screen *terminal.Screen) (config.Source, *config.Job, *planfile.Saved, error) {
	if c.Args().Present() || c.IsSet("var") {
		return config.Source{}, nil, nil, usage("a saved plan has its job file, variables and words in it: muster run --plan FILE takes no others")
	}
	saved, err := planfile.Read(c.String("plan"))
	if err != nil {
		return config.Source{}, nil, nil, report.Errorf(report.ExitJobFile, "%v", err)
	}
	source := saved.Source.WithEnviron(os.Environ())
	job, err := evaluate(source, nil, screen)
	return source, job, saved, err
}
