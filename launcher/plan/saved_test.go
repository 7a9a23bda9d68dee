package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/planfile"
)

func TestASavedPlanKnowsWhatHasChanged(t *testing.T) {
	j := on(t, 1, "")
	var saved planfile.Saved
	text, err := json.Marshal(planfile.Of(mustMake(t, j, machine(0, 4, nvswitch)), config.Source{Filename: "job.hcl"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	rebooted := machine(0, 4, nvswitch)
	rebooted.ID = "another boot"
	if d := saved.Differences(mustMake(t, j, rebooted)); d != nil {
		t.Errorf("a reboot alone is told as %v", d)
	}
	swapped := machine(0, 4, nvswitch)
	swapped.Devices.Inventory.GPUs[2].UUID = "GPU-new"
	fewer := machine(0, 3, nvswitch)
	narrowed := allow(machine(0, 4, nvswitch), 0, 1, 8, 9)
	all := strings.Join(append(append(saved.Differences(mustMake(t, j, swapped)), saved.Differences(mustMake(t, j, fewer))...),
		saved.Differences(mustMake(t, j, narrowed))...), "\n")
	mustHold(t, all, "rank 2 (m0): device GPU-new, was "+uuid(0, 2), "there are 3 ranks now, 4 in the saved plan", "rank 1 (m0): CPUs 1, was 4-7,20-23")
}

func TestASavedPlanKnowsAllDevicesOfARankThatSpreads(t *testing.T) {
	j := on(t, 1, "per_host = 1\ndevices = 2")
	saved := planfile.Of(mustMake(t, j, machine(0, 4, nvswitch)), config.Source{})
	h := machine(0, 4, nvswitch)
	h.Devices.Taken = map[string]string{uuid(0, 1): "another", uuid(0, 3): "another"}
	now := mustMake(t, j, h)
	mustHold(t, strings.Join(saved.Differences(now), "\n"), "rank 0 (m0): devices beside "+uuid(0, 2)+", was "+uuid(0, 1))
}
