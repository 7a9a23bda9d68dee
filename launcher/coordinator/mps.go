package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// sharing is what is known of the daemons of MPS that serve the run. Ranks are told by their
// places in the plan.
type sharing struct {
	number  int                          // of the last Serve
	awaited map[int]int                  // its number, by host
	served  map[int]bool                 // hosts whose daemons are ready
	folders []map[string]plan.MPSFolders // of each host, by the device's UUID
	daemons map[string]int               // pids, by the device's UUID
	seen    map[int][]gpu.MPSClients     // what each host saw last
	clients map[int]client               // that each place was seen with last
	held    map[int]uint64               // device memory of each place as it was seen last
	peaks   map[int]uint64               // the most of it
	told    map[int]string               // what was last told of a host's clients
	lost    []mpsLoss                    // in this attempt
}

// client is a rank as it was seen among the clients of MPS.
type client struct{ rank, pid int }

type mpsLoss struct {
	*message.MPSLost
	host  int
	ranks []int // that shared the server
	at    link.Instant
}

// class is what has become of the ranks.
func (l mpsLoss) class() string {
	if l.Fault {
		return class.MPSFault
	}
	return class.MPSLost
}

// serveAll has the hosts run the daemons of MPS that the next attempt needs.
func (b *brain) serveAll() {
	s := &b.sharing
	s.served, s.lost, s.clients, s.awaited = map[int]bool{}, nil, map[int]client{}, map[int]int{}
	for i := range b.hosts {
		b.serve(i)
	}
}

// serve has a host run its daemons.
func (b *brain) serve(host int) {
	gpus := b.plan.MPS(host)
	b.sharing.served[host] = len(gpus) == 0
	if len(gpus) == 0 {
		return
	}
	b.sharing.number++
	b.sharing.awaited[host] = b.sharing.number
	order := &message.Serve{Number: b.sharing.number}
	if f := b.plan.Facts[host].MPS; f != nil {
		order.Program = f.Program
	}
	for _, g := range gpus {
		d := message.MPSDaemon{Device: g.Device.UUID, Name: g.Device.String(), Existing: b.plan.ExistingPipe(host), Threads: g.Threads, Memory: g.Memory}
		for _, place := range g.Ranks {
			d.Locals = append(d.Locals, b.plan.Ranks[place].Local)
		}
		order.Daemons = append(order.Daemons, d)
	}
	b.send(host, message.Command{Serve: order})
}

// allServed reports whether all daemons are ready.
func (b *brain) allServed() bool {
	for i, h := range b.hosts {
		if !b.sharing.served[i] && !h.gone {
			return false
		}
	}
	return true
}

func (b *brain) served(host int, s *message.Served) {
	h := b.hosts[host]
	if s.Number != b.sharing.awaited[host] {
		return
	}
	b.sharing.served[host] = true
	switch {
	case s.Error != "" && b.phase == running: // independent ranks are started one by one
		b.closeHost(host, b.now, class.MPSLost, h.name+": "+s.Error)
		return
	case s.Error != "":
		b.refusals = append(b.refusals, refusal{host: h.name, message: s.Error, code: report.ExitRefused, output: s.Tail, log: s.Log})
		return
	}
	if b.sharing.folders == nil {
		b.sharing.folders, b.sharing.daemons = make([]map[string]plan.MPSFolders, len(b.hosts)), map[string]int{}
	}
	b.sharing.folders[host] = map[string]plan.MPSFolders{}
	for uuid, f := range s.Folders {
		b.sharing.folders[host][uuid] = plan.MPSFolders{Pipe: f.Pipe, Log: f.Log}
		b.sharing.daemons[uuid] = f.PID
	}
}

// mpsLost: ranks have lost their daemon or server, or their contexts. The host has ended
// them. Ranks that need each other follow; independent ones of other devices do not.
func (b *brain) mpsLost(host int, n *message.MPSLost, at link.Instant) {
	if n.Attempt != b.attempt || b.phase != running && b.phase != stopping {
		return
	}
	h := b.hosts[host]
	lost := mpsLoss{MPSLost: n, host: host, ranks: b.ranksAt(host, n.Locals), at: at}
	b.sharing.lost = append(b.sharing.lost, lost)
	words := fmt.Sprintf("%s: %s; %s shared it and are ended", h.name, n.Message, b.listRanks(lost.ranks))
	b.say(event.Event{Kind: event.Warning, Host: h.name, Log: n.Log, Message: words})
	switch {
	case b.places != nil:
		if b.phase == running {
			b.serve(host)
		}
	case b.stop == nil && b.lost == nil:
		b.lost, b.lostAt = &report.Cause{Class: lost.class(), Message: fmt.Sprintf("%s: %s", h.name, n.Message), Host: h.name, Attempt: b.attempt, Evidence: n.Lines, Log: n.Log}, at
		if b.phase == running {
			b.stopAll(n.Message, false)
		}
	}
}

