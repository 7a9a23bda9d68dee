package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
)

// Saved is a plan in a file: the job's source, from which it can be made again, and what
// it came to, so that a change of the hosts is seen.
type Saved struct {
	Version int           `json:"version"`
	Source  config.Source `json:"source"`
	Ranks   []SavedRank   `json:"ranks"`
}

// SavedVersion is the version of the files that this program writes and reads.
const SavedVersion = 1

// SavedRank is where a rank was to run, in values that mean the same after a reboot.
type SavedRank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	Local  int    `json:"local_rank"`
	Device string `json:"device,omitempty"` // UUID, or the PCI address of one without
	Index  int    `json:"index"`            // of its GPU in nvidia-smi; -1: none
	PCI    string `json:"pci,omitempty"`
	CPUs   string `json:"cpus,omitempty"` // "0-7,16-23"; empty: not bound
	NIC    string `json:"nic,omitempty"`
	Sees   string `json:"sees,omitempty"` // "host" or "rank"
	Names  string `json:"names,omitempty"`
	// Beside are the devices of no rank that it sees too, where it is to spread over several.
	Beside  string `json:"beside,omitempty"`
	Threads int    `json:"threads"`
}

// Save returns the plan as it is kept in a file; source is what it was made from.
func (p *Plan) Save(source config.Source) Saved {
	s := Saved{Version: SavedVersion, Source: source}
	for _, r := range p.Ranks {
		s.Ranks = append(s.Ranks, p.savedRank(r))
	}
	return s
}

func (p *Plan) savedRank(r Rank) SavedRank {
	h := p.Hosts[r.Host]
	s := SavedRank{Rank: r.Rank, Host: h.Name, Local: r.Local, Index: -1, CPUs: text.Ranges(r.CPUs), NIC: r.NIC, Sees: h.Visibility, Names: h.Names, Threads: p.Threads(r.Rank)}
	if d := r.Device; d != nil {
		s.Device, s.Index, s.PCI = d.UUID, d.Index, d.PCI
		if s.Device == "" {
			s.Device = d.PCI
		}
		s.Beside = h.beside()
	}
	return s
}

// beside are the host's devices that are no rank's own.
func (h Host) beside() string {
	var names []string
	for _, d := range h.Devices[min(h.Ranks, len(h.Devices)):] {
		names = append(names, cmp.Or(d.UUID, d.PCI, d.String()))
	}
	return strings.Join(names, ",")
}

// mostDifferences is how many are told one by one.
const mostDifferences = 20

// Differences says in words where this plan differs from a saved one; none: it is the same.
func (p *Plan) Differences(saved Saved) []string {
	var found []string
	if n := len(saved.Ranks); n != p.WorldSize {
		found = append(found, fmt.Sprintf("there are %s now, %d in the saved plan", plural.Of(p.WorldSize, "rank"), n))
	}
	for i := range min(len(saved.Ranks), p.WorldSize) {
		if words := saved.Ranks[i].changes(p.savedRank(p.Ranks[i])); words != "" {
			found = append(found, fmt.Sprintf("rank %d (%s): %s", i, saved.Ranks[i].Host, words))
		}
	}
	if n := len(found); n > mostDifferences {
		found = append(found[:mostDifferences], fmt.Sprintf("and %d more", n-mostDifferences))
	}
	return found
}

// changes says what is not as it was.
func (s SavedRank) changes(now SavedRank) string {
	var words []string
	for _, c := range []struct{ what, was, is string }{
		{"host", s.Host, now.Host},
		{"local rank", fmt.Sprint(s.Local), fmt.Sprint(now.Local)},
		{"device", s.Device, now.Device},
		{"number in nvidia-smi", fmt.Sprint(s.Index), fmt.Sprint(now.Index)},
		{"PCI address", s.PCI, now.PCI},
		{"CPUs", s.CPUs, now.CPUs},
		{"NIC", s.NIC, now.NIC},
		{"devices beside", s.Beside, now.Beside},
		{"visibility", s.Sees, now.Sees},
		{"device names", s.Names, now.Names},
		{"threads", fmt.Sprint(s.Threads), fmt.Sprint(now.Threads)},
	} {
		if c.was != c.is {
			words = append(words, fmt.Sprintf("%s %s, was %s", c.what, orNone(c.is), orNone(c.was)))
		}
	}
	return strings.Join(words, "; ")
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
