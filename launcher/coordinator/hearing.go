package coordinator

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// joined: the link to a host stands, for the first time or again.
func (b *brain) joined(host int) {
	h := b.hosts[host]
	first := !h.linked
	h.linked, h.dropped = true, ""
	if b.phase >= finishing { // too late to take part
		b.send(host, message.Command{Finish: &message.Finish{}})
	}
	if !first || b.phase != gathering {
		return
	}
	b.say(event.Event{Kind: event.Linked, Host: h.name, Message: h.name + " has joined"})
	if host == 0 && b.places == nil {
		b.send(0, message.Command{HoldPort: &message.HoldPort{Attempt: b.attempt, First: b.firstPort, Last: b.lastPort}})
	}
	b.send(host, message.Command{Prepare: b.prepareFor(host)})
}

func (b *brain) prepareFor(host int) *message.Prepare {
	h := b.job.Hosts[host]
	p := &message.Prepare{Workdir: h.Workdir, Setup: h.Setup, Program: b.plan.Command[0], Python: b.job.Python}
	p.Devices, p.Claim = b.plan.Claims(host)
	p.Names = b.job.HostEnvNames()
	return p
}

// news: an agent said something; at is when, on the own clock.
func (b *brain) news(host int, n message.Update, at link.Instant) {
	h := b.hosts[host]
	switch {
	case n.Reached != nil:
		b.reached(h, n.Reached)
	case n.Prepared != nil:
		b.prepared(h, n.Prepared)
	case n.PortHeld != nil:
		b.portHeld(h, n.PortHeld)
	case n.Served != nil:
		b.served(host, n.Served)
	case n.MPSLost != nil:
		b.mpsLost(host, n.MPSLost, at)
	case n.Started != nil && b.isAwaited(n.Started.Rank, n.Started.Attempt):
		b.started(n.Started)
	case n.Ended != nil && b.isAwaited(n.Ended.Rank, n.Ended.Attempt):
		b.ended(n.Ended, at)
	case n.Opened != nil && b.visiting.asked:
		b.opened(host, n.Opened)
	case n.Visited != nil && b.visiting.asked:
		b.visiting.visited[host] = n.Visited
	case n.Usage != nil:
		b.seen(host, n.Usage)
	case n.Samples != nil:
		b.sampled(host, n.Samples)
	case n.Observed != nil:
		b.heardOf(host, n.Observed)
	case n.Device != nil:
		b.deviceReported(host, n.Device, at)
	case n.Warning != nil:
		b.warning(h, n.Warning)
	case n.Pulses != nil:
		b.pulsed(host, n.Pulses)
	case n.Stacks != nil:
		b.stacksTaken(host, n.Stacks)
	case n.Failing != nil:
		b.failing(host, n.Failing, at)
	case n.Finished != nil:
		h.finished = true
		b.giveUpRanks(host) // of which it has told no end, and will not
		for _, left := range n.Finished.Left {
			b.left = append(b.left, h.name+": "+left)
		}
	}
	b.advance()
}

// isAwaited reports whether news of an attempt of a rank is of what goes on. What a host has
// to tell that was given up, and then heard again, comes too late.
func (b *brain) isAwaited(rank, attempt int) bool {
	r := b.ranks[rank]
	if b.places != nil && (r.place == nowhere || b.places.all[r.place].rank != rank) {
		return false
	}
	return attempt == r.attempt
}

func (b *brain) reached(h *hostState, r *message.Reached) {
	for _, result := range r.Results {
		h.reach[result.Addr] = result
	}
	h.complete = r.Complete
}

func (b *brain) prepared(h *hostState, p *message.Prepared) {
	if b.phase != gathering {
		return // a setup that muster has ended, as there will be no run
	}
	if p.Error != "" {
		b.refusals = append(b.refusals, refusal{host: h.name, message: p.Error, code: report.ExitRefused, output: p.Output, log: p.Log, taken: p.Taken})
		h.prepared = true
		return
	}
	h.prepared, h.software, h.environ = true, p.Software, p.Environ
	if h.environ == nil {
		h.environ = map[string]string{}
	}
	for _, warning := range p.Warnings {
		b.warn(h.name, "%s", warning)
	}
	for _, uuid := range p.Shared {
		b.warning(h, &message.Warning{Rank: -1, Message: fmt.Sprintf("another run of muster uses %s too", uuid)})
	}
	b.say(event.Event{Kind: event.Prepared, Host: h.name, Message: h.name + " is ready"})
}

func (b *brain) portHeld(h *hostState, p *message.PortHeld) {
	if p.Attempt != b.attempt {
		return
	}
	if p.Error != "" {
		b.refusals = append(b.refusals, refusal{host: h.name, message: "MASTER_PORT: " + p.Error, code: report.ExitRefused})
		return
	}
	b.port = p.Port
}

func (b *brain) started(s *message.Started) {
	r := b.ranks[s.Rank]
	r.started, r.log = true, s.Log
	b.say(event.Event{Kind: event.Started, Host: b.hosts[r.host].name, Rank: &s.Rank, PID: s.PID, Log: s.Log,
		Message: fmt.Sprintf("%s runs on %s (pid %d)", b.rankWords(s.Rank), b.hosts[r.host].name, s.PID)})
}

func (b *brain) warning(h *hostState, w *message.Warning) {
	if w.Rank >= 0 {
		b.warn(h.name, "%s: %s", b.rankWords(w.Rank), w.Message)
		return
	}
	b.warn(h.name, "%s", w.Message)
}
