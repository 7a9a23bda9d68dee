package machine

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous"
	"github.com/muster-dev/muster/rendezvous/link"
)

// losses handles hosts that cannot take part any more.
type losses struct{ *Machine }

// refuse ends a run that has not started because a host cannot take part.
func (m losses) refuse(host int, message string) {
	m.Hosts[host].Gone = true
	m.cannotStart(host, message)
}

// cannotStart ends a run that has not started.
func (m losses) cannotStart(host int, message string) {
	name := m.Hosts[host].Name
	m.Refusals = append(m.Refusals, run.Refusal{Host: name, Exit: report.ExitUnreachable, Message: message})
	m.finish()
}

// leave: a host's agent cannot go on since at. refusal says so of a run that has not started, message of one that
// has.
func (m losses) leave(host int, at link.Instant, refusal, message string) {
	switch m.Phase {
	case run.Gathering:
		m.refuse(host, refusal)
	case run.Running, run.Restarting:
		m.mode.Handle(HostLost{Host: host, At: at, Class: class.AgentLost, Message: message})
	}
}

// dropped: the link to a host ended or was reset.
func (m losses) dropped(host int, why string) {
	h := m.Hosts[host]
	if h.Finished {
		h.Linked = false
		return
	}
	if h.Dropped == "" {
		h.Dropped = why
		m.leave(host, m.Now, "its agent's connection to the coordinator ended: "+why,
			fmt.Sprintf("the agent on %s died or lost its connection (%s)", h.Name, why))
	}
}

// empty: a host's keeper has ended, so nothing of the run is left there.
func (m losses) empty(host int) {
	if h := m.Hosts[host]; h.Finished || h.Gone || m.Phase == run.Over {
		return
	}
	m.dropped(host, "its keeper has ended")
	m.giveUp(host)
}

// keeperDied: the keeper beside this process is no more, and with it who would end this host's processes if the
// agent cannot.
func (m losses) keeperDied() {
	switch m.Phase {
	case run.Gathering:
		m.cannotStart(0, "its keeper died")
	case run.Running, run.Restarting:
		message := m.Hosts[0].Name + " ends its workers: its keeper died"
		m.mode.Handle(HostLost{At: m.Now, Class: class.AgentLost, Message: message, Head: true})
	}
}

// giveUp stops waiting for a host.
func (m losses) giveUp(host int) {
	m.Hosts[host].Gone = true
	m.GiveUpRanks(host)
}

// silent: a host has not joined in time, or was silent for the lease. Its own keeper and agent have ended its
// workers by now.
func (m losses) silent(s rendezvous.Silence) {
	h := m.Hosts[s.Member]
	if s.Last == 0 {
		if m.Phase == run.Gathering {
			wait := m.Job.Lease + rendezvous.JoinMargin
			m.refuse(s.Member, "its agent has not joined the coordinator within "+wait.String())
		}
		return
	}
	m.giveUp(s.Member)
	lost := HostLost{
		Host: s.Member, At: s.Last, Class: class.HostLost,
		Message: fmt.Sprintf("no answer from %s for %v", h.Name, m.Now.Sub(s.Last).Round(100*time.Millisecond)),
	}
	switch m.Phase {
	case run.Gathering:
		m.refuse(s.Member, lost.Message)
	case run.Running, run.Restarting:
		m.mode.Handle(lost)
	default:
		m.Say(event.Event{Kind: event.Lost, Host: h.Name, Message: lost.Message, Silent: true})
		lost.Late = true
		m.mode.Handle(lost)
	}
	m.Record.Left = append(m.Record.Left, fmt.Sprintf(
		"%s: did not answer any more; its keeper ends its workers within the lease of %v", h.Name, m.Job.Lease))
}
