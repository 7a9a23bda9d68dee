package coordinator

import (
	"errors"
	"fmt"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/gang"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/tasks"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Default range for MASTER_PORT, below where kernels take ports of outgoing connections from.
const (
	defaultFirstPort = 20000
	defaultLastPort  = 29999
)

// machineOf evaluates and plans a job and makes the machine of the run; it refuses when the launcher came to another
// plan.
func machineOf(s submission.Run) (machine, error) {
	job, diags := s.Source.Evaluate()
	if diags.HasErrors() {
		return nil, diags
	}
	if len(s.Hosts) != len(job.Hosts) {
		return nil, fmt.Errorf("%s submitted for a job of %d", plural.Of(len(s.Hosts), "host"), len(job.Hosts))
	}
	set := settingsOf(s.ID, job)
	set.Checking = s.Check
	hosts := make([]facts.Host, len(s.Hosts))
	for i, h := range s.Hosts {
		hosts[i] = h.Facts
		set.Pins = append(set.Pins, h.Pin)
		set.Clocks = append(set.Clocks, run.Clock{Offset: h.ClockOffset, Error: h.ClockError})
	}
	p, problems := lint.Plan(job, hosts)
	if len(problems) > 0 {
		var all []error
		for _, problem := range problems {
			all = append(all, problem)
		}
		return nil, errors.Join(all...)
	}
	digest, err := environ.Digest(p)
	if err != nil {
		return nil, err
	}
	if digest != s.Digest {
		return nil, fmt.Errorf("launcher and coordinator came to different plans (%.12s and %.12s)", s.Digest, digest)
	}
	return newMachine(set, p, wallClock), nil
}

func settingsOf(id string, job *config.Job) run.Settings {
	s := run.Settings{ID: id, Job: job, FirstPort: job.Ports.First, LastPort: job.Ports.Last}
	if s.FirstPort == 0 {
		s.FirstPort, s.LastPort = defaultFirstPort, defaultLastPort
	}
	return s
}

func newMachine(s run.Settings, p *plan.Plan, wall func(link.Instant) float64) machine {
	r := run.New(s, p, wall)
	if p.Independent {
		return tasks.New(r)
	}
	return gang.New(r)
}
