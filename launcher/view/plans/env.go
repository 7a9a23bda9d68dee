package plans

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/plan"
)

// RankEnv is the environment of one rank.
type RankEnv struct {
	Plan *plan.Plan
	Rank int
	Vars []plan.Var
}

// atStart stands for a value that is known at the start only.
const atStart = "(known at the start)"

// PlanEnv shows the environment of a rank, each value with where it comes from.
func PlanEnv(s *terminal.Screen, e RankEnv) {
	r := e.Plan.Ranks[e.Rank]
	host := e.Plan.Hosts[r.Host].Name
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %s, on %s", r.Rank, e.Plan.Job, host)
	if r.Device != nil {
		fmt.Fprintf(&b, ", %s (%s), as cuda:%d", r.Device, r.Device.PCI, e.Plan.Seen(r.Rank))
	}
	b.WriteString("\n\n")
	hosts := map[bool][]plan.Var{}
	for _, v := range e.Vars {
		hosts[v.OfHost] = append(hosts[v.OfHost], v)
	}
	for _, v := range hosts[false] {
		fmt.Fprintf(&b, "%s  %s\n", assignment(v), s.Out.Paint("2", "# "+v.Source))
	}
	if of := hosts[true]; len(of) > 0 {
		fmt.Fprintf(&b, "\n%s\n", s.Out.Paint("2", "# "+of[0].Source))
		for _, v := range of {
			fmt.Fprintln(&b, assignment(v))
		}
	}
	if e.Plan.Config.Hosts[r.Host].Setup != "" {
		fmt.Fprintf(&b, "\nsetup has not been run: what it exports comes on top of the environment of %s\n", host)
	}
	s.Write(&s.Out, []byte(b.String()))
}

func assignment(v plan.Var) string {
	switch {
	case isKnownAtStart(v):
		return v.Name + "=" + atStart
	case v.Sensitive:
		return v.Name + "=" + v.Shown()
	case v.Value == "" || strings.ContainsFunc(v.Value, unicode.IsControl) || strings.ContainsAny(v.Value, " \t\n\"'\\$`*?;&|<>(){}[]#!~") || !utf8.ValidString(v.Value):
		return v.Name + "=" + fmt.Sprintf("%q", v.Value)
	}
	return v.Name + "=" + v.Value
}

type rankEnvJSON struct {
	Version int                `json:"version"`
	Job     string             `json:"job"`
	Rank    int                `json:"rank"`
	Host    string             `json:"host"`
	Setup   bool               `json:"setup_not_run"` // there is one, and it may change the host's values
	Env     map[string]varJSON `json:"env"`
}

// PlanEnvJSON writes the environment of a rank as one JSON object (version 1). What is
// only known at the start is left out.
func PlanEnvJSON(w io.Writer, e RankEnv) error {
	r := e.Plan.Ranks[e.Rank]
	out := rankEnvJSON{Version: 1, Job: e.Plan.Job, Rank: r.Rank, Host: e.Plan.Hosts[r.Host].Name, Setup: e.Plan.Config.Hosts[r.Host].Setup != "", Env: map[string]varJSON{}}
	for _, v := range e.Vars {
		if !isKnownAtStart(v) {
			out.Env[v.Name] = varJSON{v.Shown(), v.Source}
		}
	}
	return terminal.WriteJSON(w, out)
}
