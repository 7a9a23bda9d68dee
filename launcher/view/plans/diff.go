package plans

import (
	"fmt"
	"io"
	"strings"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// PlanDiff shows what differs between hosts and between ranks' environments.
func PlanDiff(s *terminal.Screen, p *plan.Plan) error {
	ranks, hosts, err := environ.Diff(p)
	if err != nil {
		return err
	}
	var b strings.Builder
	section(&b, "hosts", "all hosts are alike in what was looked at", hosts)
	section(&b, "environments", "all ranks have the same environment, less their own numbers", ranks)
	s.Write(&s.Out, terminal.CleanLines([]byte(b.String())))
	return nil
}

func section(b *strings.Builder, title, alike string, differences []environ.Difference) {
	if len(differences) == 0 {
		fmt.Fprintln(b, alike)
		return
	}
	fmt.Fprintf(b, "%s differ in:\n", title)
	for _, d := range differences {
		fmt.Fprintf(b, "  %s\n", d.What)
		for _, v := range d.Values {
			fmt.Fprintf(b, "    %s: %s\n", v.Who, v.Value)
		}
	}
}

type diffJSON struct {
	Version int                  `json:"version"`
	Job     string               `json:"job"`
	Hosts   []environ.Difference `json:"hosts"`
	Ranks   []environ.Difference `json:"ranks"`
}

// PlanDiffJSON writes the same as one JSON object (version 1).
func PlanDiffJSON(w io.Writer, p *plan.Plan) error {
	ranks, hosts, err := environ.Diff(p)
	if err != nil {
		return err
	}
	return terminal.WriteJSON(w, diffJSON{Version: 1, Job: p.Job, Hosts: orEmpty(hosts), Ranks: orEmpty(ranks)})
}

// orEmpty is a list that JSON writes as [], not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