// ranksAt are the ranks that have places of a host, by the places' numbers there.
func (b *brain) ranksAt(host int, locals []int) (ranks []int) {
	part := b.plan.Hosts[host]
	for _, local := range locals {
		if local < 0 || local >= part.Ranks {
			continue
		}
		rank := part.FirstRank + local
		if b.places != nil {
			rank = b.places.all[rank].rank
		}
		if rank != nowhere {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// lossOf is the loss that an independent rank was ended by; nil: none.
func (b *brain) lossOf(rank int) []failure.Event {
	r := b.ranks[rank]
	for _, l := range b.sharing.lost {
		if slices.Contains(l.ranks, rank) && l.at >= r.alone.begun {
			return []failure.Event{{Class: l.class(), Message: l.Message, Host: b.hosts[l.host].name, Rank: rank, At: b.since(l.at), Evidence: l.Lines}}
		}
	}
	return nil
}

// takeMPS takes what a host's daemons have told, and tells of it where it is new.
func (b *brain) takeMPS(host int, s *message.DeviceUsage) {
	if len(s.MPS) == 0 || s.Attempt != b.attempt || s.Asked != 0 { // asked when all have ended
		return
	}
	sh := &b.sharing
	if sh.seen == nil {
		sh.seen, sh.held, sh.peaks, sh.told = map[int][]gpu.MPSClients{}, map[int]uint64{}, map[int]uint64{}, map[int]string{}
	}
	for i, one := range s.MPS {
		for _, pid := range slices.Sorted(maps.Keys(one.Clients)) {
			if place := b.placeOfRank(one.Clients[pid]); place != nowhere && sh.clients[place].rank != one.Clients[pid] || place != nowhere && sh.clients[place].pid == 0 {
				sh.clients[place] = client{one.Clients[pid], pid}
			}
		}
		if old := sh.seen[host]; len(one.Servers) == 0 && i < len(old) {
			s.MPS[i].Servers = old[i].Servers
		}
	}
	sh.seen[host] = s.MPS
	held := map[int]uint64{}
	for _, h := range s.Holders {
		if place := b.placeOfRank(h.Rank); place != nowhere && h.Bytes != nil {
			held[place] += *h.Bytes
		}
	}
	for place, bytes := range held {
		sh.held[place], sh.peaks[place] = bytes, max(sh.peaks[place], bytes)
	}
	table := b.sharedGPUs(host)
	words := clientWords(table)
	if words == sh.told[host] || words == "" {
		return
	}
	sh.told[host] = words
	b.say(event.Event{Kind: event.Shared, Host: b.hosts[host].name, Message: b.hosts[host].name + ": " + words, MPS: table})
}

// placeOfRank is the place in the plan of a rank that a host tells of; nowhere for others'
// processes.
func (b *brain) placeOfRank(rank int) int {
	if rank < 0 || rank >= len(b.ranks) {
		return nowhere
	}
	return b.ranks[rank].place
}

// sharedGPUs are the GPUs of a host that ranks share, with who was last seen as their clients.
func (b *brain) sharedGPUs(host int) []report.MPSGPU {
	var all []report.MPSGPU
	for _, g := range b.plan.MPS(host) {
		one := report.MPSGPU{Host: b.hosts[host].name, Name: g.Device.String(), UUID: g.Device.UUID, Daemon: b.sharing.daemons[g.Device.UUID], Ranks: []report.MPSRank{}}
		for _, s := range b.sharing.seen[host] {
			if s.Device != g.Device.UUID {
				continue
			}
			one.Servers = s.Servers
			for _, pid := range slices.Sorted(maps.Keys(s.Clients)) {
				if !slices.Contains(g.Ranks, b.placeOfRank(s.Clients[pid])) {
					one.Others = append(one.Others, pid)
				}
			}
		}
		for _, place := range g.Ranks {
			c, seen := b.sharing.clients[place]
			if !seen {
				if b.places != nil && len(b.plan.Tasks) > 0 {
					continue // no task was seen there
				}
				c.rank = place
			}
			one.Ranks = append(one.Ranks, report.MPSRank{
				Rank: c.rank, Client: c.pid, Threads: b.plan.MPSThreads(place), Limit: b.plan.MPSMemory(place), Memory: b.sharing.held[place], Peak: b.sharing.peaks[place],
			})
		}
		all = append(all, one)
	}
	return all
}

// allSharedGPUs are those of all hosts, for the report.
func (b *brain) allSharedGPUs() []report.MPSGPU {
	var all []report.MPSGPU
	if b.begun == 0 {
		return nil
	}
	for host := range b.hosts {
		all = append(all, b.sharedGPUs(host)...)
	}
	return all
}

// clientWords say how many ranks of each GPU are clients.
func clientWords(table []report.MPSGPU) string {
	var words []string
	any := false
	for _, g := range table {
		clients := 0
		for _, r := range g.Ranks {
			if r.Client != 0 {
				clients++
			}
		}
		any = any || clients > 0
		words = append(words, fmt.Sprintf("clients of MPS on %s are %d of %s", g.Name, clients, plural.Of(len(g.Ranks), "rank")))
		if n := len(g.Others); n > 0 {
			words[len(words)-1] += ", beside " + plural.Of(n, "other")
		}
	}
	if !any {
		return ""
	}
	return strings.Join(words, "; ")
}

// ofMPS adds what sharing a server means for a rank's failure.
func (b *brain) ofMPS(c *report.Cause, found failure.Found) {
	for _, lost := range b.sharing.lost {
		if found.Rank == failure.NoRank || !lost.Fault || !slices.Contains(lost.ranks, found.Rank) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(lost.ranks), func(r int) bool { return r == found.Rank })
		if len(others) == 0 {
			continue
		}
		c.Notes = append(c.Notes, fmt.Sprintf("%s shared the MPS server of %s with it: a fatal GPU fault of one client ends all, so theirs are its consequence, or its is that of one of them; all were ended at once, since the GPU serves nobody before the last has gone",
			b.listRanks(others), b.placeOf(found.Rank).Device))
		c.Evidence = append(c.Evidence, lost.Lines...)
	}
}
