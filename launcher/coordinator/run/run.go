// Package run is what is known of a run and what was decided about it: its hosts, its ranks, how they ended, and
// the actions that the coordinator's loop is to carry out. Gangs, tasks and observers share it.
package run

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Phase is where the run stands. Only restarts take it back.
type Phase int

// Phases of a run.
const (
	Gathering  Phase = iota // hosts join and get ready; the launcher may still leave and take all with it
	Restarting              // between two attempts
	Running                 // committed: workers are started or run
	Stopping                // workers are being ended
	Wrapping                // all workers have ended; readers of output may finish
	Clearing                // devices are watched until they are empty
	Finishing               // hosts end
	Over
)

// Nowhere stands for no place, no host and no rank.
const Nowhere = -1

// Settings are what a run was submitted with.
type Settings struct {
	ID        string
	Job       *config.Job
	FirstPort int // of the range for MASTER_PORT
	LastPort  int
	Checking  submission.Check
	Pins      []link.Pin // of the hosts
	Clocks    []Clock    // of the hosts, against the launcher's; empty: not measured
}

// Clock is how far a host's clock is ahead of another, in seconds.
type Clock struct{ Offset, Error float64 }

// Run is the state of a run.
type Run struct {
	Settings
	Plan    *plan.Plan
	Wall    func(link.Instant) float64 // boot clock to seconds since 1970, for the report
	Meeting *rendezvous.Rendezvous
	Now     link.Instant // of what is being taken in

	Phase      Phase
	Unattended bool // the launcher does not watch the run yet, which would be over before it does
	Attempt    int
	Begun      link.Instant // when the attempt's workers were started
	Done       link.Instant // when the last of them had ended

	Hosts []*Host
	Ranks []*Rank
	At    []int // the rank that has each place of the plan, or Nowhere

	Stop     *Stop // what the user wants
	Lost     *Loss // what ends the run, beside the ends of its workers
	Refusals []Refusal
	Record   Record
	said     map[string]bool // what FindOnce has found in the attempt
	actions  []Action
}

// Record is what the report will say beside how ranks ended.
type Record struct {
	Attempts []report.Attempt // that were followed by another
	Warnings []string
	Left     []string
	Findings []report.Finding
	Observed int // counts the progress reports of workers
}

// Host is a host of the run.
type Host struct {
	*rendezvous.Member
	Software facts.Software    // that workers run with
	Environ  map[string]string // what the environment after setup says; not nil once prepared
}

// Rank is where a rank stands, or a task.
type Rank struct {
	Place    int // of Plan.Ranks; Nowhere: a task that none has taken yet
	Host     int
	Attempt  int
	Past     []report.End // of earlier attempts
	Asked    bool         // its host was told to start it
	Started  bool
	Begun    link.Instant // when it was started by itself; 0: with the attempt
	Log      string
	Ended    *message.Ended
	At       link.Instant    // when it ended
	Lost     bool            // its host is given up
	Observed *observe.Latest // the newest that its worker reported; nil: nothing
}

// Loss is a cause of the run's end that is no worker's.
type Loss struct {
	*report.Cause
	At link.Instant
}

// Refusal is why a run cannot start.
type Refusal struct {
	Host    string
	Message string
	Exit    int // status that it asks for
	Output  []byte
	Log     string
	Finding string // its code, where it is one
	Taken   bool   // another run has taken a device meanwhile
}

// New is a run at its beginning, in which each rank has the place of its number.
func New(s Settings, p *plan.Plan, wall func(link.Instant) float64) *Run {
	r := &Run{Settings: s, Plan: p, Wall: wall, said: map[string]bool{}}
	var names []string
	for _, h := range p.Hosts {
		names = append(names, h.Name)
	}
	var addresses []rendezvous.Address // nil: independent ranks do not meet
	if !p.Independent {
		addresses = make([]rendezvous.Address, len(p.Masters))
		for i, m := range p.Masters {
			addresses[i] = rendezvous.Address{IP: m.Addr, NIC: m.NIC, Passed: m.Passed}
		}
	}
	r.Meeting = rendezvous.New(names, addresses)
	for _, m := range r.Meeting.Members {
		r.Hosts = append(r.Hosts, &Host{Member: m})
	}
	for i, place := range p.Ranks {
		r.Ranks = append(r.Ranks, &Rank{Place: i, Host: place.Host})
		r.At = append(r.At, i)
	}
	return r
}

