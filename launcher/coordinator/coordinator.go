package coordinator

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/rendezvous/link"
)

// machine decides for a run.
type machine interface {
	// Next takes in what has happened and returns what is to be done.
	Next(in run.Input, now link.Instant) []run.Action
	// State is what is known of the run.
	State() *run.Run
	// Output is which attempts of a rank somebody may read who comes now.
	Output(rank int) (run.Output, bool)
	// Samples is how much memory and time of their devices ranks use now.
	Samples() samples.Overview
}

// Coordinator runs the loop that owns the machine; everything else posts functions to it.
type Coordinator struct {
	stateDir string
	lease    time.Duration
	hub      *link.Hub
	disk     *disk
	journal  *journal
	inbox    chan func()
	ended    chan struct{} // closed when the run is over

	machine machine // nil before a submission
	members map[string]int
	outputs outputs
	live    liveFile

	audience audience
	ticked   link.Instant // when the loop last looked at the clock
	woke     link.Instant // when it last went on after a stall; 0: never
	wrapping bool
	quit     bool // there will be no run
	orphan   bool // the keeper died
	over     *report.Report
}

// audience is who watches the run.
type audience struct {
	watchers    int
	followers   int          // of samples
	eventsAsked bool         // somebody has asked for events
	outputAsked bool         // somebody has asked for output
	launcher    link.Instant // when the launcher that submitted was last heard
}

// attends reports whether the launcher gets both, events and output.
func (a *audience) attends() bool { return a.eventsAsked && a.outputAsked }

func newCoordinator(stateDir string, lease time.Duration, hub *link.Hub) (*Coordinator, error) {
	c := &Coordinator{
		stateDir: stateDir, lease: lease, hub: hub, disk: newDisk(), inbox: make(chan func(), 16),
		ended: make(chan struct{}), members: map[string]int{},
	}
	c.outputs.send = c.send
	var err error
	c.journal, err = openJournal(stateDir, c.disk, func(err error) { go c.feed(run.JournalFailed{Err: err}) })
	return c, err
}

// post has the loop call f.
func (c *Coordinator) post(f func()) {
	select {
	case c.inbox <- f:
	case <-c.ended:
	}
}

// feed has the loop give the machine an input, if there is a machine.
func (c *Coordinator) feed(in run.Input) { c.post(func() { c.next(in) }) }

// next gives the machine an input and carries out what it decides.
func (c *Coordinator) next(in run.Input) {
	if c.machine == nil {
		return
	}
	for _, a := range c.machine.Next(in, link.Now()) {
		c.act(a)
	}
}

// lastWait bounds how long watchers may take to get the end.
const lastWait = 5 * time.Second

// run is the coordinator's life.
func (c *Coordinator) run() {
	defer close(c.ended)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var overAt time.Time
	for {
		select {
		case e := <-c.hub.Events():
			c.hubEvent(e)
		case f := <-c.inbox:
			f()
		case <-ticker.C:
			c.tick()
		}
		if c.machine == nil && c.quit {
			return
		}
		if c.over == nil {
			continue
		}
		if overAt.IsZero() {
			overAt = time.Now()
		}
		seen := c.audience.watchers == 0 && !c.machine.State().Unattended && c.allLeft()
		if seen || time.Since(overAt) > lastWait {
			return
		}
	}
}

// allLeft reports whether every host has ended its link: what it sent last was taken in.
func (c *Coordinator) allLeft() bool {
	for i, h := range c.machine.State().Hosts {
		// Without a keeper the agent beside this process stays as long as this process.
		if orphan := i == 0 && c.orphan; h.Present() && !orphan {
			return false
		}
	}
	return true
}

// begin begins a run with its hosts.
func (c *Coordinator) begin(m machine, hosts []submission.Host) error {
	if c.machine != nil {
		return fmt.Errorf("a run was submitted already")
	}
	c.machine, c.audience.launcher = m, link.Now()
	m.State().Unattended = !c.audience.attends()
	for i, h := range hosts {
		c.members[h.Name] = i
		c.hub.Admit(h.Name, h.Pin)
	}
	return nil
}

