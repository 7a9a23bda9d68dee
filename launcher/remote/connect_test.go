package remote

import (
	"context"
	"sync"
)

// connectAll connects to all targets at once. Both results follow the order of the targets.
func connectAll(ctx context.Context, d *Dialer, targets []Target) ([]Host, []error) {
	hosts, errs := make([]Host, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, target := range targets {
		all.Go(func() { hosts[i], errs[i] = d.Connect(ctx, target) })
	}
	all.Wait()
	return hosts, errs
}
