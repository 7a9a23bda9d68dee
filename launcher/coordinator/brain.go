package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/rendezvous"
)

// phase is where the run stands. It only goes forward.
type phase int

const (
	gathering  phase = iota // hosts join and get ready; the launcher may still leave and take all with it
	restarting              // between two attempts: a port is taken for the next one
	running                 // committed: workers are started or run
	stopping                // workers are being ended
	wrapping                // all workers have ended; whoever reads output is let finish
	clearing                // devices are looked at until they are empty
	finishing               // hosts end
	over
)

// settings are what the job file says about how to run.
type settings struct {
	run        string
	lease      time.Duration
	stopSignal string
	grace      time.Duration
	early      config.EarlyExit
	firstPort  int
	lastPort   int
	job        *config.Job
	checking   string           // one of Check...
	pins       []rendezvous.Pin // of the hosts
	clocks     []clock          // of the hosts, against the launcher's; empty: not measured
}

// clock is how far a host's clock is ahead of another, in seconds.
type clock struct{ offset, wrong float64 }

// brain is the state of a run. Its methods take what happened, with the time on the
// coordinator's boot clock, and return what is to be done.
type brain struct {
	settings
	plan  *plan.Plan
	phase phase
	wall  func(rendezvous.Instant) float64 // boot clock to seconds since 1970, for the report
	now   rendezvous.Instant               // of what is being taken in

	hosts   []*hostState
	ranks   []*rankState
	attempt int
	master  int // index of the plan's candidates that every host reached; -1: not known yet
	port    int

	stop      *stopRequest // by the user
	again     string       // why another attempt is to follow; "" if none is
	ports     int          // attempts that ended because their port was taken
	past      []report.Attempt
	refusals  []refusal
	lost      *report.Cause // a host's loss that ends the run
	lostAt    rendezvous.Instant
	awaited   rendezvous.Instant // since when hosts are awaited
	begun     rendezvous.Instant // when the attempt's workers were started
	done      rendezvous.Instant // when the last of them had ended
	earlySaid bool               // that some ranks have ended and others run on
	warnings  []string
	left      []string
	visiting  visiting
	checked   bool // hosts were checked
	findings  []report.Finding
	trials    trials
	places    *places            // of independent ranks; nil: ranks start and end together
	noticed   rendezvous.Instant // when a rank first failed because of another's end; 0: none has
	noticedBy int
	told      int                   // news of what workers tell of themselves
	watch     *watching             // who holds the devices of the attempt; nil: nobody looks
	events    map[int][]deviceEvent // of the attempt, by host
	memory    memory
	hanging   hanging
	empty     *emptying // between an attempt's end and what follows; nil: not waited for
	looks     int       // at devices that were asked for

	// unattended is set until the launcher that has submitted the run watches it: what it
	// has not begun to look at could be over before it does.
	unattended bool
	passed     bool // checks have let the run begin
	sharing    sharing

	actions []action
}

type hostState struct {
	name     string
	linked   bool
	reach    map[string]rendezvous.Reach
	complete bool // every address was tried
	prepared bool
	software facts.Software     // that workers are going to run with there
	environ  map[string]string  // what the environment after setup tells; not nil once prepared
	dropped  string             // why its connection ended; empty while it stands
	since    rendezvous.Instant // when it was dropped
	gone     bool               // given up
	closed   *report.Cause      // why independent ranks are started there no more; nil: they are
	closedAt rendezvous.Instant // since when it is lost
	failing  string
	finished bool
}

// rankState is where a rank stands, or a task.
type rankState struct {
	place   int // of Plan.Ranks; nowhere: a task that none has taken yet
	host    int // nowhere: as place
	attempt int
	past    []report.End // of earlier attempts
	asked   bool         // its host was told to start it
	started bool
	log     string
	ended   *orders.Ended
	lost    bool // its host is given up
	at      rendezvous.Instant
	// observed is the newest that the worker has told of itself; nil where that was nothing.
	observed *observe.Latest
	alone    *unit // of an independent rank
}

// nowhere stands for a place, a host or a rank that is none.
const nowhere = -1

