package main

import (
	"context"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/view/findings"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "make a job's hosts ready, check them, and start nothing",
		ArgsUsage: "JOB.hcl [-- WORDS FOR THE COMMAND]",
		Description: `Does all that muster run does before the start: connects, looks at GPUs, plans, runs setup,
finds the command, tries how hosts reach each other; then says what is in the way or
might be. muster run does the same and starts unless something fails (--no-check).

   muster check train.hcl
   muster check train.hcl --json | jq '.findings[] | select(.severity == "fail")'
   muster check train.hcl --collective      ranks measure how they compute and work together

With --collective ranks multiply matrices and do all-reduces with the job's own torch, all
of them and then pairs of hosts, for a minute at most where nothing hangs: who is slow,
wrong or hangs is named.

A job file says what counts: check { ignore = ["` + codes.All[0].Name + `"] severity = { disk_full = "fail" } }.
Exit status: 0 the job could start; 75 it could not; 69 a host was not reached.
What is looked for: ` + wrapped(codes.Names()) + `.`,
		Flags: []cli.Flag{
			varFlag(),
			&cli.BoolFlag{Name: "collective", Usage: "have the ranks measure matrix products and all-reduces, of pairs of hosts too"},
			jsonFlag(),
		},
		Action: checkJob,
	}
}

// wrapped are words in lines for a terminal.
func wrapped(words []string) string {
	const width = 90
	var b strings.Builder
	column := len("What is looked for: ")
	for i, word := range words {
		if i > 0 {
			b.WriteString(", ")
			column += 2
		}
		if column+len(word) > width {
			b.WriteByte('\n')
			column = 0
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func checkJob(c *cli.Context) error {
	o, err := openJob(c)
	if err != nil {
		return err
	}
	requests, end := listenForRequests(true)
	defer end()
	spec := launcher.Spec{Source: o.source, Job: o.job, Connect: o.connect, Requests: requests}
	check, kinds := launcher.Check, []codes.When{codes.Before}
	if c.Bool("collective") {
		check, kinds = launcher.CheckCollective, append(kinds, codes.Asked)
	}
	out, err := check(context.Background(), spec, o.view)
	o.screen.Status("")
	if err != nil {
		return err
	}
	checked := findings.Checked{
		Job: o.job.Name, Plan: out.Plan, Checks: len(codes.Names(kinds...)), Findings: out.Findings,
	}
	if c.Bool("json") {
		if err := findings.CheckJSON(os.Stdout, checked); err != nil {
			return err
		}
	} else {
		findings.Check(o.screen, checked)
	}
	return statusError(out.Exit, nil)
}
