package coordinator

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Coordinator is the process of the head host that decides for a run. Its loop owns
// the brain; everything else posts functions to it.
type Coordinator struct {
	stateDir string
	lease    time.Duration
	hub      *link.Hub
	disk     *disk
	journal  *journal
	inbox    chan func()
	names    atomic.Int64
	ended    chan struct{} // closed when the run is over

	brain       *brain // nil before a submission
	members     map[string]int
	readings    []*reading
	watchers    int
	followers   int          // of samples
	eventsAsked bool         // somebody has asked for events
	outputAsked bool         // somebody has asked for output
	launcher    link.Instant // when the launcher that submitted was last heard
	ticked      link.Instant // when the loop last looked at the clock
	woke        link.Instant // when it last went on after a stall; 0: never
	began       bool         // the attempt's workers are being started
	wrapping    bool
	quit        bool // there will be no run
	orphan      bool // the keeper died
	over        *report.Report
	live        liveFile
}

func newCoordinator(stateDir string, lease time.Duration, hub *link.Hub) (*Coordinator, error) {
	c := &Coordinator{
		stateDir: stateDir, lease: lease, hub: hub, disk: newDisk(), inbox: make(chan func(), 16),
		ended: make(chan struct{}), members: map[string]int{},
	}
	var err error
	c.journal, err = openJournal(stateDir, c.disk, func(err error) { go c.post(func() { c.journalFails(err) }) })
	return c, err
}

// journalFails tells who watches that others will not be able to look it up.
func (c *Coordinator) journalFails(err error) {
	if c.brain != nil {
		c.brain.warn(c.brain.hosts[0].name, "what happens is not kept there any more: %v; the run goes on, but muster status, attach and report will lack it", err)
	}
}

func (c *Coordinator) post(f func()) {
	select {
	case c.inbox <- f:
	case <-c.ended:
	}
}

// lastWait bounds how long who watches may take to hear of the end.
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
			c.lookAtClock()
			c.hubEvent(e)
		case f := <-c.inbox:
			c.lookAtClock()
			f()
		case <-ticker.C:
			c.lookAtClock()
			c.tick()
		}
		c.act()
		switch {
		case c.brain == nil && c.quit:
			return
		case c.over != nil && overAt.IsZero():
			overAt = time.Now()
		}
		if c.over != nil && (c.watchers == 0 && !c.brain.unattended && c.allLeft() || time.Since(overAt) > lastWait) {
			return
		}
	}
}

// allLeft reports whether every host has ended its link: its last words were taken in.
func (c *Coordinator) allLeft() bool {
	for i, h := range c.brain.hosts {
		// Without a keeper the agent beside this process stays as long as this process.
		if orphan := i == 0 && c.orphan; h.linked && !h.gone && !orphan {
			return false
		}
	}
	return true
}

// lookAtClock tells the brain what time it is.
func (c *Coordinator) lookAtClock() {
	if c.brain != nil {
		c.brain.now = link.Now()
	}
}

func (c *Coordinator) begin(b *brain, hosts []submission.Host) error {
	if c.brain != nil {
		return fmt.Errorf("a run was submitted already")
	}
	c.brain, c.launcher = b, link.Now()
	b.unattended = !c.eventsAsked || !c.outputAsked
	for i, h := range hosts {
		c.members[h.Name] = i
		c.hub.Admit(h.Name, h.Pin)
	}
	return nil
}

func (c *Coordinator) hubEvent(e link.Event) {
	host, ok := c.members[e.Member]
	if !ok || c.brain == nil {
		return
	}
	switch e.Kind {
	case link.Joined:
		c.brain.joined(host)
		if c.began {
			c.follow(host)
		}
	case link.Dropped:
		c.brain.dropped(host, fmt.Sprint(e.Err))
	case link.Message:
		var n message.Update
		if err := json.Unmarshal(e.Payload, &n); err != nil {
			c.brain.internal(fmt.Errorf("%s said %.80q: %w", e.Member, e.Payload, err))
			return
		}
		c.brain.news(host, n, c.hub.Own(e.Member, n.At))
	}
}

func (c *Coordinator) tick() {
	if c.brain == nil {
		return
	}
	c.noteStall(link.Now())
	if c.ticked.Sub(max(c.launcher, c.woke)) > c.lease {
		c.brain.launcherLeft()
	}
	c.brain.tick(func(host int) (link.Instant, bool) {
		last, ok := c.hub.Heard(c.brain.hosts[host].name)
		return max(last, c.woke), ok
	})
	if c.wrapping && c.allRead() {
		c.wrapping = false
		c.brain.flushed()
	}
	c.live.write(c.brain, link.Now())
}

// noteStall remembers when this process last went on after it had been stopped, or its
// machine suspended: what it did not hear meanwhile is nobody's silence. The agents' own
// counts go on, so that none of them outlives its lease.
func (c *Coordinator) noteStall(now link.Instant) {
	if c.ticked != 0 && now.Sub(c.ticked) > link.HeartbeatOf(c.lease) {
		c.woke = now
	}
	c.ticked = now
}

// allRead reports whether who reads output has it all, as far as it still comes: an agent
// that is gone, or has ended by itself, pushes nothing more.
func (c *Coordinator) allRead() bool {
	silent := func(rank int) bool {
		h := c.brain.hosts[c.brain.ranks[rank].host]
		return h.gone || h.finished
	}
	for _, r := range c.readings {
		if !r.finished(silent) {
			return false
		}
	}
	return true
}

