// Package machine is what the state machines of gangs and of independent tasks share: hosts gather and are checked,
// workers run, output is read, devices are cleared, and hosts finish. It turns inputs into actions and has neither
// clock nor network.
package machine

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/coordinator/diagnosis"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/silence"
	"github.com/muster-dev/muster/launcher/coordinator/watch"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/restart"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Mode decides what a gang and independent tasks do differently.
type Mode interface {
	// Begin starts workers once the run is committed.
	Begin()
	// Advance goes on as far as what was reported allows.
	Advance()
	// Handle handles what has happened: one of the types below, or a run.Stop while workers run.
	Handle(occurrence any)
	// Tick lets time pass.
	Tick()
	Summary
}

// Summary is what the report says of the ranks.
type Summary interface {
	// Cause is the failure that counts and the exit status that follows; nil: nothing failed.
	Cause() (*report.Cause, int)
	// Failed reports whether a rank has failed by itself.
	Failed() bool
	// Undone counts the ranks that have not done their work.
	Undone() int
	// Outcome is what became of a rank, where each has its own.
	Outcome(rank int) string
	// Reason is why no attempt follows a failure; "": the job file asks for none.
	Reason(c *report.Cause) string
}

// Occurrences that a mode handles.
type (
	// Ended: a worker has ended.
	Ended struct{ Rank int }
	// HostLost: a host is no part of the run any more.
	HostLost struct {
		Host    int
		At      link.Instant
		Class   string
		Message string
		Late    bool // workers were being ended already
		Head    bool // this process goes with it
	}
	// MPSLost: ranks have lost their daemon or server of MPS and were ended.
	MPSLost struct {
		Host int
		watch.Loss
	}
	// Misplaced: a rank is on another device than planned, and the job file wants an end then.
	Misplaced struct {
		Rank    *int
		Message string
		Cause   *report.Cause
	}
	// Hung: nothing moves in ranks.
	Hung struct{ silence.Verdict }
)

// Machine is the state machine of a run.
type Machine struct {
	*run.Run
	mode      Mode
	gathering gathering
	losses    losses

	Placement *watch.Placement
	Memory    *watch.Memory
	MPS       *watch.MPS
	Driver    *watch.Driver
	Clearing  *watch.Clearing
	Silence   *silence.Watch
	Diagnosis *diagnosis.Diagnosis

	Wait    *watch.Wait     // for devices to be empty before what follows; nil: not
	InForce restart.InForce // what restarts of all ranks have changed
	pace    *message.Pace   // of samples; nil: the agents' own
}

// New makes the machine of a mode. together is set where its ranks wait for each other.
func New(r *run.Run, mode Mode, together bool) *Machine {
	m := &Machine{
		Run: r, mode: mode, Placement: watch.NewPlacement(r), Memory: watch.NewMemory(r), MPS: watch.NewMPS(r),
		Driver: watch.NewDriver(r), Clearing: watch.NewClearing(r),
	}
	m.gathering, m.losses = gathering{m, preflight{m: m}}, losses{m}
	m.Silence = silence.New(r, m.Memory, m.PlanMeeting, together)
	m.Diagnosis = diagnosis.New(r, m.Placement, m.Driver, m.MPS)
	return m
}

// State is what is known of the run.
func (m *Machine) State() *run.Run { return m.Run }

// Samples is how much memory and time of their devices ranks use now.
func (m *Machine) Samples() samples.Overview { return m.Memory.Overview() }

// Next takes in what has happened and returns what is to be done.
func (m *Machine) Next(in run.Input, now link.Instant) []run.Action {
	m.Now = now
	switch in := in.(type) {
	case run.Joined:
		m.gathering.joined(in.Host)
	case run.Dropped:
		m.losses.dropped(in.Host, in.Why)
	case run.Empty:
		m.losses.empty(in.Host)
	case run.Update:
		m.update(in)
	case run.Tick:
		m.tick(in.Heard)
	case run.Stop:
		m.stop(in)
	case run.Signal:
		m.signal(in.Name)
	case run.Attended:
		m.Unattended = false
	case run.LauncherLeft:
		if m.Phase == run.Gathering {
			m.stop(run.Stop{Exit: report.ExitHangup, Reason: "the launcher has left before the start"})
		}
	case run.KeeperDied:
		m.losses.keeperDied()
	case run.Flushed:
		if m.Phase == run.Wrapping {
			m.Phase = run.Clearing
			m.ClearAll(0)
		}
	case run.Fault:
		m.Fail(in.Err)
	case run.JournalFailed:
		m.Warn(m.Hosts[0].Name, "what happens is not kept there any more: %v; the run goes on, "+
			"but muster status, attach and report will lack it", in.Err)
	case run.Pace:
		m.pace = &in.Pace
		m.SendPace()
	}
	m.advance()
	return m.Take()
}

