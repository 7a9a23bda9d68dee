// Package mps shows what there is of CUDA's MPS: daemons of hosts, and GPUs that ranks share.
package mps

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/view/plans"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/report"
)

// Table shows GPUs that ranks share by MPS: a line for each rank, with its share and what
// was last seen of it.
func Table(w io.Writer, gpus []report.MPSGPU) {
	if len(gpus) == 0 {
		return
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "MPS: HOST\tGPU\tDAEMON\tSERVER\tRANK\tCLIENT\tTHREADS\tMEMORY\tPEAK\tLIMIT")
	for _, g := range gpus {
		for _, r := range g.Ranks {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", g.Host, g.Name, pidOrDash(g.Daemon), pidList(g.Servers), r.Rank,
				clientWord(r), shareWord(r.Threads), bytesOrDash(r.Memory), bytesOrDash(r.Peak), bytesOrDash(r.Limit))
		}
		if len(g.Others) > 0 {
			fmt.Fprintf(t, "%s\t%s\t\t\tothers\t%s\t\t\t\t\n", g.Host, g.Name, pidList(g.Others))
		}
	}
	_ = t.Flush() // what w does with it shows at its end
}

// clientWord is the process by which a rank is a client; one that was not seen as such runs
// without MPS, or has not opened its GPU yet.
func clientWord(r report.MPSRank) string {
	if r.Client == 0 {
		return "not seen"
	}
	return fmt.Sprint(r.Client)
}

func pidOrDash(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}

func pidList(pids []int) string {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = fmt.Sprint(pid)
	}
	return terminal.OrDash(strings.Join(words, ","))
}

func shareWord(threads float64) string {
	if threads == 0 {
		return "all"
	}
	return fmt.Sprintf("%.4g %%", threads)
}

func bytesOrDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return plans.GibibytesText(n)
}

// Shared are the GPUs of a state, of a run that is over those of its report.
func Shared(s event.State) []report.MPSGPU {
	if s.Report != nil {
		return s.Report.MPS
	}
	var all []report.MPSGPU
	for _, host := range slices.Sorted(maps.Keys(s.MPS)) {
		all = append(all, s.MPS[host]...)
	}
	return all
}
