package launcher

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/report"
)

// MPS looks for daemons of CUDA's MPS on hosts, and ends those that runs have left.
type MPS struct {
	Hosts   []config.Host
	Connect Connector
}

// There returns what there is on the hosts, in their order. With stop what earlier runs of
// the user have left is ended; nothing else is touched.
func (m *MPS) There(ctx context.Context, stop bool) ([]facts.MPSThere, error) {
	args := []string{"mps"}
	if stop {
		args = append(args, "-stop")
	}
	found, errs := make([]facts.MPSThere, len(m.Hosts)), make([]error, len(m.Hosts))
	var all sync.WaitGroup
	for i, h := range m.Hosts {
		all.Go(func() { errs[i] = m.ask(ctx, h, args, &found[i]) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, failure(report.ExitUnreachable, "%s: %v", m.Hosts[i].Name, err)
		}
	}
	return found, nil
}

func (m *MPS) ask(ctx context.Context, h config.Host, args []string, into *facts.MPSThere) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	host, err := m.Connect(ctx, targetOf(h))
	if err != nil {
		return err
	}
	defer host.Close()
	return ask(ctx, host, args, func(line []byte) error { return json.Unmarshal(line, into) })
}