// advance goes on as far as what was reported allows.
func (m *Machine) advance() {
	switch m.Phase {
	case run.Gathering:
		m.gathering.tryCommit()
	case run.Restarting, run.Running, run.Stopping:
		m.mode.Advance()
	case run.Clearing:
		if m.Cleared() {
			m.finish()
		}
	case run.Finishing:
		m.tryEnd()
	}
}

// ClearAll waits for the devices of all hosts to be empty.
func (m *Machine) ClearAll(patience time.Duration) {
	m.Clearing.Drop(m.Wait)
	m.Wait = m.Clearing.All(patience)
}

// Cleared reports whether the devices are empty, or time is up.
func (m *Machine) Cleared() bool {
	if !m.Clearing.Over(m.Wait) {
		return false
	}
	m.Wait = nil
	return true
}

// SendPace says how often samples are wanted; agents forget it with an attempt.
func (m *Machine) SendPace() {
	if m.pace != nil {
		m.SendAll(message.Command{Pace: m.pace})
	}
}

// HoldPort has the head host hold a port for MASTER_PORT.
func (m *Machine) HoldPort() {
	m.Send(0, message.Command{HoldPort: &message.HoldPort{Attempt: m.Attempt, First: m.FirstPort, Last: m.LastPort}})
}

// Wrap waits for readers of output, as all workers have ended.
func (m *Machine) Wrap() {
	m.Phase = run.Wrapping
	m.Do(run.Action{Wrap: true})
}

// finish has the hosts finish.
func (m *Machine) finish() {
	m.Phase = run.Finishing
	m.SendAll(message.Command{Finish: &message.Finish{}})
	m.tryEnd()
}

func (m *Machine) tryEnd() {
	if m.Phase != run.Finishing || !m.Meeting.Left() {
		return
	}
	m.Phase = run.Over
	r := makeReport(m)
	text := fmt.Sprintf("all %ss ended well", m.Plan.Unit())
	if r.FirstCause != nil {
		text = r.FirstCause.Message
	}
	m.Say(event.Event{Kind: event.Over, Message: text, Report: r})
	m.Do(run.Action{End: r})
}

// Fail ends the run for a fault of muster itself.
func (m *Machine) Fail(err error) {
	m.Lost = &run.Loss{Cause: &report.Cause{Class: class.Internal, Message: err.Error()}}
	m.StopAll(err.Error(), false)
}

// stop: the user wants an end.
func (m *Machine) stop(s run.Stop) {
	if m.Stop == nil || m.Stop.Drain {
		m.Stop = &s
	}
	switch m.Phase {
	case run.Gathering:
		m.Say(event.Event{Kind: event.Stopping, Message: "ending the run: " + s.Reason})
		m.finish()
	case run.Restarting:
		m.Phase = run.Stopping
	case run.Running:
		m.mode.Handle(s)
	case run.Stopping:
		if s.Kill {
			m.StopAll(s.Reason, true)
		}
	}
}

// signal passes a signal on to the leader of each rank.
func (m *Machine) signal(name string) {
	if m.Phase == run.Running || m.Phase == run.Stopping {
		m.Say(event.Event{Kind: event.Signalled, Message: name + " is passed on to every rank"})
		m.SendAll(message.Command{Signal: &message.Signal{Attempt: m.Attempt, Name: name}})
	}
}

// tick: time has passed. heard returns when a host was last heard.
func (m *Machine) tick(heard func(host int) (link.Instant, bool)) {
	for _, s := range m.Meeting.Silent(m.Now, m.Job.Lease, heard) {
		m.losses.silent(s)
	}
	m.mode.Tick()
	for host := range m.Hosts {
		m.place(m.Placement.Again(host))
	}
	for _, verdict := range m.Silence.Judge() {
		m.mode.Handle(Hung{verdict})
	}
}

// place reports what was found of who holds a host's devices.
func (m *Machine) place(found []report.Finding, judged bool) {
	for _, f := range found {
		m.Find(f)
		if f.Severity != codes.Fail {
			continue
		}
		m.mode.Handle(Misplaced{f.Rank, f.Message, &report.Cause{
			Class: class.WrongGPU, Message: f.Words(), Host: f.Host, Rank: f.Rank, Attempt: m.Attempt,
		}})
		if m.Phase != run.Running {
			return
		}
	}
	if judged {
		m.Placement.SayProven()
	}
}
