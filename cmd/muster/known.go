package main

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/session"
	"github.com/muster-dev/muster/launcher/view/runs"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

const runArgument = "RUN"

const runHelp = `RUN is a run's id, the beginning of one, or - for the latest run.`

// known is the run that a command's one argument names, and how it is shown.
type known struct {
	*launcher.Known
	screen *terminal.Screen
	view   *runs.Run
}

// onRun makes an action of what a command does with the run that its argument names.
func onRun(do func(c *cli.Context, k known) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		own, after := split(c.Args().Slice())
		if len(own) != 1 || len(after) > 0 {
			return usage("muster %s takes one run: its id, the beginning of one, or - for the latest; muster ps lists them", c.Command.Name)
		}
		store, err := history.Open()
		if err != nil {
			return err
		}
		run, err := store.Find(own[0])
		if err != nil {
			return usage("%v", err)
		}
		screen := openScreen()
		v, connect, err := reach(screen, run.Kind)
		if err != nil {
			return err
		}
		return do(c, known{&launcher.Known{Run: run, Connect: connect, Observer: v, History: store}, screen, v})
	}
}

// state asks where the run stands.
func (k known) state() (event.State, error) {
	ctx, end := untilSignal()
	defer end()
	s, err := k.State(ctx)
	k.screen.Status("")
	if err != nil {
		return s, report.Errorf(report.ExitUnreachable, "%v", err)
	}
	return s, nil
}

// standing is where a run stands, for standard output.
func (k known) standing(s event.State) runs.Standing {
	return runs.Standing{Run: k.Run, State: s, Now: time.Now(), Width: k.screen.OutWidth()}
}

func psCommand() *cli.Command {
	return &cli.Command{
		Name:  "ps",
		Usage: "list the runs that were started from here",
		Description: `Runs whose end is not known here yet are asked for on their head host.

   muster ps
   muster ps --json | jq -r '.runs[] | select(.state == "running") | .run'`,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.IntFlag{Name: "last", Value: 20, Usage: "show this many of the latest runs; 0: all"},
		},
		Action: ps,
	}
}

func ps(c *cli.Context) error {
	if c.Args().Present() {
		return usage("muster ps takes no arguments; muster status RUN shows one run")
	}
	screen := openScreen()
	store, err := history.Open()
	if err != nil {
		return err
	}
	kept, err := store.All()
	if err != nil {
		return err
	}
	if last := c.Int("last"); last > 0 && len(kept) > last {
		kept = kept[len(kept)-last:]
	}
	ctx, end := untilSignal()
	defer end()
	listed, err := askAll(ctx, screen, store, kept)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return runs.RunsJSON(os.Stdout, listed)
	}
	return runs.Runs(os.Stdout, listed, time.Now())
}

// askAll asks the head hosts of runs whose end is not known, all at once.
func askAll(ctx context.Context, screen *terminal.Screen, store history.Store,
	kept []history.Run) ([]runs.Listed, error) {
	v := runs.NewRun(screen)
	connectors := map[string]fleet.Connector{}
	listed := make([]runs.Listed, len(kept))
	var all sync.WaitGroup
	for i, run := range kept {
		listed[i].Run = run
		if run.Outcome != "" {
			continue
		}
		if connectors[run.Kind] == nil {
			connect, err := connector(run.Kind, v)
			if err != nil {
				return nil, err
			}
			connectors[run.Kind] = connect
		}
		k := launcher.Known{Run: run, Connect: connectors[run.Kind], Observer: v, History: store}
		all.Go(func() { listed[i].State, _ = k.State(ctx) }) // the state says why it is unknown
	}
	all.Wait()
	screen.Status("")
	return listed, nil
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show where a run stands, rank by rank",
		ArgsUsage:   runArgument,
		Description: runHelp + "\n\n   muster status -\n   muster status llama-7f3a12 --json",
		Flags:       []cli.Flag{jsonFlag()},
		Action: onRun(func(c *cli.Context, k known) error {
			s, err := k.state()
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return runs.StatusJSON(os.Stdout, k.standing(s))
			}
			return runs.Status(os.Stdout, k.standing(s))
		}),
	}
}

