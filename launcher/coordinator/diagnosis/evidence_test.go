package diagnosis

import (
	"testing"

	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

const gib = 1 << 30

// A worker that was gone before anybody looked ran into those that were there before it.
func TestWhoHeldADeviceBeforeTheRunIsNamedWithUserAndBytes(t *testing.T) {
	use := useInPlan(plan.Before{Total: 80 * gib, Used: 41 * gib, Holders: []gpu.Holder{{PID: 7, Bytes: new(uint64(40 * gib)), User: "bob", Command: "python"}, {PID: 8}}})
	if len(use.Processes) != 2 || use.Processes[0].User != "bob" || *use.Processes[0].Bytes != 40*gib || use.Processes[1].Bytes != nil {
		t.Errorf("%+v", use)
	}
	if use := useInPlan(plan.Before{Total: 80 * gib, Used: 41 * gib, Holders: []gpu.Holder{{PID: 7}}}); *use.Processes[0].Bytes != 41*gib {
		t.Errorf("one whose amount is not told: %+v", use)
	}
	if use := useInPlan(plan.Before{Total: 80 * gib}); use != nil {
		t.Errorf("nobody: %+v", use)
	}
}
