package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/muster-dev/muster/launcher/plan"
)

// Plan writes a plan as a table of ranks.
func Plan(w io.Writer, p *plan.Plan) error {
	fmt.Fprintf(w, "%s: %s on %s\ncommand: %s\n\n", p.Job, count(p.WorldSize, "rank"), count(len(p.Hosts), "host"), commandLine(p.Command))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RANK\tHOST\tLOCAL RANK\tTHREADS")
	for _, r := range p.Ranks {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\n", r.Rank, p.Hosts[r.Host].Name, r.Local, p.Hosts[r.Host].Threads)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for i, m := range p.Masters {
		switch {
		case m.Passed != "":
			fmt.Fprintf(w, "not at %s: %s\n", m.Addr, m.Passed)
		case i == 0:
			fmt.Fprintf(w, "ranks meet at %s (%s of %s), once every host is seen to reach it\n", m.Addr, m.NIC, p.Hosts[0].Name)
		default:
			fmt.Fprintf(w, "  otherwise at %s (%s)\n", m.Addr, m.NIC)
		}
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning.Message)
	}
	return nil
}

// commandLine shows argv so that its words can be told apart.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\$`*?;&|<>(){}[]#!~") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	return strings.Join(words, " ")
}

type planJSON struct {
	Version   int            `json:"version"`
	Job       string         `json:"job"`
	WorldSize int            `json:"world_size"`
	Hosts     []planHostJSON `json:"hosts"`
	Ranks     []planRankJSON `json:"ranks"`
	Warnings  []warningJSON  `json:"warnings"`
}

type warningJSON struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Host    string `json:"host,omitempty"`
	Rank    *int   `json:"rank,omitempty"`
}

type planHostJSON struct {
	Name      string `json:"name"`
	HostID    string `json:"host_id"`
	FirstRank int    `json:"first_rank"`
	Ranks     int    `json:"ranks"`
}

type planRankJSON struct {
	Rank      int                `json:"rank"`
	LocalRank int                `json:"local_rank"`
	Host      string             `json:"host"`
	Env       map[string]varJSON `json:"env"`
}

type varJSON struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// PlanJSON writes a plan as one JSON object (version 1). What is only known at the
// start (MASTER_ADDR, MASTER_PORT, the run's id) is left out of the environments.
func PlanJSON(w io.Writer, p *plan.Plan) error {
	out := planJSON{Version: 1, Job: p.Job, WorldSize: p.WorldSize, Warnings: []warningJSON{}}
	for _, w := range p.Warnings {
		out.Warnings = append(out.Warnings, warningJSON{Code: w.Code, Message: w.Message, Host: w.Host})
	}
	for _, h := range p.Hosts {
		out.Hosts = append(out.Hosts, planHostJSON{Name: h.Name, HostID: h.ID, FirstRank: h.FirstRank, Ranks: h.Ranks})
	}
	for _, r := range p.Ranks {
		vars, err := p.Env(r.Rank, plan.Meeting{})
		if err != nil {
			return err
		}
		env := map[string]varJSON{}
		for _, v := range vars {
			if !knownAtStart[v.Name] {
				env[v.Name] = varJSON{v.Value, v.Source}
			}
		}
		out.Ranks = append(out.Ranks, planRankJSON{Rank: r.Rank, LocalRank: r.Local, Host: p.Hosts[r.Host].Name, Env: env})
	}
	return writeJSON(w, out)
}

var knownAtStart = map[string]bool{"MASTER_ADDR": true, "MASTER_PORT": true, "MUSTER_RUN": true, "TORCHELASTIC_RUN_ID": true}