// Take hands over the actions that were decided on.
func (r *Run) Take() []Action {
	actions := r.actions
	r.actions = nil
	return actions
}

// Do decides on an action.
func (r *Run) Do(a Action) { r.actions = append(r.actions, a) }

// Send sends a command to a host.
func (r *Run) Send(host int, c message.Command) { r.Do(Action{Send: &Send{host, c}}) }

// SendAll sends a command to all hosts that are there.
func (r *Run) SendAll(c message.Command) {
	for i, h := range r.Hosts {
		if h.Present() {
			r.Send(i, c)
		}
	}
}

// Say reports an event.
func (r *Run) Say(e event.Event) {
	e.Attempt = r.Attempt
	if e.Rank != nil {
		e.Attempt = r.Ranks[*e.Rank].Attempt
	}
	r.Do(Action{Event: &e})
}

// Warn reports a warning and keeps it for the report.
func (r *Run) Warn(host, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if host != "" {
		text = host + ": " + text
	}
	r.Record.Warnings = append(r.Record.Warnings, text)
	r.Say(event.Event{Kind: event.Warning, Host: host, Message: text})
}

// Keep takes a finding into the report.
func (r *Run) Keep(f *report.Finding) {
	f.Attempt = r.Attempt
	if r.Begun != 0 {
		f.At = r.Wall(r.Now)
	}
	if f.Rank != nil && r.Begun != 0 {
		f.Attempt = r.Ranks[*f.Rank].Attempt
	}
	r.Record.Findings = append(r.Record.Findings, *f)
}

// Find takes a finding into the report and reports it.
func (r *Run) Find(f report.Finding) {
	r.Keep(&f)
	r.Say(event.Event{Kind: event.Found, Host: f.Host, Rank: f.Rank, Message: f.Words(), Finding: &f})
}

// FindOnce reports a finding as the job file grades it, at most once in an attempt under a key.
func (r *Run) FindOnce(key string, f report.Finding) {
	if r.said[key] || !r.Job.Check.AfterStart {
		return
	}
	r.said[key] = true
	r.FindGraded(f)
}

// FindGraded reports a finding as the job file grades it.
func (r *Run) FindGraded(f report.Finding) {
	for _, f := range check.Apply([]report.Finding{f}, r.Job.Check) {
		r.Find(f)
	}
}

// NextAttempt counts another attempt.
func (r *Run) NextAttempt() {
	r.Attempt++
	r.said, r.Lost, r.Phase = map[string]bool{}, nil, Restarting
	r.Meeting.NextRound()
}

// PlaceOf is what the plan has for a rank.
func (r *Run) PlaceOf(rank int) plan.Rank { return r.Plan.Ranks[r.Ranks[rank].Place] }

// PlaceOfRank is the place of a rank that a host names; Nowhere for processes of others.
func (r *Run) PlaceOfRank(rank int) int {
	if rank < 0 || rank >= len(r.Ranks) {
		return Nowhere
	}
	return r.Ranks[rank].Place
}

// IsCurrent reports whether an update about an attempt of a rank is about the one that goes on. What a host
// reports that was given up and came back is too late.
func (r *Run) IsCurrent(rank, attempt int) bool {
	k := r.Ranks[rank]
	return k.Place != Nowhere && r.At[k.Place] == rank && attempt == k.Attempt
}

// HostOf is the name of a rank's host.
func (r *Run) HostOf(rank int) string { return r.Hosts[r.Ranks[rank].Host].Name }

// RankName names a rank as the user knows it.
func (r *Run) RankName(rank int) string { return fmt.Sprintf("%s %d", r.Plan.Unit(), rank) }

// ListRanks names ranks, the first few of many.
func (r *Run) ListRanks(ranks []int) string {
	const shown = 8
	if len(ranks) == 1 {
		return r.RankName(ranks[0])
	}
	var names []string
	for _, rank := range ranks[:min(shown, len(ranks))] {
		names = append(names, fmt.Sprint(rank))
	}
	if more := len(ranks) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return r.Plan.Unit() + "s " + strings.Join(names, ", ")
}

// Since is how long an instant is after the beginning of the attempt, in seconds.
func (r *Run) Since(at link.Instant) float64 {
	if at == 0 || r.Begun == 0 {
		return 0
	}
	return at.Sub(r.Begun).Seconds()
}
