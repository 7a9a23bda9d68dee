package launcher

import (
	"context"
	"fmt"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
)

// Look contacts a job's hosts, learns their facts and plans, and starts nothing that
// stays.
type Look struct {
	Job     *config.Job
	Connect Connector
	View    View
}

// Plan returns what would run.
func (l *Look) Plan(ctx context.Context) (*plan.Plan, error) {
	invited := make([]invitation, len(l.Job.Hosts))
	for i, h := range l.Job.Hosts {
		invited[i] = invitation{name: h.Name, target: targetOf(h), launch: remote.Launch{Program: "muster-agent", Args: []string{"facts"}}}
	}
	l.View.Phase(fmt.Sprintf("asking %d hosts", len(invited)))
	f, err := assemble(ctx, l.Connect, invited, func(n int) { l.View.HostDone(n, len(invited)) })
	if err != nil {
		return nil, err
	}
	defer f.dismiss(endWait)
	p, problems := plan.Make(l.Job, f.facts())
	if len(problems) > 0 {
		return nil, refused(problems)
	}
	return p, nil
}
