// Package history remembers the runs that were launched from here: which hosts they are on and
// which of them is the head host, so that a run can be found again. The runs themselves live on
// the hosts.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/rundir"
)

// Run is what is remembered of a run.
type Run struct {
	ID      string    `json:"run"`
	Job     string    `json:"job"`
	Kind    string    `json:"kind"` // of hosts: config.HostsLocal or config.HostsSSH
	Started time.Time `json:"started"`
	Hosts   []Host    `json:"hosts"` // the first is the head host
	// Tasks is how many there are; 0: each rank is one. The run decides which host runs which.
	Tasks int `json:"tasks,omitempty"`
	// Lease is how long a part of the run may be silent.
	Lease time.Duration `json:"lease,omitempty"`
	// Outcome and Exit are set once the end is known here.
	Outcome string `json:"outcome,omitempty"`
	Exit    int    `json:"exit"`
	Attempt int    `json:"attempt"`
}

// Host is a host of a run.
type Host struct {
	Name      string `json:"name"`
	Address   string `json:"address"`
	User      string `json:"user,omitempty"`
	Port      int    `json:"port,omitempty"`
	FirstRank int    `json:"first_rank"`
	Ranks     int    `json:"ranks"`
}

// Head is the host on which the coordinator is.
func (r Run) Head() Host { return r.Hosts[0] }

// Named returns the host of that name.
func (r Run) Named(name string) (Host, bool) {
	i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return Host{}, false
	}
	return r.Hosts[i], true
}

// HostOf returns the host of a rank; false: no host has it, or tasks are placed only when they
// start.
func (r Run) HostOf(rank int) (Host, bool) {
	i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.FirstRank <= rank && rank < h.FirstRank+h.Ranks })
	if i < 0 || r.Tasks > 0 {
		return Host{}, false
	}
	return r.Hosts[i], true
}

// WorldSize is the number of ranks, or of tasks where there are some.
func (r Run) WorldSize() int {
	if r.Tasks > 0 {
		return r.Tasks
	}
	n := 0
	for _, h := range r.Hosts {
		n += h.Ranks
	}
	return n
}

// Store is a folder with a file for each run. The zero Store keeps nothing.
type Store struct{ dir string }

// Open returns the user's store.
func Open() (Store, error) {
	home, err := rundir.Home()
	return Store{filepath.Join(home, "notebook")}, err
}

// Write keeps a run, in place of what was kept of it before.
func (s Store) Write(r Run) error {
	if s.dir == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = replace(filepath.Join(s.dir, r.ID+".json"), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note run %s: %w", r.ID, err)
	}
	return nil
}

// replace writes a file whole, or leaves it as it was.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".page-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// All returns every run, oldest first. Other files are left out.
func (s Store) All() ([]Run, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the notebook of runs: %w", err)
	}
	var runs []Run
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		var r Run
		if err == nil && json.Unmarshal(text, &r) == nil && r.ID != "" && len(r.Hosts) > 0 {
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return a.Started.Compare(b.Started) })
	return runs, nil
}

// Find returns the run with this id, or the only one whose id begins so; "-" is the latest.
func (s Store) Find(name string) (Run, error) {
	runs, err := s.All()
	switch {
	case err != nil:
		return Run{}, err
	case name == "-" && len(runs) == 0:
		return Run{}, errors.New("no run has been started from here yet")
	case name == "-":
		return runs[len(runs)-1], nil
	}
	var found []Run
	var ids []string
	for _, r := range runs {
		if r.ID == name {
			return r, nil
		}
		if strings.HasPrefix(r.ID, name) {
			found, ids = append(found, r), append(ids, r.ID)
		}
	}
	switch len(found) {
	case 0:
		return Run{}, fmt.Errorf("no run %q was started from here; muster ps lists those that were", name)
	case 1:
		return found[0], nil
	}
	return Run{}, fmt.Errorf("%q could be any of %s", name, strings.Join(ids, ", "))
}
