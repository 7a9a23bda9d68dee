package coordinator

import (
	"errors"
	"fmt"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plural"
)

// Default range of ports for ranks to meet at, below where kernels take outgoing
// connections from.
const (
	defaultFirstPort = 20000
	defaultLastPort  = 29999
)

// planOf evaluates and plans the job, and refuses when the launcher came to another plan.
func planOf(s submission.Run) (*plan.Plan, settings, error) {
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
	p, problems := lint.Plan(job, hosts)
	if len(problems) > 0 {
		var all []error
		for _, problem := range problems {
			all = append(all, problem)
		}
		return nil, settings{}, errors.Join(all...)
	}
	digest, err := environ.Digest(p)
	if err != nil {
		return nil, settings{}, err
	}
	if digest != s.Digest {
		return nil, settings{}, fmt.Errorf("launcher and coordinator came to different plans (%.12s and %.12s)", s.Digest, digest)
	}
	set := settingsOf(s.ID, job)
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
