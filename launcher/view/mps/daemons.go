package mps

import (
	"fmt"
	"io"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/facts"
)

// Host is what there is of MPS on a host.
type Host struct {
	Name string
	facts.MPSThere
}

// Daemons writes what there is of MPS on hosts as a table.
func Daemons(w io.Writer, hosts []Host) error {
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "HOST\tPID\tWHAT\tUSER\tRUN\tDEVICES\tCLIENTS\tSTATE\tFOLDER")
	for _, h := range hosts {
		for _, p := range h.Processes {
			what := "daemon"
			if p.Server {
				what = "server"
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Name, p.PID, what, p.User, terminal.OrDash(p.Run), terminal.OrDash(p.Device), pidList(p.Clients), p.State, terminal.OrDash(p.Pipe))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, h := range hosts {
		for _, left := range h.Left {
			fmt.Fprintf(w, "%s: %s\n", h.Name, left)
		}
	}
	return nil
}

type mpsThereJSON struct {
	Version int           `json:"version"`
	Hosts   []mpsHostJSON `json:"hosts"`
}

type mpsHostJSON struct {
	Name      string             `json:"name"`
	Processes []facts.MPSProcess `json:"processes"`
	Left      []string           `json:"left"`
}

// DaemonsJSON writes the same as one JSON object (version 1).
func DaemonsJSON(w io.Writer, hosts []Host) error {
	out := mpsThereJSON{Version: 1, Hosts: []mpsHostJSON{}}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, mpsHostJSON{h.Name, append([]facts.MPSProcess{}, h.Processes...),
			append([]string{}, h.Left...)})
	}
	return terminal.WriteJSON(w, out)
}
