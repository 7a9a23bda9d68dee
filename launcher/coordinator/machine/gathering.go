package machine

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// gathering has the hosts join and get ready, and commits the run once all are.
type gathering struct {
	*Machine
	preflight preflight
}

// joined: the link to a host is up, for the first time or again.
func (m *gathering) joined(host int) {
	h := m.Hosts[host]
	first := m.Meeting.Join(host)
	if m.Phase >= run.Finishing { // too late to take part
		m.Send(host, message.Command{Finish: &message.Finish{}})
	}
	if !first || m.Phase != run.Gathering {
		return
	}
	m.Say(event.Event{Kind: event.Linked, Host: h.Name, Message: h.Name + " has joined"})
	if host == 0 && !m.Meeting.MayCommit() {
		m.HoldPort()
	}
	script := m.Job.Hosts[host]
	p := &message.Prepare{
		Workdir: script.Workdir, Setup: script.Setup, Program: m.Plan.Command[0], Python: m.Job.Python,
		Names: m.Job.HostEnvNames(),
	}
	p.Devices, p.Claim = m.Plan.Claims(host)
	m.Send(host, message.Command{Prepare: p})
}

func (m *gathering) prepared(host int, p *message.Prepared) {
	h := m.Hosts[host]
	if m.Phase != run.Gathering {
		return // a setup that muster has ended, as there will be no run
	}
	h.Prepared = true
	if p.Error != "" {
		m.Refusals = append(m.Refusals, run.Refusal{
			Host: h.Name, Message: p.Error, Exit: report.ExitRefused, Output: p.Output, Log: p.Log, Taken: p.Taken,
		})
		return
	}
	h.Software, h.Environ = p.Software, p.Environ
	if h.Environ == nil {
		h.Environ = map[string]string{}
	}
	for _, warning := range p.Warnings {
		m.Warn(h.Name, "%s", warning)
	}
	for _, uuid := range p.Shared {
		m.Warn(h.Name, "another run of muster uses %s too", uuid)
	}
	m.Say(event.Event{Kind: event.Prepared, Host: h.Name, Message: h.Name + " is ready"})
}

func (m *gathering) portHeld(host int, p *message.PortHeld) {
	if p.Error == "" || p.Attempt != m.Attempt {
		m.Meeting.SetPort(p.Attempt, p.Port)
		return
	}
	m.Refusals = append(m.Refusals, run.Refusal{
		Host: m.Hosts[host].Name, Message: "MASTER_PORT: " + p.Error, Exit: report.ExitRefused,
	})
}

// served: a host's daemons of MPS run, or cannot.
func (m *gathering) served(host int, s *message.Served) {
	h := m.Hosts[host]
	switch current := m.MPS.Served(host, s); {
	case !current || s.Error == "":
	case m.Phase == run.Running: // a rank there was to be started again
		m.mode.Handle(HostLost{Host: host, At: m.Now, Class: class.MPSLost, Message: h.Name + ": " + s.Error})
	default:
		m.Refusals = append(m.Refusals, run.Refusal{
			Host: h.Name, Message: s.Error, Exit: report.ExitRefused, Output: s.Tail, Log: s.Log,
		})
	}
}

// tryCommit starts the workers once every host is ready, or refuses once every host has answered and one cannot.
func (m *gathering) tryCommit() {
	if m.Stop != nil {
		m.finish()
		return
	}
	if !m.Meeting.Prepared() {
		return
	}
	if len(m.Refusals) == 0 {
		if err := m.Meeting.Choose(); err != nil {
			m.preflight.unreachable(err)
		}
	}
	if len(m.Refusals) > 0 {
		m.finish()
		return
	}
	if !m.Meeting.MayCommit() || m.Unattended || !m.preflight.probed() {
		return
	}
	if !m.preflight.passed {
		if !m.preflight.passes() {
			m.finish()
			return
		}
		m.preflight.passed = true
		m.MPS.ServeAll()
	}
	if !m.MPS.AllServed() {
		return
	}
	m.Phase, m.Begun = run.Running, m.Now
	m.sayMeeting()
	m.Say(event.Event{Kind: event.Committed, Message: fmt.Sprintf("%s on %s: being started",
		plural.Of(m.Plan.WorldSize, "rank"), plural.Of(len(m.Hosts), "host"))})
	m.Placement.Begin()
	m.mode.Begin()
}

// sayMeeting says where the ranks meet, and why not elsewhere.
func (m *gathering) sayMeeting() {
	if m.Meeting.Master() == "" {
		return
	}
	m.Say(event.Event{
		Kind: event.Meeting, Host: m.Hosts[0].Name,
		Message: fmt.Sprintf("ranks meet at %s:%d", m.Meeting.Master(), m.Meeting.Port()),
	})
	for _, r := range m.Meeting.Rejected() {
		m.Say(event.Event{Kind: event.Passed, Host: r.Member, Message: r.Message})
	}
}
