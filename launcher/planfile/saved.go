package planfile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// Saved is a plan in a file: the job's source, from which it can be made again, and what it came to, so that a change
// of the hosts is seen.
type Saved struct {
	Version int           `json:"version"`
	Source  config.Source `json:"source"`
	Ranks   []Rank        `json:"ranks"`
}

// Version is that of the files that this program writes and reads.
const Version = 1

// Rank is where a rank was to run, in values that mean the same after a reboot.
type Rank struct {
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
	// Beside are the devices of no rank that it sees too, where it spreads over several.
	Beside  string `json:"beside,omitempty"`
	Threads int    `json:"threads"`
}

// Of returns a plan as it is kept in a file; source is what it was made from.
func Of(p *plan.Plan, source config.Source) Saved {
	s := Saved{Version: Version, Source: source}
	for _, r := range p.Ranks {
		s.Ranks = append(s.Ranks, rankOf(p, r))
	}
	return s
}

func rankOf(p *plan.Plan, r plan.Rank) Rank {
	h := p.Hosts[r.Host]
	s := Rank{Rank: r.Rank, Host: h.Name, Local: r.Local, Index: -1, CPUs: text.Ranges(r.CPUs), NIC: r.NIC,
		Sees: h.Visibility, Names: h.Names, Threads: p.Threads(r.Rank)}
	if d := r.Device; d != nil {
		s.Device, s.Index, s.PCI = cmp.Or(d.UUID, d.PCI), d.Index, d.PCI
		var beside []string
		for _, d := range h.Devices[min(h.Ranks, len(h.Devices)):] {
			beside = append(beside, cmp.Or(d.UUID, d.PCI, d.String()))
		}
		s.Beside = strings.Join(beside, ",")
	}
	return s
}

// maxDifferences is how many are listed one by one.
const maxDifferences = 20

// Differences says where a plan differs from the saved one; none: it is the same.
func (s Saved) Differences(p *plan.Plan) []string {
	var found []string
	if n := len(s.Ranks); n != p.WorldSize {
		found = append(found, fmt.Sprintf("there are %s now, %d in the saved plan", plural.Of(p.WorldSize, "rank"), n))
	}
	for i := range min(len(s.Ranks), p.WorldSize) {
		if changes := s.Ranks[i].changes(rankOf(p, p.Ranks[i])); changes != "" {
			found = append(found, fmt.Sprintf("rank %d (%s): %s", i, s.Ranks[i].Host, changes))
		}
	}
	if n := len(found); n > maxDifferences {
		found = append(found[:maxDifferences], fmt.Sprintf("and %d more", n-maxDifferences))
	}
	return found
}

// changes says what is not as it was.
func (s Rank) changes(now Rank) string {
	var changes []string
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
			changes = append(changes, fmt.Sprintf("%s %s, was %s", c.what, cmp.Or(c.is, "none"), cmp.Or(c.was, "none")))
		}
	}
	return strings.Join(changes, "; ")
}
