package machine

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/rendezvous/link"
)

// update takes in what an agent has reported.
func (m *Machine) update(in run.Update) {
	host, h := in.Host, m.Hosts[in.Host]
	switch {
	case in.Reached != nil:
		m.Meeting.AddReached(host, in.Reached.Results, in.Reached.Complete)
	case in.Prepared != nil:
		m.gathering.prepared(host, in.Prepared)
	case in.PortHeld != nil:
		m.gathering.portHeld(host, in.PortHeld)
	case in.Served != nil:
		m.gathering.served(host, in.Served)
	case in.MPSLost != nil:
		if in.MPSLost.Attempt == m.Attempt && (m.Phase == run.Running || m.Phase == run.Stopping) {
			m.mode.Handle(MPSLost{host, m.MPS.Lost(host, in.MPSLost, in.At)})
		}
	case in.Opened != nil:
		m.gathering.preflight.opened(host, in.Opened)
	case in.Visited != nil:
		m.gathering.preflight.visited(host, in.Visited)
	case in.Warning != nil:
		if w := in.Warning; w.Rank >= 0 {
			m.Warn(h.Name, "%s: %s", m.RankName(w.Rank), w.Message)
		} else {
			m.Warn(h.Name, "%s", w.Message)
		}
	case in.Failing != nil:
		reason := in.Failing.Reason
		m.losses.leave(host, in.At, "its agent gave up: "+reason, h.Name+" ends its workers: "+reason)
	case in.Finished != nil:
		h.Finished = true
		m.GiveUpRanks(host) // whose ends it has not reported, and will not
		for _, left := range in.Finished.Left {
			m.Record.Left = append(m.Record.Left, h.Name+": "+left)
		}
	default:
		m.observe(in)
	}
}

// observe takes in how workers and devices do.
func (m *Machine) observe(in run.Update) {
	switch host := in.Host; {
	case in.Started != nil && m.IsCurrent(in.Started.Rank, in.Started.Attempt):
		m.started(in.Started)
	case in.Ended != nil && m.IsCurrent(in.Ended.Rank, in.Ended.Attempt):
		m.ended(in.Ended, in.At)
	case in.Usage != nil:
		m.MPS.Take(host, in.Usage)
		if in.Usage.Asked != 0 {
			m.Clearing.Take(host, in.Usage)
		} else {
			m.place(m.Placement.Take(host, in.Usage))
		}
	case in.Samples != nil:
		m.Memory.Take(host, in.Samples)
	case in.Observed != nil:
		m.progress(host, in.Observed)
	case in.Device != nil:
		m.Driver.Take(host, in.Device, in.At)
	case in.Pulses != nil:
		m.Silence.TakePulses(host, in.Pulses)
	case in.Stacks != nil:
		m.Silence.TakeStacks(host, in.Stacks)
	}
}

func (m *Machine) started(s *message.Started) {
	k, host := m.Ranks[s.Rank], m.HostOf(s.Rank)
	k.Started, k.Log = true, s.Log
	m.Say(event.Event{
		Kind: event.Started, Host: host, Rank: &s.Rank, PID: s.PID, Log: s.Log,
		Message: fmt.Sprintf("%s runs on %s (pid %d)", m.RankName(s.Rank), host, s.PID),
	})
}

func (m *Machine) ended(e *message.Ended, at link.Instant) {
	k := m.Ranks[e.Rank]
	if k.Ended != nil {
		return
	}
	k.Ended, k.At = e, at
	m.Memory.Raise(e.Rank, e.Peaks)
	if e.Evidence != nil && e.Evidence.Observed != nil {
		k.Observed = e.Evidence.Observed
		m.Record.Observed++
	}
	m.Placement.Ended(k.Place)
	if e.Log != "" {
		k.Log = e.Log
	}
	m.SayEnded(e)
	m.mode.Handle(Ended{e.Rank})
}

// progress takes in what the workers of a host have reported of themselves.
func (m *Machine) progress(host int, o *message.Observed) {
	for rank, reported := range o.Ranks {
		if rank < 0 || rank >= len(m.Ranks) || reported.Latest == nil {
			continue
		}
		if k := m.Ranks[rank]; k.Host == host && k.Attempt == reported.Attempt && k.Ended == nil {
			k.Observed = reported.Latest
			m.Record.Observed++
		}
	}
}

// PlanMeeting is what is known when an attempt starts, for the plan.
func (m *Machine) PlanMeeting() plan.Meeting {
	meeting := plan.Meeting{
		Run: m.ID, Attempt: m.Attempt, MasterAddr: m.Meeting.Master(), MasterPort: m.Meeting.Port(), InForce: m.InForce,
		MPS: m.MPS.Folders(),
	}
	for i, h := range m.Hosts {
		meeting.Locals = append(meeting.Locals, m.Meeting.Local(i))
		meeting.Software = append(meeting.Software, h.Software)
		meeting.Environ = append(meeting.Environ, h.Environ)
	}
	return meeting
}

// Start is a command to start ranks on a host. It is nil where that cannot be, and the run is ended then.
func (m *Machine) Start(host int, ranks []int, meeting plan.Meeting) *message.Start {
	p := m.Plan
	part := p.Hosts[host]
	start := &message.Start{
		Attempt: meeting.Attempt, Command: environ.Command(p, meeting), Slots: part.Ranks, Watch: len(part.Devices) > 0,
		Signal: m.Job.Stop.Signal, Grace: m.Job.Stop.Grace, Checkpoints: m.Job.Progress.Folder,
		Observe: message.Observe(m.Job.Observe), Recorder: m.Job.Hang != nil && p.Backend == "nccl",
	}
	for _, rank := range ranks {
		place := m.PlaceOf(rank)
		vars, err := environ.Of(p, place.Rank, meeting)
		if err != nil { // the plan's digest has evaluated every rank before
			m.Fail(err)
			return nil
		}
		r := message.RankStart{
			Rank: rank, Local: place.Local, CPUs: place.CPUs, Node: place.Node, Seen: p.Seen(place.Rank),
			Env: map[string]string{}, Defaults: map[string]string{},
		}
		if place.Device != nil {
			r.Device = place.Device.UUID
		}
		for _, v := range vars {
			if v.Default {
				r.Defaults[v.Name] = v.Value
			} else {
				r.Env[v.Name] = v.Value
			}
		}
		start.Ranks = append(start.Ranks, r)
		m.Ranks[rank].Asked = true
	}
	return start
}
