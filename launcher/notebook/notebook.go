// Package notebook is where a launcher remembers its runs: which hosts they are on and
// which of them is the head host, so that a run can be found again. The runs themselves
// live on the hosts. One file a run, written whole; it knows nothing of how hosts are
// reached.
package notebook

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

// Page is what is remembered of a run.
type Page struct {
	Run     string    `json:"run"`
	Job     string    `json:"job"`
	Kind    string    `json:"kind"` // of hosts: config.HostsLocal or config.HostsSSH
	Started time.Time `json:"started"`
	Hosts   []Host    `json:"hosts"` // the first is the head host
	// Tasks is how many there are; 0: each rank is one. Which host does which the run tells.
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

// Named returns the host of that name.
func (p Page) Named(name string) (Host, bool) {
	for _, h := range p.Hosts {
		if h.Name == name {
			return h, true
		}
	}
	return Host{}, false
}

// HostOf returns which host has a rank, false if none has, or if that is not settled before
// it is started.
func (p Page) HostOf(rank int) (Host, bool) {
	for _, h := range p.Hosts {
		if p.Tasks > 0 {
			break
		}
		if h.FirstRank <= rank && rank < h.FirstRank+h.Ranks {
			return h, true
		}
	}
	return Host{}, false
}

// WorldSize is the number of ranks, or of tasks where there are some.
func (p Page) WorldSize() int {
	if p.Tasks > 0 {
		return p.Tasks
	}
	n := 0
	for _, h := range p.Hosts {
		n += h.Ranks
	}
	return n
}

// Notebook is a folder of pages.
type Notebook struct{ dir string }

// Open returns the user's notebook.
func Open() (Notebook, error) {
	home, err := rundir.Home()
	if err != nil {
		return Notebook{}, err
	}
	return Notebook{filepath.Join(home, "notebook")}, nil
}

// Write writes a page, in place of an older one of the same run. A notebook that was not
// opened keeps nothing.
func (n Notebook) Write(p Page) error {
	if n.dir == "" {
		return nil
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("note run %s: %w", p.Run, err)
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return fmt.Errorf("note run %s: %w", p.Run, err)
	}
	f, err := os.CreateTemp(n.dir, ".page-")
	if err != nil {
		return fmt.Errorf("note run %s: %w", p.Run, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(n.dir, p.Run+".json"))
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("note run %s: %w", p.Run, err)
	}
	return nil
}

// All returns every page, oldest first. Files that are no pages are left out.
func (n Notebook) All() ([]Page, error) {
	entries, err := os.ReadDir(n.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the notebook of runs: %w", err)
	}
	var pages []Page
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(n.dir, e.Name()))
		var p Page
		if err == nil && json.Unmarshal(text, &p) == nil && p.Run != "" && len(p.Hosts) > 0 {
			pages = append(pages, p)
		}
	}
	slices.SortStableFunc(pages, func(a, b Page) int { return a.Started.Compare(b.Started) })
	return pages, nil
}

// Find returns the run with this id, or the only one whose id begins so; "-" is the
// latest.
func (n Notebook) Find(name string) (Page, error) {
	pages, err := n.All()
	if err != nil {
		return Page{}, err
	}
	if name == "-" {
		if len(pages) == 0 {
			return Page{}, errors.New("no run has been started from here yet")
		}
		return pages[len(pages)-1], nil
	}
	var found []Page
	for _, p := range pages {
		if p.Run == name {
			return p, nil
		}
		if strings.HasPrefix(p.Run, name) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return Page{}, fmt.Errorf("no run %q was started from here; muster ps lists those that were", name)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, p := range found {
		ids = append(ids, p.Run)
	}
	return Page{}, fmt.Errorf("%q could be any of %s", name, strings.Join(ids, ", "))
}