func (c *Coordinator) hubEvent(e link.Event) {
	host, ok := c.members[e.Member]
	if !ok {
		return
	}
	switch e.Kind {
	case link.Joined:
		c.next(run.Joined{Host: host})
		c.outputs.ask(c.machine.State(), host)
	case link.Dropped:
		c.next(run.Dropped{Host: host, Why: fmt.Sprint(e.Err)})
	case link.Message:
		var u message.Update
		if err := json.Unmarshal(e.Payload, &u); err != nil {
			c.next(run.Fault{Err: fmt.Errorf("%s said %.80q: %w", e.Member, e.Payload, err)})
			return
		}
		c.next(run.Update{Host: host, At: c.hub.Own(e.Member, u.At), Update: &u})
	}
}

func (c *Coordinator) tick() {
	if c.machine == nil {
		return
	}
	now := link.Now()
	c.noteStall(now)
	if c.ticked.Sub(max(c.audience.launcher, c.woke)) > c.lease {
		c.next(run.LauncherLeft{})
	}
	hosts := c.machine.State().Hosts
	c.next(run.Tick{Heard: func(host int) (link.Instant, bool) {
		last, ok := c.hub.Heard(hosts[host].Name)
		return max(last, c.woke), ok
	}})
	c.flush()
	c.live.write(c.machine.State(), now)
}

// flush goes on once readers of output have it all.
func (c *Coordinator) flush() {
	if c.wrapping && c.outputs.allRead(c.machine.State()) {
		c.wrapping = false
		c.next(run.Flushed{})
	}
}

// noteStall remembers when this process last went on after it was stopped, or its machine suspended: what it did not
// hear meanwhile is nobody's silence. The agents' own counts go on, so that none of them outlives its lease.
func (c *Coordinator) noteStall(now link.Instant) {
	if c.ticked != 0 && now.Sub(c.ticked) > link.HeartbeatOf(c.lease) {
		c.woke = now
	}
	c.ticked = now
}

// act carries out what the machine has decided.
func (c *Coordinator) act(a run.Action) {
	state := c.machine.State()
	switch {
	case a.Send != nil:
		c.send(state.Hosts[a.Send.Host].Name, a.Send.Command)
	case a.Event != nil:
		if r := a.Event.Report; r != nil {
			c.keepReport(r, a.Event.Attempt)
		}
		c.journal.add(*a.Event)
	case a.Began != nil:
		c.outputs.begin(state, a.Began)
	case a.Wrap:
		c.wrapping = true
		c.outputs.end()
		c.flush()
	case a.End != nil:
		c.over = a.End
	}
}

// send sends a command to a host. One that the hub does not know cannot occur: begin has admitted all.
func (c *Coordinator) send(host string, command message.Command) {
	_ = c.hub.Send(host, message.Encode(command))
}

// attend lets a run begin once its launcher gets both, events and output.
func (c *Coordinator) attend() {
	if c.machine != nil && c.machine.State().Unattended && c.audience.attends() {
		c.next(run.Attended{})
	}
}

// outputWanted notes that somebody has asked for output.
func (c *Coordinator) outputWanted() {
	c.audience.outputAsked = true
	c.attend()
}

// reportWait is how long the end of a run waits for its report to be on disk.
const reportWait = 2 * time.Second

// keepReport writes the report beside the logs, or says why not in the report itself.
func (c *Coordinator) keepReport(r *report.Report, attempt int) {
	err := c.writeReport(r)
	if err == nil {
		return
	}
	head := c.machine.State().Hosts[0].Name
	text := fmt.Sprintf("%s: the report of this run could not be kept there: %v", head, err)
	r.Warnings = append(r.Warnings, text)
	c.journal.add(event.Event{Kind: event.Warning, Attempt: attempt, Host: head, Message: text})
}

// writeReport writes the report whole or not at all, after all events that were before. A file system that hangs may
// still take it later.
func (c *Coordinator) writeReport(r *report.Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic("reports are plain data, which JSON can always express: " + err.Error())
	}
	kept := make(chan error, 1)
	c.disk.do(func() { kept <- replace(c.stateDir, "report.json", append(text, '\n')) })
	if !c.disk.settle(reportWait) {
		return fmt.Errorf("the file system of %s takes nothing", c.stateDir)
	}
	return <-kept
}