// act carries out what the brain has decided.
func (c *Coordinator) act() {
	if c.brain == nil {
		return
	}
	for _, a := range c.brain.take() {
		switch {
		case a.send != nil:
			// A name that the hub does not know cannot occur: begin has admitted all.
			_ = c.hub.Send(c.brain.hosts[a.send.host].name, message.Encode(a.send.order))
		case a.event != nil:
			if r := a.event.Report; r != nil {
				if err := c.keepReport(r); err != nil {
					head := c.brain.hosts[0].name
					message := fmt.Sprintf("%s: the report of this run could not be kept there: %v", head, err)
					r.Warnings = append(r.Warnings, message)
					c.journal.add(event.Event{Kind: event.Warning, Attempt: a.event.Attempt, Host: head, Message: message})
				}
			}
			c.journal.add(*a.event)
		case a.began != nil && a.began.rank != everyRank:
			c.rankBegins(source{a.began.attempt, a.began.rank})
		case a.began != nil:
			c.attemptBegins()
			if c.followers > 0 {
				c.brain.sendAll(message.Command{Pace: &message.Pace{Every: followedPace}})
				defer c.act()
			}
		case a.wrap:
			c.wrapping = true
			for _, r := range c.readings {
				r.end()
			}
			if c.allRead() {
				c.wrapping = false
				c.brain.flushed()
				defer c.act()
			}
		case a.end != nil:
			c.over = a.end
		}
	}
}

// follow asks a host for the output that is read and has not ended: of the attempt in
// progress, and after a lost connection again.
func (c *Coordinator) follow(host int) {
	for _, r := range c.readings {
		c.followFor(r, host)
	}
}

func (c *Coordinator) followFor(r *reading, host int) {
	for _, attempt := range r.attempts() {
		c.askFor(r, host, attempt)
	}
}

// askFor has a host push what a reader still wants of an attempt.
func (c *Coordinator) askFor(r *reading, host, attempt int) {
	ranks := r.wanted(attempt, func(rank int) bool {
		return rank < len(c.brain.ranks) && c.brain.ranks[rank].host == host
	})
	if len(ranks) > 0 {
		_ = c.hub.Send(c.brain.hosts[host].name, message.Encode(message.Command{
			Follow: &message.Follow{Subscription: r.name, Attempt: attempt, Ranks: ranks},
		}))
	}
}

func (c *Coordinator) addReading(r *reading) {
	c.readings = slices.DeleteFunc(c.readings, (*reading).hasLeft) // for whom each task would be asked for
	c.readings = append(c.readings, r)
	if c.brain == nil || !c.began {
		return
	}
	if c.brain.places == nil {
		r.begin(c.brain.attempt, func(rank int) int64 { return r.from(c.brain.attempt, rank) })
	} else {
		c.beginAlone(r)
	}
	if c.brain.phase >= wrapping {
		r.end()
	}
	for host := range c.brain.hosts {
		c.followFor(r, host)
	}
}

// beginAlone adds what independent ranks write to a reading. Who wants the last lines only
// wants them of those that run; who has come back wants the attempts that it missed too.
func (c *Coordinator) beginAlone(r *reading) {
	for rank, from := range r.ranks {
		if rank >= len(c.brain.ranks) {
			continue
		}
		s := c.brain.ranks[rank]
		if !s.asked || s.alone.over && from == message.FromTail {
			continue
		}
		attempt := s.attempt
		if !s.alone.over && !c.brain.places.all[s.place].runs { // it waits to be started again
			attempt--
		}
		first := attempt
		if of, told := r.of[rank]; told {
			first = min(of, attempt)
		}
		for a := first; a <= attempt; a++ {
			r.add(source{a, rank}, c.brain.hosts[s.host].name, r.from(a, rank))
		}
	}
}

// rankBegins asks for the output of an independent rank's worker.
func (c *Coordinator) rankBegins(s source) {
	c.began = true
	host := c.brain.ranks[s.rank].host
	for _, r := range c.readings {
		if _, wanted := r.ranks[s.rank]; wanted {
			r.add(s, c.brain.hosts[host].name, 0)
			c.askFor(r, host, s.attempt)
		}
	}
}

// attemptBegins asks all hosts for the output of a new attempt.
func (c *Coordinator) attemptBegins() {
	first := !c.began
	c.began = true
	for _, r := range c.readings {
		r.begin(c.brain.attempt, func(rank int) int64 {
			if first {
				return max(0, r.ranks[rank])
			}
			return 0
		})
	}
	for host := range c.brain.hosts {
		for _, r := range c.readings {
			c.askFor(r, host, c.brain.attempt)
		}
	}
}

// attend lets a run begin once its launcher gets both, events and output.
func (c *Coordinator) attend() {
	if c.brain != nil && c.brain.unattended && c.eventsAsked && c.outputAsked {
		c.brain.unattended = false
		c.brain.advance()
	}
}

func (c *Coordinator) watcherLeft() {
	if c.watchers--; c.watchers == 0 && c.brain != nil {
		c.brain.launcherLeft()
	}
}

// reportWait is how long the end of a run waits for its report to be on disk.
const reportWait = 2 * time.Second

// keepReport writes the report beside the logs, whole or not at all, and after all events
// that were before. A file system that hangs may still take it later.
func (c *Coordinator) keepReport(r *report.Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic("reports are plain data, which JSON can always express: " + err.Error())
	}
	kept := make(chan error, 1)
	c.disk.do(func() { kept <- replace(filepath.Join(c.stateDir, "report.json"), append(text, '\n')) })
	if !c.disk.settle(reportWait) {
		return fmt.Errorf("the file system of %s takes nothing", c.stateDir)
	}
	return <-kept
}
