package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/view/runs"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

// varFlag is a flag of its own for each command: urfave/cli keeps values in it.
func varFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "var", Usage: "set a variable of the job file; may be given several times", DefaultText: "NAME=VALUE"}
}

// readJob reads and evaluates the job file of a command's arguments. Diagnostics are
// printed here, all of them, and nothing was contacted yet.
func readJob(c *cli.Context, screen *terminal.Screen) (config.Source, *config.Job, error) {
	own, after := split(c.Args().Slice())
	if len(own) != 1 {
		return config.Source{}, nil, usage("muster %s takes one job file, not %d: muster %s JOB.hcl [-- WORDS FOR THE COMMAND]", c.Command.Name, len(own), c.Command.Name)
	}
	vars := map[string]string{}
	for _, assignment := range c.StringSlice("var") {
		name, value, ok := strings.Cut(assignment, "=")
		if !ok || name == "" {
			return config.Source{}, nil, usage("-var %q is not of the form NAME=VALUE", assignment)
		}
		vars[name] = value
	}
	source, diags := config.Read(own[0], vars, after)
	source = source.WithEnviron(os.Environ()).WithTasks()
	job, err := evaluate(source, diags, screen)
	return source, job, err
}

// opened is a job whose hosts can be reached.
type opened struct {
	source  config.Source
	job     *config.Job
	screen  *terminal.Screen
	view    *runs.Run
	connect fleet.Connector
}

// openJob reads the job file of a command's arguments and makes ready to reach its hosts.
func openJob(c *cli.Context) (o opened, err error) {
	o.screen = openScreen()
	if o.source, o.job, err = readJob(c, o.screen); err != nil {
		return o, err
	}
	if o.view, o.connect, err = reach(o.screen, o.job.HostsKind); err != nil {
		return o, err
	}
	sayUnsent(o.job, o.view.Say)
	return o, nil
}

// evaluate makes the job of a source that was read with these diagnostics, and prints all.
func evaluate(source config.Source, diags config.Diagnostics, screen *terminal.Screen) (*config.Job, error) {
	var job *config.Job
	if !diags.HasErrors() {
		more, evaluated := source.Evaluate()
		job, diags = more, append(diags, evaluated...)
	}
	if len(diags) > 0 {
		if err := config.WriteDiagnostics(os.Stderr, source, diags, screen.Width(), screen.Colour()); err != nil {
			return nil, fmt.Errorf("print diagnostics: %w", err)
		}
	}
	if diags.HasErrors() {
		return nil, exitError(report.ExitJobFile)
	}
	return job, nil
}

// reach makes ready to reach hosts of a kind, and to show on the screen how that goes.
func reach(screen *terminal.Screen, kind string) (*runs.Run, fleet.Connector, error) {
	v := runs.NewRun(screen)
	connect, err := connector(kind, v)
	return v, connect, err
}

// connector reaches hosts of a kind, and lets v show how that goes.
func connector(kind string, v *runs.Run) (fleet.Connector, error) {
	programs, err := carriedPrograms()
	if err != nil {
		return nil, err
	}
	if kind == config.HostsLocal {
		return func(_ context.Context, target remote.Target) (remote.Host, error) {
			return remote.NewLocal(target.Name, nil, programs)
		}, nil
	}
	dialer := &remote.Dialer{Prompter: openPrompter(), Programs: programs, Progress: v, Notice: v.Say}
	return dialer.Connect, nil
}
