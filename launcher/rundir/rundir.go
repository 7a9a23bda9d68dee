// Package rundir knows where a run keeps things on a host: what lasts in the user's state folder, sockets in a folder
// of the host's own. It knows nothing of what is kept there.
package rundir

import (
	"fmt"
	"os"
	"path/filepath"
)

// ControlPath is the file in a run's state folder that has the path of its coordinator's control socket.
const ControlPath = "control"

// Observed is the file in a folder of sockets that has what workers have told of themselves.
const Observed = "observed.json"

// Home is muster's folder among the user's state (XDG Base Directory: XDG_STATE_HOME).
func Home() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" || !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find state folder: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "muster"), nil
}

// State is the folder of what lasts of a run on the host with this id: plan, events, logs, report. Homes may be shared
// by all hosts, so the host's id is part of the path.
func State(run, hostID string) (string, error) {
	home, err := Home()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "runs", run, hostID), nil
}

// MakeState makes the state folder, for its user's eyes only.
func MakeState(run, hostID string) (string, error) {
	dir, err := State(run, hostID)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make state folder: %w", err)
	}
	return dir, nil
}

// MPSLogs is the folder for the logs of a daemon of MPS, below a run's state folder.
func MPSLogs(state, device string) string { return filepath.Join(state, "mps", device) }

// Place is where a process of a run keeps things on a host, and how it starts itself.
type Place struct {
	Run     string   // "": none
	State   string   // folder of what lasts
	Sockets string   // folder of sockets
	Program []string // starts this program, before the subcommand
}
