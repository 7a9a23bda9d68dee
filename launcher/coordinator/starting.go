package coordinator

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// advance goes on as far as what is known allows.
func (b *brain) advance() {
	switch b.phase {
	case gathering:
		b.tryCommit()
	case restarting:
		b.tryRestart()
	case running, stopping:
		if b.places != nil {
			b.advanceAlone()
			return
		}
		if !b.allEnded() {
			return
		}
		b.done = b.now
		b.judgeBalance()
		switch {
		case b.mayGoOn():
			b.nextAttempt()
			return
		case b.decide():
			b.restartAfterFailure()
			return
		}
		b.phase = wrapping
		b.actions = append(b.actions, action{wrap: true})
	case clearing:
		if b.isEmpty(&b.empty) {
			b.phase = finishing
			b.sendAll(message.Command{Finish: &message.Finish{}})
			b.tryEnd()
		}
	case finishing:
		b.tryEnd()
	}
}

// tryCommit starts the workers once every host is ready, or refuses once every host
// has answered and one cannot.
func (b *brain) tryCommit() {
	if b.stop != nil {
		b.wrapUp()
		return
	}
	for _, h := range b.hosts {
		if !h.prepared && !h.gone {
			return
		}
	}
	if len(b.refusals) > 0 {
		b.wrapUp()
		return
	}
	if b.places == nil && (!b.chooseMaster() || b.port == 0) || b.unattended {
		if len(b.refusals) > 0 {
			b.wrapUp()
		}
		return
	}
	if !b.haveVisited() {
		return
	}
	if !b.passed {
		if !b.passes() {
			b.wrapUp()
			return
		}
		b.passed = true
		b.serveAll()
	}
	if !b.allServed() {
		return
	}
	b.phase, b.begun = running, b.now
	if b.places == nil {
		b.sayMeeting()
	}
	b.say(event.Event{Kind: event.Committed, Message: fmt.Sprintf("%s on %s: being started", plural.Of(b.plan.WorldSize, "rank"), plural.Of(len(b.hosts), "host"))})
	b.beginWatching()
	if b.places == nil {
		b.startAll()
	} else {
		b.advanceAlone()
	}
}

// wrapUp leaves the gathering without having started a worker.
func (b *brain) wrapUp() {
	b.phase = finishing
	b.sendAll(message.Command{Finish: &message.Finish{}})
	b.tryEnd()
}

// chooseMaster takes the best address that every host has reached. A better one is
// waited for until some host has failed to reach it.
func (b *brain) chooseMaster() bool {
	candidates := b.plan.Candidates()
	for i, c := range candidates {
		all, failed := true, false
		for _, h := range b.hosts {
			r, tried := h.reachOf(c.Addr)
			all = all && tried && r.Error == ""
			failed = failed || tried && r.Error != "" || !tried && h.complete
		}
		if all {
			b.master = i
			return true
		}
		if !failed {
			return false
		}
	}
	message := b.noMasterWords(candidates)
	found := unreachable(b.hosts[0].name, message)
	b.keep(&found)
	b.refusals = append(b.refusals, refusal{host: b.hosts[0].name, code: report.ExitUnreachable, message: message})
	return false
}

// reachOf looks a candidate up: results carry the coordinator's port too.
func (h *hostState) reachOf(addr string) (link.Reach, bool) {
	for full, r := range h.reach {
		if hostPart(full) == addr {
			return r, true
		}
	}
	return link.Reach{}, false
}

func (b *brain) noMasterWords(candidates []plan.Master) string {
	lines := []string{"no address of it is reached by every host:"}
	for _, c := range candidates {
		for _, h := range b.hosts {
			if r, _ := h.reachOf(c.Addr); r.Error != "" {
				lines = append(lines, fmt.Sprintf("  %s (%s) from %s: %s", c.Addr, c.NIC, h.name, r.Error))
			}
		}
	}
	for _, m := range b.plan.Masters {
		if m.Passed != "" {
			lines = append(lines, fmt.Sprintf("  %s was passed over: %s", m.Addr, m.Passed))
		}
	}
	return strings.Join(lines, "\n")
}

