// Command muster launches distributed training: one job file, workers on this machine
// or on many by SSH.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/version"
)

func main() { os.Exit(run(os.Args)) }

// run is main with its exit status. What hosts start comes first: it must cost nothing.
func run(args []string) int {
	if status, ok := onHost(args[1:]); ok {
		return status
	}
	app := newApp()
	return exitStatus(app.Run(reorder(app, args)))
}

func newApp() *cli.App {
	app := &cli.App{
		Name:    "muster",
		Usage:   "launch distributed training from one job file",
		Version: version.String(),
		Description: `muster starts the ranks of a training job on this machine or on many by SSH,
shows their output, and says why when one fails. Training scripts need no change:
workers get the environment that they know from torchrun.

   muster run examples/local.hcl                  4 ranks on this machine
   muster run train.hcl -var lr=3e-4 -- --epochs 3   a variable; words for the command
   muster plan train.hcl                          which rank would run where
   muster check train.hcl                         what is in its way on the hosts
   muster ps                                      the runs that were started from here
   muster attach llama-7f3a12                     back to one of them

Exit status: 0 all ranks ended well; the first failing worker's own status, or
128+signal; 64 bad flags; 78 bad job file; 69 a host could not be reached or was
lost; 75 refused before a worker was started; 70 a fault of muster itself;
129, 130, 143 after SIGHUP, Ctrl-C, SIGTERM.`,
		Commands: []*cli.Command{
			runCommand(), planCommand(), probeCommand(), checkCommand(),
			psCommand(), statusCommand(), topCommand(), logsCommand(), attachCommand(), stopCommand(), reportCommand(),
			mpsCommand(), versionCommand(),
		},
		DisableSliceFlagSeparator: true, // a value may hold commas
		HideHelpCommand:           true,
		HideVersion:               true,
		Flags:                     []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "the same as muster version"}},
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("version"):
				return c.App.RunContext(c.Context, []string{c.App.Name, "version"})
			case c.Args().First() == "help":
				return c.App.RunContext(c.Context, append(append([]string{c.App.Name}, c.Args().Tail()...), "--help"))
			case c.Args().Present():
				return usage("muster has no command %q%s; muster --help lists them", c.Args().First(), suggestion(c.App, c.Args().First()))
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError: onUsageError,
		// Errors are printed and turned into a status in one place: exitStatus.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	for _, c := range app.Commands {
		c.OnUsageError = onUsageError
	}
	return app
}

// jsonFlag is a flag of its own for each command: urfave/cli keeps values in it.
func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "one JSON object"} }

// exitError ends the command with a status; whatever there was to say was said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

func onUsageError(c *cli.Context, err error, _ bool) error {
	return usage("%v; muster %s--help shows how", err, commandPath(c))
}

func commandPath(c *cli.Context) string {
	if c.Command == nil || c.Command.Name == "" || c.Command.Name == c.App.Name {
		return ""
	}
	return c.Command.Name + " "
}

// isEnough reports whether a command has ended because whoever reads standard output, head
// for one, wants no more of it.
func isEnough(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Path == os.Stdout.Name() && errors.Is(failed, syscall.EPIPE)
}

// exitStatus prints an error once and gives the status that follows from it.
func exitStatus(err error) int {
	if err == nil || isEnough(err) {
		return report.ExitOK
	}
	var status exitError
	if errors.As(err, &status) {
		return int(status)
	}
	fmt.Fprintln(os.Stderr, "muster:", err)
	var wrong usageError
	var failed *report.Error
	switch {
	case errors.As(err, &wrong):
		return report.ExitUsage
	case errors.As(err, &failed):
		return failed.Exit
	}
	return report.ExitInternal
}
