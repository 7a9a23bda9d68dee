package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/view/mps"
)

func mpsCommand() *cli.Command {
	return &cli.Command{
		Name:      "mps",
		Usage:     "show the MPS daemons of machines, and end what earlier runs have left",
		ArgsUsage: "ps|stop",
		Description: `A run's MPS daemons end with it, and what outlives a whole run is swept at the next
start on that host. ps shows what is there, whoever has started it; stop ends what
your own runs have left, and touches nothing else.

   muster mps ps
   muster mps stop -H 'gpu[01-04]'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "hosts", Aliases: []string{"H"}, Usage: "of these hosts, as muster probe takes them; none: of this machine"},
			jsonFlag(),
		},
		Action: mpsAction,
	}
}

func mpsAction(c *cli.Context) error {
	word := c.Args().First()
	if c.NArg() != 1 || word != "ps" && word != "stop" {
		return usage("muster mps takes one word, ps or stop; muster mps --help tells of them")
	}
	screen := openScreen()
	kind, hosts, err := namedHosts(c)
	if err != nil {
		return err
	}
	_, connect, err := reach(screen, kind)
	if err != nil {
		return err
	}
	ctx, end := untilSignal()
	defer end()
	found, err := launcher.MPS(ctx, hosts, connect, word == "stop")
	screen.Status("")
	if err != nil {
		return err
	}
	shown, left := make([]mps.Host, len(hosts)), false
	for i, h := range hosts {
		shown[i] = mps.Host{Name: h.Name, MPSThere: found[i]}
		left = left || len(found[i].Left) > 0
	}
	show := mps.Daemons
	if c.Bool("json") {
		show = mps.DaemonsJSON
	}
	if err := show(os.Stdout, shown); err != nil {
		return err
	}
	if left {
		return exitError(report.ExitUnreachable)
	}
	return nil
}
