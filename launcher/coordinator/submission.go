package coordinator

import (
	"errors"
	"fmt"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/rendezvous/link"
)

// MaxMessage bounds a message on the control socket, in bytes: a submission has the facts of
// all hosts, and a report a line for each of a sweep's tasks.
const MaxMessage = 256 << 20

// Submission is what a launcher hands over: all that decides the run.
type Submission struct {
	Run    string          `json:"run"`
	Source config.Source   `json:"source"`
	Hosts  []SubmittedHost `json:"hosts"`  // in the job file's order
	Digest string          `json:"digest"` // of the plan that the launcher made
	Check  string          `json:"check"`  // whether hosts are checked before the start: one of Check...
}

// Values of Submission.Check.
const (
	CheckFirst = ""     // what fails keeps the run from starting
	CheckNone  = "none" // it starts whatever checks would find
	CheckOnly  = "only" // hosts are made ready and checked, and nothing starts
)

// SubmittedHost is a host that has an agent.
type SubmittedHost struct {
	Name  string     `json:"name"`
	Pin   link.Pin   `json:"pin"`
	Facts facts.Host `json:"facts"`
	// ClockOffset is how far its clock is ahead of the launcher's, in seconds, and ClockError
	// by how much that may be wrong.
	ClockOffset float64 `json:"clock_offset"`
	ClockError  float64 `json:"clock_error"`
}

// Default range of ports for ranks to meet at, below where kernels take outgoing
// connections from.
const (
	defaultFirstPort = 20000
	defaultLastPort  = 29999
)

// plan evaluates and plans the job, and refuses when the launcher came to another plan.
func (s *Submission) plan() (*plan.Plan, settings, error) {
	job, diags := s.Source.Evaluate()
	if diags.HasErrors() {
		return nil, settings{}, diags
	}
	hosts := make([]facts.Host, len(s.Hosts))
	for i, h := range s.Hosts {
		hosts[i] = h.Facts
	}
	if len(hosts) != len(job.Hosts) {
		return nil, settings{}, fmt.Errorf("%s submitted for a job of %d", plural.Of(len(hosts), "host"), len(job.Hosts))
	}
	p, problems := plan.Make(job, hosts)
	if len(problems) > 0 {
		var all []error
		for _, problem := range problems {
			all = append(all, problem)
		}
		return nil, settings{}, errors.Join(all...)
	}
	digest, err := p.Digest()
	if err != nil {
		return nil, settings{}, err
	}
	if digest != s.Digest {
		return nil, settings{}, fmt.Errorf("launcher and coordinator came to different plans (%.12s and %.12s)", s.Digest, digest)
	}
	set := settingsOf(s.Run, job)
	set.checking = s.Check
	for _, h := range s.Hosts {
		set.pins = append(set.pins, h.Pin)
		set.clocks = append(set.clocks, clock{h.ClockOffset, h.ClockError})
	}
	return p, set, nil
}

func settingsOf(run string, job *config.Job) settings {
	s := settings{
		run: run, lease: job.Lease, stopSignal: job.Stop.Signal, grace: job.Stop.Grace, early: job.EarlyExit,
		firstPort: job.Ports.First, lastPort: job.Ports.Last, job: job,
	}
	if s.firstPort == 0 {
		s.firstPort, s.lastPort = defaultFirstPort, defaultLastPort
	}
	return s
}