// sayMeeting tells where the ranks meet, and why not elsewhere.
func (b *brain) sayMeeting() {
	m := b.plan.Candidates()[b.master]
	b.say(event.Event{Kind: event.Meeting, Host: b.hosts[0].name, Message: fmt.Sprintf("ranks meet at %s:%d", m.Addr, b.port)})
	for _, other := range b.plan.Masters {
		if other.Passed != "" {
			b.say(event.Event{Kind: event.Passed, Host: b.hosts[0].name, Message: fmt.Sprintf("%s was passed over: %s", other.Addr, other.Passed)})
		}
	}
	for _, better := range b.plan.Candidates()[:b.master] {
		for _, h := range b.hosts {
			if r, _ := h.reachOf(better.Addr); r.Error != "" {
				b.say(event.Event{Kind: event.Passed, Host: h.name, Message: fmt.Sprintf("%s was passed over: %s does not reach it: %s", better.Addr, h.name, r.Error)})
			}
		}
	}
}

// meeting is what is known when an attempt of all ranks starts.
func (b *brain) meeting() plan.Meeting {
	m := plan.Meeting{Run: b.run, Attempt: b.attempt, MasterPort: b.port, InForce: b.trials.inForce, MPS: b.sharing.folders}
	if b.master >= 0 {
		m.MasterAddr = b.plan.Candidates()[b.master].Addr
	}
	for _, h := range b.hosts {
		r, _ := h.reachOf(m.MasterAddr)
		m.Locals = append(m.Locals, r.Local)
		m.Software, m.Environ = append(m.Software, h.software), append(m.Environ, h.environ)
	}
	return m
}

func (b *brain) startAll() {
	meeting := b.meeting()
	b.events = nil
	for i, h := range b.plan.Hosts {
		start := b.startOn(i, meeting)
		for rank := h.FirstRank; rank < h.FirstRank+h.Ranks; rank++ {
			if !b.addRank(start, rank, meeting) {
				return
			}
			b.ranks[rank].attempt = b.attempt
		}
		b.send(i, message.Command{Start: start})
	}
	b.actions = append(b.actions, action{began: &beginning{b.attempt, everyRank}})
}

// startOn is an order to start ranks on a host, with none yet.
func (b *brain) startOn(host int, m plan.Meeting) *message.Start {
	return &message.Start{
		Attempt: m.Attempt, Command: environ.Command(b.plan, m), Signal: b.stopSignal, Grace: b.grace,
		Watch: len(b.plan.Hosts[host].Devices) > 0, Checkpoints: b.job.Progress.Folder, Slots: b.plan.Hosts[host].Ranks,
		Observe: message.Observe(b.job.Observe), Recorder: b.job.Hang != nil && b.plan.Backend == "nccl",
	}
}

// addRank adds a rank to an order; where that cannot be the run is ended.
func (b *brain) addRank(start *message.Start, rank int, m plan.Meeting) bool {
	place := b.placeOf(rank)
	vars, err := environ.Of(b.plan, place.Rank, m)
	if err != nil {
		// The plan's digest has evaluated every rank before.
		b.internal(err)
		return false
	}
	r := message.RankStart{Rank: rank, Local: place.Local, CPUs: place.CPUs, Node: place.Node, Device: deviceOf(place), Seen: b.plan.Seen(place.Rank), Env: map[string]string{}, Defaults: map[string]string{}}
	for _, v := range vars {
		if v.Default {
			r.Defaults[v.Name] = v.Value
		} else {
			r.Env[v.Name] = v.Value
		}
	}
	start.Ranks = append(start.Ranks, r)
	b.ranks[rank].asked = true
	return true
}

// deviceOf is the UUID of a rank's device; "" where it has none.
func deviceOf(r plan.Rank) string {
	if r.Device == nil {
		return ""
	}
	return r.Device.UUID
}