func reportCommand() *cli.Command {
	return &cli.Command{
		Name:        "report",
		Usage:       "tell how a run ended and why",
		ArgsUsage:   runArgument,
		Description: runHelp + "\n\n   muster report -\n   muster report llama-7f3a12 --json | jq .first_cause",
		Flags:       []cli.Flag{jsonFlag()},
		Action:      onRun(showReport),
	}
}

func showReport(c *cli.Context, k known) error {
	s, err := k.state()
	switch {
	case err != nil:
		return err
	case s.Report == nil && s.Name == event.IsLost:
		return session.LostRun(k.Run, s)
	case s.Report == nil:
		return usage("run %s is not over: it is %s", k.Run.ID, s.Name)
	case c.Bool("json"):
		return runs.ReportJSON(os.Stdout, s.Report)
	}
	runs.Report(k.screen, s.Report)
	return runs.Peaks(os.Stdout, s.Report)
}

func logsCommand() *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "show what ranks of a run have written",
		ArgsUsage: runArgument,
		Description: runHelp + `

   muster logs - --rank 3       of rank 3 in the latest run
   muster logs llama-7f3a12 -f  of all ranks, and what they still write
   muster logs - --attempt 0    before the first restart`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "rank", Aliases: []string{"ranks"}, Value: "all", Usage: "of these ranks only: a rank, or a list such as 0,3-5"},
			&cli.IntFlag{Name: "attempt", Value: -1, Usage: "of this attempt, the first is 0", DefaultText: "the newest"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with what is still written"},
		},
		Action: onRun(logs),
	}
}

func logs(c *cli.Context, k known) error {
	ranks, err := config.ParseRankSet(c.String("rank"))
	if err != nil {
		return usage("--%v", err)
	}
	if c.IsSet("attempt") && (c.Bool("follow") || c.Int("attempt") < 0) {
		return usage("--attempt is a number from 0 on, and cannot be followed: what is still written is of the newest")
	}
	ctx, end := untilSignal()
	defer end()
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	k.screen.WhenLeft(enough)
	err = k.Logs(ctx, launcher.Written{Ranks: ranks, Attempt: c.Int("attempt"), Follow: c.Bool("follow")})
	return cmp.Or(k.screen.Left(), k.screen.Missing(), err)
}

func attachCommand() *cli.Command {
	return &cli.Command{
		Name:      "attach",
		Usage:     "come back to a run and stay with it until it ends",
		ArgsUsage: runArgument,
		Description: runHelp + ` Output is shown from its last lines on. The exit
status is the run's. Ctrl-C and d do what they do in muster run.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "ranks", Aliases: []string{"rank"}, Value: "all", Usage: "show the output of these ranks only: all, none, or a list such as 0,3-5"},
		},
		Action: onRun(func(c *cli.Context, k known) error {
			ranks, err := config.ParseRankSet(c.String("ranks"))
			if err != nil {
				return usage("--%v", err)
			}
			requests, end := listenForRequests(true)
			defer end()
			out, err := k.Attach(context.Background(), ranks, requests)
			return ended(k.view, out, err)
		}),
	}
}

func stopCommand() *cli.Command {
	return &cli.Command{
		Name:      "stop",
		Usage:     "end a run and wait until it is over",
		ArgsUsage: runArgument,
		Description: runHelp + ` Workers get their grace (stop.grace of the job file) unless --now is given.

   muster stop -
   muster stop sweep-7f3a12 --drain    let the tasks that run end, and start no more`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "now", Usage: "without grace"},
			&cli.BoolFlag{Name: "drain", Usage: "start nothing more, and let what runs end by itself (mode = \"independent\")"},
		},
		Action: onRun(stop),
	}
}

func stop(c *cli.Context, k known) error {
	requests, end := listenForRequests(false)
	defer end()
	how := launcher.StopGently
	switch {
	case c.Bool("now") && c.Bool("drain"):
		return usage("--now and --drain are two ways to stop a run: give one of them")
	case c.Bool("now"):
		how = launcher.StopNow
	case c.Bool("drain"):
		how = launcher.StopDrain
	}
	out, err := k.Stop(context.Background(), how, requests)
	return ended(k.view, out, err)
}
