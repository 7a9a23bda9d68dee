package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/view/runs"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

func topCommand() *cli.Command {
	return &cli.Command{
		Name:      "top",
		Usage:     "show how the ranks of a run use memory and devices, live",
		ArgsUsage: runArgument,
		Description: runHelp + ` The table is shown anew each second until
the run is over, or q or Ctrl-C leaves it; the run goes on. Where standard output is
no terminal it is shown once.

   muster top -
   muster top llama-7f3a12 --json   one JSON object a line and second
   muster top - --once --json       one JSON object
   muster top - --series            what the hosts have kept so far, also after the run`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "JSON objects, each as muster status --json has it, on a line"},
			&cli.BoolFlag{Name: "once", Usage: "once, not again and again"},
			&cli.BoolFlag{Name: "series", Usage: "a JSON object a line for each rank and period that was kept"},
		},
		Action: onRun(top),
	}
}

func top(c *cli.Context, k known) error {
	ctx, end := untilLeft()
	defer end()
	var err error
	switch {
	case c.Bool("series"):
		err = k.Series(ctx, func(host string, line samples.Line) error {
			return runs.SeriesLine(os.Stdout, host, line)
		})
	case c.Bool("json"):
		err = k.Top(ctx, c.Bool("once"), func(s event.State) error { return runs.StatusLine(os.Stdout, k.standing(s)) })
	case c.Bool("once") || !k.screen.IsTerminal():
		err = k.Top(ctx, true, func(s event.State) error { return runs.Status(os.Stdout, k.standing(s)) })
	default:
		table := runs.NewTop(k.screen, k.Run)
		k.screen.Status("")
		err = k.Top(ctx, false, func(s event.State) error { return table.Show(s, time.Now()) })
		table.End()
	}
	k.screen.Status("")
	if left := (*leftError)(nil); errors.As(err, &left) {
		return nil
	}
	return err
}

// leftError says that the user has had enough of what is shown.
type leftError struct{}

func (*leftError) Error() string { return "left" }

// untilLeft is a context that q and Ctrl-C end as the user's way out, and other signals as
// untilSignal has it.
func untilLeft() (context.Context, func()) {
	outer, end := untilSignal()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := context.AfterFunc(outer, func() {
		var failed *report.Error
		if errors.As(context.Cause(outer), &failed) && failed.Exit == report.ExitInterrupted {
			cancel(&leftError{})
		}
		cancel(context.Cause(outer))
	})
	closeKeys := terminal.ListenForKeys(map[byte]func(){'q': func() { cancel(&leftError{}) }})
	return ctx, func() { closeKeys(); stop(); cancel(nil); end() }
}
