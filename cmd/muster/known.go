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
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/view"
)

const runArgument = "RUN"

const runHelp = `RUN is a run's id, the beginning of one, or - for the latest run.`

// known finds the run that a command's one argument names.
func known(c *cli.Context, screen *view.Screen) (*launcher.Known, error) {
	own, after := split(c.Args().Slice())
	if len(own) != 1 || len(after) > 0 {
		return nil, usage("muster %s takes one run: its id, the beginning of one, or - for the latest; muster ps lists them", c.Command.Name)
	}
	book, err := history.Open()
	if err != nil {
		return nil, err
	}
	page, err := book.Find(own[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	v, connect, err := reach(screen, page.Kind)
	if err != nil {
		return nil, err
	}
	return &launcher.Known{Page: page, Connect: connect, View: v, Notebook: book}, nil
}

func psCommand() *cli.Command {
	return &cli.Command{
		Name:  "ps",
		Usage: "list the runs that were started from here",
		Description: `Runs whose end is not known here yet are asked for on their head host.

   muster ps
   muster ps --json | jq -r '.runs[] | select(.state == "running") | .run'`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "one JSON object"},
			&cli.IntFlag{Name: "last", Value: 20, Usage: "show this many of the latest runs; 0: all"},
		},
		Action:       ps,
		OnUsageError: onUsageError,
	}
}

func ps(c *cli.Context) error {
	if c.Args().Present() {
		return usage("muster ps takes no arguments; muster status RUN shows one run")
	}
	screen := openScreen()
	book, err := history.Open()
	if err != nil {
		return err
	}
	pages, err := book.All()
	if err != nil {
		return err
	}
	if last := c.Int("last"); last > 0 && len(pages) > last {
		pages = pages[len(pages)-last:]
	}
	ctx, end := untilSignal()
	defer end()
	runs, err := askAll(ctx, screen, book, pages)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return view.RunsJSON(os.Stdout, runs)
	}
	return view.Runs(os.Stdout, runs, time.Now())
}

// askAll asks the head hosts of runs whose end is not known, all at once.
func askAll(ctx context.Context, screen *view.Screen, book history.Store, pages []history.Run) ([]view.Listed, error) {
	v := view.NewRun(screen)
	connectors := map[string]launcher.Connector{}
	runs := make([]view.Listed, len(pages))
	var all sync.WaitGroup
	for i, page := range pages {
		runs[i].Run = page
		if page.Outcome != "" {
			continue
		}
		if connectors[page.Kind] == nil {
			connect, err := connector(page.Kind, v)
			if err != nil {
				return nil, err
			}
			connectors[page.Kind] = connect
		}
		known := launcher.Known{Page: page, Connect: connectors[page.Kind], View: v, Notebook: book}
		all.Go(func() { runs[i].State, _ = known.State(ctx) }) // the state says why it is unknown
	}
	all.Wait()
	screen.Status("")
	return runs, nil
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:         "status",
		Usage:        "show where a run stands, rank by rank",
		ArgsUsage:    runArgument,
		Description:  runHelp + "\n\n   muster status -\n   muster status llama-7f3a12 --json",
		Flags:        []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "one JSON object"}},
		Action:       status,
		OnUsageError: onUsageError,
	}
}

func status(c *cli.Context) error {
	screen := openScreen()
	k, err := known(c, screen)
	if err != nil {
		return err
	}
	ctx, end := untilSignal()
	defer end()
	s, err := k.State(ctx)
	screen.Status("")
	if err != nil {
		return &launcher.Failure{Exit: report.ExitUnreachable, Message: err.Error()}
	}
	if c.Bool("json") {
		return view.StatusJSON(os.Stdout, standing(screen, k, s))
	}
	return view.Status(os.Stdout, standing(screen, k, s))
}

// standing is where a run stands, for standard output.
func standing(screen *view.Screen, k *launcher.Known, s event.State) view.Standing {
	return view.Standing{Run: k.Page, State: s, Now: time.Now(), Width: screen.OutWidth()}
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
		Action:       logs,
		OnUsageError: onUsageError,
	}
}

func logs(c *cli.Context) error {
	screen := openScreen()
	k, err := known(c, screen)
	if err != nil {
		return err
	}
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
	screen.WhenLeft(enough)
	err = k.Logs(ctx, launcher.Written{Ranks: ranks, Attempt: c.Int("attempt"), Follow: c.Bool("follow")})
	return cmp.Or(screen.Left(), screen.Missing(), err)
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
		Action:       attach,
		OnUsageError: onUsageError,
	}
}

func attach(c *cli.Context) error {
	screen := openScreen()
	k, err := known(c, screen)
	if err != nil {
		return err
	}
	ranks, err := config.ParseRankSet(c.String("ranks"))
	if err != nil {
		return usage("--%v", err)
	}
	wishes, end := listenForWishes(true)
	defer end()
	exit, err := k.Attach(context.Background(), ranks, wishes)
	screen.Status("")
	return statusError(exit, err)
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
		Action:       stop,
		OnUsageError: onUsageError,
	}
}

func stop(c *cli.Context) error {
	screen := openScreen()
	k, err := known(c, screen)
	if err != nil {
		return err
	}
	wishes, end := listenForWishes(false)
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
	exit, err := k.Stop(context.Background(), how, wishes)
	screen.Status("")
	return statusError(exit, err)
}

func reportCommand() *cli.Command {
	return &cli.Command{
		Name:         "report",
		Usage:        "tell how a run ended and why",
		ArgsUsage:    runArgument,
		Description:  runHelp + "\n\n   muster report -\n   muster report llama-7f3a12 --json | jq .first_cause",
		Flags:        []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "one JSON object"}},
		Action:       showReport,
		OnUsageError: onUsageError,
	}
}

func showReport(c *cli.Context) error {
	screen := openScreen()
	k, err := known(c, screen)
	if err != nil {
		return err
	}
	ctx, end := untilSignal()
	defer end()
	s, err := k.State(ctx)
	screen.Status("")
	switch {
	case err != nil:
		return &launcher.Failure{Exit: report.ExitUnreachable, Message: err.Error()}
	case s.Report == nil && s.Name == event.IsLost:
		return &launcher.Failure{Exit: report.ExitUnreachable, Message: "run " + k.Page.ID + " is lost: " + s.Message}
	case s.Report == nil:
		return usage("run %s is not over: it is %s", k.Page.ID, s.Name)
	}
	if c.Bool("json") {
		return view.ReportJSON(os.Stdout, s.Report)
	}
	view.Report(screen, s.Report)
	return view.Peaks(os.Stdout, s.Report)
}