type stopRequest struct {
	exit   int
	reason string
	kill   bool
	drain  bool // what runs may end by itself
}

type refusal struct {
	host    string
	message string
	code    int // exit status that it asks for
	output  []byte
	log     string
	found   bool // by a check
	taken   bool // another run has taken a device meanwhile
}

// action is something that the loop is to do. One field is set.
type action struct {
	send  *send
	event *event.Event
	// began tells the loop that workers are being started, so that it asks for their output.
	began *beginning
	// wrap asks the loop to wait for who reads output, then to say flushed.
	wrap bool
	// end ends the coordinator.
	end *report.Report
}

type send struct {
	host  int
	order orders.Order
}

// beginning is what is being started: all ranks, or one.
type beginning struct{ attempt, rank int }

// everyRank stands for all ranks of an attempt.
const everyRank = -1

func newBrain(s settings, p *plan.Plan, wall func(rendezvous.Instant) float64) *brain {
	b := &brain{settings: s, plan: p, master: -1, wall: wall,
		memory: memory{digests: map[int]toldDigest{}, peaks: map[int][]samples.Peak{}, said: map[string]bool{}}}
	for _, h := range p.Hosts {
		b.hosts = append(b.hosts, &hostState{name: h.Name, reach: map[string]rendezvous.Reach{}})
	}
	if p.Independent {
		b.beginAlone()
		return b
	}
	for i, r := range p.Ranks {
		b.ranks = append(b.ranks, &rankState{place: i, host: r.Host})
	}
	return b
}

// placeOf is what the plan has for a rank.
func (b *brain) placeOf(rank int) plan.Rank { return b.plan.Ranks[b.ranks[rank].place] }

// rankWords name a rank as the user knows it.
func (b *brain) rankWords(rank int) string { return fmt.Sprintf("%s %d", b.plan.Unit(), rank) }

// take hands over the actions that have come together.
func (b *brain) take() []action {
	actions := b.actions
	b.actions = nil
	return actions
}

func (b *brain) send(host int, o orders.Order) {
	b.actions = append(b.actions, action{send: &send{host, o}})
}

func (b *brain) sendAll(o orders.Order) {
	for i, h := range b.hosts {
		if h.linked && !h.gone {
			b.send(i, o)
		}
	}
}

func (b *brain) say(e event.Event) {
	e.Attempt = b.attempt
	if e.Rank != nil {
		e.Attempt = b.ranks[*e.Rank].attempt
	}
	b.actions = append(b.actions, action{event: &e})
}

func (b *brain) warn(host, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if host != "" {
		message = host + ": " + message
	}
	b.warnings = append(b.warnings, message)
	b.say(event.Event{Kind: event.Warning, Host: host, Message: message})
}

// joined: the link to a host stands, for the first time or again.
func (b *brain) joined(host int) {
	h := b.hosts[host]
	first := !h.linked
	h.linked, h.dropped = true, ""
	if b.phase >= finishing { // too late to take part
		b.send(host, orders.Order{Finish: &orders.Finish{}})
	}
	if !first || b.phase != gathering {
		return
	}
	b.say(event.Event{Kind: event.Linked, Host: h.name, Message: h.name + " has joined"})
	if host == 0 && b.places == nil {
		b.send(0, orders.Order{HoldPort: &orders.HoldPort{Attempt: b.attempt, First: b.firstPort, Last: b.lastPort}})
	}
	b.send(host, orders.Order{Prepare: b.prepareFor(host)})
}

func (b *brain) prepareFor(host int) *orders.Prepare {
	workdir, setup := b.plan.HostScript(host)
	p := &orders.Prepare{Workdir: workdir, Setup: setup, Program: b.plan.Command[0], Python: b.plan.Python()}
	p.Devices, p.Claim = b.plan.Claims(host)
	p.Names = b.plan.HostVariables()
	return p
}

