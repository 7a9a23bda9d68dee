package launcher

import (
	"context"
	"fmt"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
)

// Look contacts hosts, learns their facts and starts nothing that stays.
type Look struct {
	Hosts   []config.Host
	Connect Connector
	View    View
}

// Facts returns what the hosts say of themselves, in their order; with devices, of their
// GPUs too.
func (l *Look) Facts(ctx context.Context, devices bool) ([]facts.Host, error) {
	launch := remote.Launch{Program: "muster-agent", Args: []string{"facts"}}
	if devices {
		launch.Args = append(launch.Args, "-devices")
	}
	invited := make([]invitation, len(l.Hosts))
	for i, h := range l.Hosts {
		invited[i] = invitation{name: h.Name, target: targetOf(h), launch: launch}
	}
	l.View.Phase(fmt.Sprintf("asking %d hosts", len(invited)))
	f, err := assemble(ctx, l.Connect, invited, func(n int) { l.View.HostDone(n, len(invited)) })
	if err != nil {
		return nil, err
	}
	defer f.dismiss(endWait)
	return f.facts(), nil
}

// Plan returns how a job would run on its hosts.
func (l *Look) Plan(ctx context.Context, job *config.Job) (*plan.Plan, error) {
	hosts, err := l.Facts(ctx, false)
	if err != nil {
		return nil, err
	}
	p, problems := plan.Make(job, hosts)
	if len(problems) > 0 {
		return nil, refused(problems)
	}
	return p, nil
}
