package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous"
)

// sharing is what is known of the daemons of MPS that serve the run.
type sharing struct {
	served  map[int]bool                 // hosts whose daemons are ready for the attempt
	folders []map[string]plan.MPSFolders // of each host, by the device's UUID
	pids    map[string]int               // of daemons, by host and UUID
	seen    map[int][]orders.MPSSight    // what each host saw last
	held    map[int]map[int]uint64       // device memory of each rank as it was seen last, by host
	peaks   map[int]uint64               // the most of it, by rank
	clients map[int]int                  // by which each rank was seen as a client, by rank
	lost    []mpsLoss                    // in this attempt
	told    map[int]string               // what was last told of a host's clients
}

type mpsLoss struct {
	host int
	*orders.MPSLost
}

// serveAll has the hosts run the daemons of MPS that the next attempt needs.
func (b *brain) serveAll() {
	b.sharing.served, b.sharing.lost, b.sharing.clients = map[int]bool{}, nil, map[int]int{}
	block := b.plan.MPSBlock()
	for i := range b.hosts {
		gpus := b.plan.MPS(i)
		if len(gpus) == 0 {
			b.sharing.served[i] = true
			continue
		}
		serve := &orders.Serve{Attempt: b.attempt, Exclusive: block.Exclusive}
		if f := b.plan.Facts(i).MPS; f != nil {
			serve.Program = f.Program
		}
		for _, g := range gpus {
			serve.Daemons = append(serve.Daemons, orders.MPSDaemon{
				Device: g.Device.UUID, Name: g.Device.String(), Existing: b.plan.ExistingPipe(i), Threads: g.Threads, Memory: g.Memory, Ranks: g.Ranks,
			})
		}
		b.send(i, orders.Order{Serve: serve})
	}
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

func (b *brain) served(host int, s *orders.Served) {
	if s.Attempt != b.attempt || b.phase != gathering && b.phase != restarting {
		return
	}
	h := b.hosts[host]
	b.sharing.served[host] = true
	if s.Error != "" {
		b.refusals = append(b.refusals, refusal{host: h.name, message: s.Error, code: report.ExitRefused, output: s.Tail, log: s.Log})
		return
	}
	for _, warning := range s.Warnings {
		b.warn(h.name, "%s", warning)
	}
	if b.sharing.folders == nil {
		b.sharing.folders, b.sharing.pids = make([]map[string]plan.MPSFolders, len(b.hosts)), map[string]int{}
	}
	b.sharing.folders[host] = map[string]plan.MPSFolders{}
	for uuid, f := range s.Folders {
		b.sharing.folders[host][uuid] = plan.MPSFolders{Pipe: f.Pipe, Log: f.Log}
		b.sharing.pids[fmt.Sprint(host, uuid)] = f.PID
	}
}

// mpsLost: ranks have lost their daemon or server, or their contexts. The host has ended
// them; the others follow.
func (b *brain) mpsLost(host int, n *orders.MPSLost, at rendezvous.Instant) {
	if n.Attempt != b.attempt || b.phase != running && b.phase != stopping {
		return
	}
	h := b.hosts[host]
	b.sharing.lost = append(b.sharing.lost, mpsLoss{host, n})
	words := fmt.Sprintf("%s: %s; %s shared it and are ended", h.name, n.Message, listRanks(n.Ranks))
	b.say(event.Event{Kind: event.Warning, Host: h.name, Log: n.Log, Message: words})
	if b.stop != nil || b.lost != nil {
		return
	}
	cause := &report.Cause{Class: class.MPSLost, Message: fmt.Sprintf("%s: %s", h.name, n.Message), Host: h.name, Attempt: b.attempt, Evidence: n.Lines, Log: n.Log}
	if n.Fault {
		cause.Class = class.MPSFault
	}
	b.lost, b.lostAt = cause, at
	if b.phase == running {
		b.stopAll(n.Message, false)
	}
}

// takeMPS takes what a host's daemons have told, and tells of it where it is new.
func (b *brain) takeMPS(host int, s *orders.Sight) {
	if len(s.MPS) == 0 || s.Attempt != b.attempt || s.Asked != 0 { // asked when all have ended
		return
	}
	sh := &b.sharing
	if sh.seen == nil {
		sh.seen, sh.held, sh.peaks, sh.told = map[int][]orders.MPSSight{}, map[int]map[int]uint64{}, map[int]uint64{}, map[int]string{}
	}
	for i, one := range s.MPS {
		for _, pid := range slices.Sorted(maps.Keys(one.Clients)) {
			if rank := one.Clients[pid]; rank != orders.Nobodys && sh.clients[rank] == 0 {
				sh.clients[rank] = pid
			}
		}
		if old := sh.seen[host]; len(one.Servers) == 0 && i < len(old) {
			s.MPS[i].Servers = old[i].Servers
		}
	}
	sh.seen[host] = s.MPS
	held := map[int]uint64{}
	for _, h := range s.Held {
		if h.Rank != orders.Nobodys && h.Bytes != nil {
			held[h.Rank] += *h.Bytes
			sh.peaks[h.Rank] = max(sh.peaks[h.Rank], held[h.Rank])
		}
	}
	sh.held[host] = held
	table := b.sharedGPUs(host)
	words := clientWords(table)
	if words == sh.told[host] || words == "" {
		return
	}
	sh.told[host] = words
	b.say(event.Event{Kind: event.Shared, Host: b.hosts[host].name, Message: b.hosts[host].name + ": " + words, MPS: table})
}

// sharedGPUs are the GPUs of a host that ranks share, with who was last seen as their clients.
func (b *brain) sharedGPUs(host int) []report.MPSGPU {
	var all []report.MPSGPU
	for _, g := range b.plan.MPS(host) {
		one := report.MPSGPU{Host: b.hosts[host].name, Name: g.Device.String(), UUID: g.Device.UUID, Daemon: b.sharing.pids[fmt.Sprint(host, g.Device.UUID)], Ranks: []report.MPSRank{}}
		var seen orders.MPSSight
		for _, s := range b.sharing.seen[host] {
			if s.Device == g.Device.UUID {
				seen = s
			}
		}
		for _, pid := range slices.Sorted(maps.Keys(seen.Clients)) {
			if rank := seen.Clients[pid]; !slices.Contains(g.Ranks, rank) {
				one.Others = append(one.Others, pid)
			}
		}
		one.Servers = seen.Servers
		for _, rank := range g.Ranks {
			one.Ranks = append(one.Ranks, report.MPSRank{
				Rank: rank, Client: b.sharing.clients[rank], Threads: b.plan.MPSThreads(rank), Limit: b.plan.MPSMemory(rank), Memory: b.sharing.held[host][rank], Peak: b.sharing.peaks[rank],
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
		words = append(words, fmt.Sprintf("%d of %d ranks are clients of MPS on %s", clients, len(g.Ranks), g.Name))
		if n := len(g.Others); n > 0 {
			words[len(words)-1] += fmt.Sprintf(", beside %d others", n)
		}
	}
	if !any {
		return ""
	}
	return strings.Join(words, "; ")
}

// ofMPS adds what sharing a server means for a rank's failure.
func (b *brain) ofMPS(c *report.Cause, found failure.Found) {
	if found.Rank == failure.NoRank {
		return
	}
	rank := b.plan.Ranks[found.Rank]
	for _, lost := range b.sharing.lost {
		if lost.host != rank.Host || !slices.Contains(lost.Ranks, found.Rank) || !lost.Fault {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(lost.Ranks), func(r int) bool { return r == found.Rank })
		if len(others) == 0 {
			continue
		}
		c.Notes = append(c.Notes, fmt.Sprintf("%s shared the MPS server of %s with it: a fatal GPU fault of one client ends all, so theirs are its consequence, or its is that of one of them; all were ended at once, since the GPU serves nobody before the last has gone", listRanks(others), rank.Device))
		c.Evidence = append(c.Evidence, lost.Lines...)
	}
}