// news: an agent said something; at is when, on the own clock.
func (b *brain) news(host int, n orders.News, at rendezvous.Instant) {
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
	case n.Sight != nil:
		b.seen(host, n.Sight)
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

func (b *brain) reached(h *hostState, r *orders.Reached) {
	for _, result := range r.Results {
		h.reach[result.Addr] = result
	}
	h.complete = r.Complete
}

func (b *brain) prepared(h *hostState, p *orders.Prepared) {
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
		b.warning(h, &orders.Warning{Rank: -1, Message: fmt.Sprintf("another run of muster uses %s too", uuid)})
	}
	b.say(event.Event{Kind: event.Prepared, Host: h.name, Message: h.name + " is ready"})
}

func (b *brain) portHeld(h *hostState, p *orders.PortHeld) {
	if p.Attempt != b.attempt {
		return
	}
	if p.Error != "" {
		b.refusals = append(b.refusals, refusal{host: h.name, message: "MASTER_PORT: " + p.Error, code: report.ExitRefused})
		return
	}
	b.port = p.Port
}

func (b *brain) started(s *orders.Started) {
	r := b.ranks[s.Rank]
	r.started, r.log = true, s.Log
	b.say(event.Event{Kind: event.Started, Host: b.hosts[r.host].name, Rank: &s.Rank, PID: s.PID, Log: s.Log,
		Message: fmt.Sprintf("%s runs on %s (pid %d)", b.rankWords(s.Rank), b.hosts[r.host].name, s.PID)})
}

func (b *brain) warning(h *hostState, w *orders.Warning) {
	if w.Rank >= 0 {
		b.warn(h.name, "%s: %s", b.rankWords(w.Rank), w.Message)
		return
	}
	b.warn(h.name, "%s", w.Message)
}

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
			b.sendAll(orders.Order{Finish: &orders.Finish{}})
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
	b.say(event.Event{Kind: event.Committed, Message: fmt.Sprintf("%d ranks on %d hosts are being started", b.plan.WorldSize, len(b.hosts))})
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
	b.sendAll(orders.Order{Finish: &orders.Finish{}})
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
	b.findings = append(b.findings, unreachable(b.hosts[0].name, message))
	b.refusals = append(b.refusals, refusal{host: b.hosts[0].name, code: report.ExitUnreachable, message: message})
	return false
}

// reachOf looks a candidate up: results carry the coordinator's port too.
func (h *hostState) reachOf(addr string) (rendezvous.Reach, bool) {
	for full, r := range h.reach {
		if hostPart(full) == addr {
			return r, true
		}
	}
	return rendezvous.Reach{}, false
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
		b.send(i, orders.Order{Start: start})
	}
	b.actions = append(b.actions, action{began: &beginning{b.attempt, everyRank}})
}

// startOn is an order to start ranks on a host, with none yet.
func (b *brain) startOn(host int, m plan.Meeting) *orders.Start {
	return &orders.Start{
		Attempt: m.Attempt, Command: b.plan.CommandFor(m), Signal: b.stopSignal, Grace: b.grace,
		Watch: len(b.plan.Hosts[host].Devices) > 0, Checkpoints: b.job.Progress.Folder, Slots: b.plan.Hosts[host].Ranks,
		Observe: orders.Observe(b.job.Observe), Recorder: b.job.Hang != nil && b.plan.Backend == "nccl",
	}
}

// addRank adds a rank to an order; where that cannot be the run is ended.
func (b *brain) addRank(start *orders.Start, rank int, m plan.Meeting) bool {
	place := b.placeOf(rank)
	vars, err := b.plan.Env(place.Rank, m)
	if err != nil {
		// The plan's digest has evaluated every rank before.
		b.internal(err)
		return false
	}
	r := orders.RankStart{Rank: rank, Local: place.Local, CPUs: place.CPUs, Node: place.Node, Device: deviceOf(place), Seen: b.plan.Seen(place.Rank), Env: map[string]string{}, Defaults: map[string]string{}}
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

func (b *brain) internal(err error) {
	b.lost = &report.Cause{Class: report.ClassInternal, Message: err.Error()}
	b.stopAll(err.Error(), false)
}

// deviceOf is the UUID of a rank's device; "" where it has none.
func deviceOf(r plan.Rank) string {
	if r.Device == nil {
		return ""
	}
	return r.Device.UUID
}
