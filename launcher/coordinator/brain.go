package coordinator

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/rendezvous/link"
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
	checking   submission.Check
	pins       []link.Pin // of the hosts
	clocks     []clock    // of the hosts, against the launcher's; empty: not measured
}

// clock is how far a host's clock is ahead of another, in seconds.
type clock struct{ offset, wrong float64 }

// brain is the state of a run. Its methods take what happened, with the time on the
// coordinator's boot clock, and return what is to be done.
type brain struct {
	settings
	plan  *plan.Plan
	phase phase
	wall  func(link.Instant) float64 // boot clock to seconds since 1970, for the report
	now   link.Instant               // of what is being taken in

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
	lostAt    link.Instant
	awaited   link.Instant // since when hosts are awaited
	begun     link.Instant // when the attempt's workers were started
	done      link.Instant // when the last of them had ended
	earlySaid bool         // that some ranks have ended and others run on
	warnings  []string
	left      []string
	visiting  visiting
	checked   bool // hosts were checked
	findings  []report.Finding
	trials    trials
	places    *places      // of independent ranks; nil: ranks start and end together
	noticed   link.Instant // when a rank first failed because of another's end; 0: none has
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
	reach    map[string]link.Reach
	complete bool // every address was tried
	prepared bool
	software facts.Software    // that workers are going to run with there
	environ  map[string]string // what the environment after setup tells; not nil once prepared
	dropped  string            // why its connection ended; empty while it stands
	since    link.Instant      // when it was dropped
	gone     bool              // given up
	closed   *report.Cause     // why independent ranks are started there no more; nil: they are
	closedAt link.Instant      // since when it is lost
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
	ended   *message.Ended
	lost    bool // its host is given up
	at      link.Instant
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
	found   string // code of the finding that it is; "": none
	taken   bool   // another run has taken a device meanwhile
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
	order message.Command
}

// beginning is what is being started: all ranks, or one.
type beginning struct{ attempt, rank int }

// everyRank stands for all ranks of an attempt.
const everyRank = -1

func newBrain(s settings, p *plan.Plan, wall func(link.Instant) float64) *brain {
	b := &brain{settings: s, plan: p, master: -1, wall: wall,
		memory: memory{digests: map[int]toldDigest{}, peaks: map[int][]samples.Peak{}, said: map[string]bool{}}}
	for _, h := range p.Hosts {
		b.hosts = append(b.hosts, &hostState{name: h.Name, reach: map[string]link.Reach{}})
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

func (b *brain) send(host int, o message.Command) {
	b.actions = append(b.actions, action{send: &send{host, o}})
}

func (b *brain) sendAll(o message.Command) {
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

func (b *brain) internal(err error) {
	b.lost = &report.Cause{Class: class.Internal, Message: err.Error()}
	b.stopAll(err.Error(), false)
}
