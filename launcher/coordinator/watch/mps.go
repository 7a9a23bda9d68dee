package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// MPS has the hosts run the daemons of MPS that ranks need, and watches who their clients are.
type MPS struct {
	run     *run.Run
	number  int                          // of the last Serve
	awaited map[int]int                  // its number, by host
	served  map[int]bool                 // hosts whose daemons are ready
	folders []map[string]plan.MPSFolders // of each host, by the device's UUID
	daemons map[string]int               // pids, by the device's UUID
	seen    map[int][]gpu.MPSClients     // the newest of each host
	clients map[int]client               // that each place was last seen with
	held    map[int]uint64               // device memory of each place
	peaks   map[int]uint64               // the most of it
	said    map[int]string               // of each host's clients
	lost    []Loss                       // in this attempt
}

// client is a rank as it was seen among the clients of MPS.
type client struct{ rank, pid int }

// Loss is of a daemon or a server, or of the contexts of all its clients.
type Loss struct {
	*message.MPSLost
	Host  string
	Ranks []int // that shared it
	At    link.Instant
}

// Class is the class of the failure.
func (l Loss) Class() string {
	if l.Fault {
		return class.MPSFault
	}
	return class.MPSLost
}

// NewMPS is an observer of a run without daemons.
func NewMPS(r *run.Run) *MPS {
	return &MPS{
		run: r, daemons: map[string]int{}, seen: map[int][]gpu.MPSClients{}, held: map[int]uint64{},
		peaks: map[int]uint64{}, said: map[int]string{},
	}
}

// ServeAll has the hosts run the daemons that the next attempt needs.
func (m *MPS) ServeAll() {
	m.served, m.lost, m.clients, m.awaited = map[int]bool{}, nil, map[int]client{}, map[int]int{}
	for i := range m.run.Hosts {
		m.Serve(i)
	}
}

// Serve has a host run its daemons.
func (m *MPS) Serve(host int) {
	p := m.run.Plan
	gpus := p.MPS(host)
	m.served[host] = len(gpus) == 0
	if len(gpus) == 0 {
		return
	}
	m.number++
	m.awaited[host] = m.number
	serve := &message.Serve{Number: m.number}
	if f := p.Facts[host].MPS; f != nil {
		serve.Program = f.Program
	}
	for _, g := range gpus {
		d := message.MPSDaemon{
			Device: g.Device.UUID, Name: g.Device.String(), Existing: p.ExistingPipe(host), Threads: g.Threads,
			Memory: g.Memory,
		}
		for _, place := range g.Ranks {
			d.Locals = append(d.Locals, p.Ranks[place].Local)
		}
		serve.Daemons = append(serve.Daemons, d)
	}
	m.run.Send(host, message.Command{Serve: serve})
}

// IsServed reports whether a host's daemons are ready.
func (m *MPS) IsServed(host int) bool { return m.served[host] }

// AllServed reports whether all daemons are ready.
func (m *MPS) AllServed() bool {
	for i, h := range m.run.Hosts {
		if !m.served[i] && !h.Gone {
			return false
		}
	}
	return true
}

// Served takes in the answer to a Serve; current is unset for an old one.
func (m *MPS) Served(host int, s *message.Served) (current bool) {
	if s.Number != m.awaited[host] {
		return false
	}
	m.served[host] = true
	if s.Error != "" {
		return true
	}
	if m.folders == nil {
		m.folders = make([]map[string]plan.MPSFolders, len(m.run.Hosts))
	}
	m.folders[host] = map[string]plan.MPSFolders{}
	for uuid, f := range s.Folders {
		m.folders[host][uuid] = plan.MPSFolders{Pipe: f.Pipe, Log: f.Log}
		m.daemons[uuid] = f.PID
	}
	return true
}

// Folders are where the daemons of each host are.
func (m *MPS) Folders() []map[string]plan.MPSFolders { return m.folders }

// Lost takes in that ranks have lost their daemon or server, or their contexts. The host has ended them.
func (m *MPS) Lost(host int, n *message.MPSLost, at link.Instant) Loss {
	h := m.run.Hosts[host]
	lost := Loss{MPSLost: n, Host: h.Name, Ranks: m.ranksAt(host, n.Locals), At: at}
	m.lost = append(m.lost, lost)
	text := fmt.Sprintf("%s: %s; %s shared it and are ended", h.Name, n.Message, m.run.ListRanks(lost.Ranks))
	m.run.Say(event.Event{Kind: event.Warning, Host: h.Name, Log: n.Log, Message: text})
	return lost
}

