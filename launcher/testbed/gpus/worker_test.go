package gpus_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// work runs a worker to its end with these variables and arguments.
func work(t *testing.T, env []string, args ...string) (index int, said string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs(t).Worker, args...)
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var line struct{ Index int }
	if err == nil {
		if bad := json.Unmarshal(out, &line); bad != nil {
			t.Fatalf("%v: %s", bad, out)
		}
	}
	return line.Index, errs.String(), err
}

func TestWorkersTakeTheDeviceOfTheirLocalRank(t *testing.T) {
	s := gpus.L40S()
	machine(t, s)
	for _, test := range []struct {
		env  []string
		want int
	}{
		{nil, 0},
		{[]string{"LOCAL_RANK=3"}, 3},
		{[]string{"LOCAL_RANK=1", "CUDA_VISIBLE_DEVICES=2,1"}, 1},
		{[]string{"LOCAL_RANK=0", "CUDA_VISIBLE_DEVICES=" + s.GPUs[2].UUID}, 2},
	} {
		if got, said, err := work(t, test.env); err != nil || got != test.want {
			t.Errorf("%v: device %d (%v %s), want %d", test.env, got, err, said, test.want)
		}
	}
}

func TestWorkersAreRefusedInPyTorchsWords(t *testing.T) {
	prohibited := gpus.L40S()
	prohibited.GPUs[0].ComputeMode = new("prohibited")
	for name, test := range map[string]struct {
		s    *gpus.Scenario
		env  []string
		args []string
		busy int // this GPU has another worker; -1: none
		want string
	}{
		"a rank without a device":       {gpus.L40S(), []string{"LOCAL_RANK=4"}, nil, -1, "invalid device ordinal"},
		"a rank behind a cut list":      {gpus.L40S(), []string{"LOCAL_RANK=1", "CUDA_VISIBLE_DEVICES=0,9,1"}, nil, -1, "invalid device ordinal"},
		"no device at all":              {gpus.L40S(), []string{"CUDA_VISIBLE_DEVICES="}, nil, -1, "No CUDA GPUs are available"},
		"no driver":                     {gpus.NoDriver(), nil, nil, -1, "No CUDA GPUs are available"},
		"a prohibited device":           {prohibited, nil, nil, -1, "busy or unavailable"},
		"the second on an exclusive":    {gpus.Exclusive(), []string{"LOCAL_RANK=1"}, nil, 1, "busy or unavailable"},
		"more memory than is free":      {gpus.Busy(), nil, []string{"-bytes", "40GiB"}, -1, "CUDA out of memory. Tried to allocate 40.00 GiB"},
		"memory that another holds now": {gpus.L40S(), nil, []string{"-bytes", "44GiB"}, 0, "CUDA out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t, test.s)
			if test.busy >= 0 {
				hold(t, test.s.GPUs[test.busy].UUID)
			}
			if _, said, err := work(t, test.env, test.args...); err == nil || !strings.Contains(said, test.want) {
				t.Errorf("%v: %q, want %q", err, said, test.want)
			}
		})
	}
}

func TestAnExclusiveDeviceIsFreeAgainWhenItsProcessIsGone(t *testing.T) {
	machine(t, gpus.Exclusive())
	for range 2 {
		if _, said, err := work(t, nil); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
}

func TestCPUsAreSharedAmongTheNodesWithGPUsFirst(t *testing.T) {
	for _, test := range []struct {
		s    *gpus.Scenario
		cpus []int
		want string
	}{
		{gpus.DGXH100(), []int{0, 1}, "0 1"},
		{gpus.DGXH100(), []int{0, 1, 4, 5}, "0,1 4,5"},
		{gpus.DGXA100(), []int{0, 1}, " 0  1    "}, // nodes 1 and 3 are the first with GPUs
		{gpus.L40S(), []int{7}, "7 "},
	} {
		var got []string
		for _, node := range test.s.OnCPUs(test.cpus).Nodes {
			got = append(got, node.CPUs)
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s on %v: %q, want %q", test.s.Name, test.cpus, text, test.want)
		}
	}
}