// ranksAt are the ranks that have places of a host, by the places' numbers there.
func (m *MPS) ranksAt(host int, locals []int) (ranks []int) {
	part := m.run.Plan.Hosts[host]
	for _, local := range locals {
		if local < 0 || local >= part.Ranks {
			continue
		}
		if rank := m.run.At[part.FirstRank+local]; rank != run.Nowhere {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// LossOf is the loss that a rank was ended by which began then; nil: none.
func (m *MPS) LossOf(rank int, begun link.Instant) []failure.Event {
	for _, l := range m.lost {
		if slices.Contains(l.Ranks, rank) && l.At >= begun {
			return []failure.Event{{
				Class: l.Class(), Message: l.Message, Host: l.Host, Rank: rank, At: m.run.Since(l.At),
				Evidence: l.Lines,
			}}
		}
	}
	return nil
}

// Take takes in what a host's daemons say, and reports who their clients are where that is new.
func (m *MPS) Take(host int, s *message.DeviceUsage) {
	if len(s.MPS) == 0 || s.Attempt != m.run.Attempt || s.Asked != 0 { // asked once all have ended
		return
	}
	for i, one := range s.MPS {
		for _, pid := range slices.Sorted(maps.Keys(one.Clients)) {
			rank := one.Clients[pid]
			place := m.run.PlaceOfRank(rank)
			if old := m.clients[place]; place != run.Nowhere && (old.rank != rank || old.pid == 0) {
				m.clients[place] = client{rank, pid}
			}
		}
		if old := m.seen[host]; len(one.Servers) == 0 && i < len(old) {
			s.MPS[i].Servers = old[i].Servers
		}
	}
	m.seen[host] = s.MPS
	held := map[int]uint64{}
	for _, h := range s.Holders {
		if place := m.run.PlaceOfRank(h.Rank); place != run.Nowhere && h.Bytes != nil {
			held[place] += *h.Bytes
		}
	}
	for place, bytes := range held {
		m.held[place], m.peaks[place] = bytes, max(m.peaks[place], bytes)
	}
	table := m.of(host)
	text := clientText(table)
	if text == m.said[host] || text == "" {
		return
	}
	m.said[host] = text
	name := m.run.Hosts[host].Name
	m.run.Say(event.Event{Kind: event.Shared, Host: name, Message: name + ": " + text, MPS: table})
}

// of are the GPUs of a host that ranks share, with who was last seen as their clients.
func (m *MPS) of(host int) []report.MPSGPU {
	var all []report.MPSGPU
	for _, g := range m.run.Plan.MPS(host) {
		one := report.MPSGPU{
			Host: m.run.Hosts[host].Name, Name: g.Device.String(), UUID: g.Device.UUID, Ranks: []report.MPSRank{},
			Daemon: m.daemons[g.Device.UUID],
		}
		for _, s := range m.seen[host] {
			if s.Device != g.Device.UUID {
				continue
			}
			one.Servers = s.Servers
			for _, pid := range slices.Sorted(maps.Keys(s.Clients)) {
				if !slices.Contains(g.Ranks, m.run.PlaceOfRank(s.Clients[pid])) {
					one.Others = append(one.Others, pid)
				}
			}
		}
		for _, place := range g.Ranks {
			c, seen := m.clients[place]
			if !seen && len(m.run.Plan.Tasks) > 0 {
				continue // no task was seen there
			}
			if !seen {
				c.rank = place
			}
			one.Ranks = append(one.Ranks, report.MPSRank{
				Rank: c.rank, Client: c.pid, Threads: m.run.Plan.MPSThreads(place), Limit: m.run.Plan.MPSMemory(place),
				Memory: m.held[place], Peak: m.peaks[place],
			})
		}
		all = append(all, one)
	}
	return all
}

// GPUs are those of all hosts that ranks have shared, for the report.
func (m *MPS) GPUs() []report.MPSGPU {
	var all []report.MPSGPU
	for host := range m.run.Hosts {
		if m.run.Begun != 0 {
			all = append(all, m.of(host)...)
		}
	}
	return all
}

// clientText says how many ranks of each GPU are clients; "" where none is.
func clientText(table []report.MPSGPU) string {
	var parts []string
	known := false
	for _, g := range table {
		clients := 0
		for _, r := range g.Ranks {
			if r.Client != 0 {
				clients++
			}
		}
		known = known || clients > 0
		part := fmt.Sprintf("clients of MPS on %s are %d of %s", g.Name, clients, plural.Of(len(g.Ranks), "rank"))
		if n := len(g.Others); n > 0 {
			part += ", beside " + plural.Of(n, "other")
		}
		parts = append(parts, part)
	}
	if !known {
		return ""
	}
	return strings.Join(parts, "; ")
}

// Explain adds what sharing a server means for a rank's failure.
func (m *MPS) Explain(c *report.Cause, rank int) {
	for _, lost := range m.lost {
		if !lost.Fault || !slices.Contains(lost.Ranks, rank) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(lost.Ranks), func(r int) bool { return r == rank })
		if len(others) == 0 {
			continue
		}
		c.Notes = append(c.Notes, fmt.Sprintf("%s shared the MPS server of %s with it: "+
			"a fatal GPU fault of one client ends all, so theirs are its consequence, or its is that of one of them; "+
			"all were ended at once, since the GPU serves nobody before the last has gone",
			m.run.ListRanks(others), m.run.PlaceOf(rank).Device))
		c.Evidence = append(c.Evidence, lost.Lines...)
	}
}
