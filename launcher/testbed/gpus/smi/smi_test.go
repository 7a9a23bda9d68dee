package smi

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// say runs the program on a machine.
func say(t *testing.T, s *gpus.Scenario, args ...string) (said string, status int) {
	t.Helper()
	folder := t.TempDir()
	if err := s.Write(folder); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	status = Run(folder, args, &out)
	return out.String(), status
}

func with(change func(*gpus.Scenario)) *gpus.Scenario {
	s := gpus.L40S()
	change(s)
	return s
}

func TestFailuresHaveTheWordsAndStatusOfTheRealProgram(t *testing.T) {
	for name, test := range map[string]struct {
		s      *gpus.Scenario
		args   []string
		says   string
		status int
	}{
		"no driver": {gpus.NoDriver(), []string{"-L"}, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9},
		"no library": {with(func(s *gpus.Scenario) { s.NoLibrary = true }), []string{"-L"},
			"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12},
		"versions that differ": {with(func(s *gpus.Scenario) { s.Init = gpus.InitMismatch }), nil, "Failed to initialize NVML: Driver/library version mismatch", 18},
		"devices of others":    {with(func(s *gpus.Scenario) { s.Init = gpus.InitNoPermission }), nil, "Failed to initialize NVML: Insufficient Permissions", 4},
		"lost device rules":    {with(func(s *gpus.Scenario) { s.Init = gpus.InitUnknown }), nil, "Failed to initialize NVML: Unknown Error", 255},
		"no GPU":               {gpus.NoGPU(), []string{"-q", "-x"}, "No devices were found", 6},
		"another's GPU":        {gpus.L40S(), []string{"-L", "-i", "7"}, "No devices were found", 6},
		"a lost GPU": {gpus.Lost(), []string{"topo", "-m"},
			"Unable to determine the device handle for GPU1: 00000000:1B:00.0: GPU is lost.  Reboot the system to recover this GPU", 15},
		"an unknown field": {gpus.L40S(), []string{"--query-gpu=gone", "--format=csv"}, `Field "gone" is not a valid field to query.`, 2},
		"no format":        {gpus.L40S(), []string{"--query-gpu=name"}, "--format=", 2},
		"unknown words":    {gpus.L40S(), []string{"--what"}, "Invalid combination of input arguments", 2},
		"a fault on purpose": {with(func(s *gpus.Scenario) {
			s.Faults = []gpus.Fault{{Function: gpus.Program, Do: "error", Error: 13}}
		}), []string{"-L"}, "", 13},
	} {
		t.Run(name, func(t *testing.T) {
			said, status := say(t, test.s, test.args...)
			if status != test.status || !strings.HasPrefix(said, test.says) && !strings.Contains(said, test.says) {
				t.Errorf("status %d, says %q; want %d, %q", status, said, test.status, test.says)
			}
		})
	}
}

func TestTopologyNamesNICsAndNodes(t *testing.T) {
	s := gpus.DGXA100()
	said, status := say(t, s, "topo", "-m")
	table, err := plaintext.ParseTopology([]byte(said))
	if status != 0 || err != nil || len(table.Problems) > 0 {
		t.Fatalf("status %d, %v, %+v", status, err, table)
	}
	if table.NICs != len(s.NICs) {
		t.Errorf("%d NICs, want %d", table.NICs, len(s.NICs))
	}
	// The row of GPU 0 on a real DGX A100, from a public issue.
	const row = "GPU0\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t48-63,176-191\t3\t\tN/A\n"
	if !strings.Contains(said, row) {
		t.Errorf("no line %q in\n%s", row, said)
	}
}

func TestQueriesAreTables(t *testing.T) {
	for name, test := range map[string]struct {
		s    *gpus.Scenario
		args []string
		want string
	}{
		"with a header and units": {gpus.Busy(), []string{"-i", "0", "--query-gpu=index,memory.used,utilization.gpu,retired_pages.sbe", "--format=csv"},
			"index, memory.used [MiB], utilization.gpu [%], retired_pages.sbe\n0, 15360 MiB, 100 %, [N/A]\n"},
		"without":   {gpus.Busy(), []string{"-i", "1,2", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"}, "1, 15360\n2, 0\n"},
		"processes": {gpus.Busy(), []string{"--query-compute-apps=pid,used_memory", "--format=csv,noheader"}, "2914771, 15360 MiB\n"},
		"lost GPUs among the rows": {gpus.Lost(), []string{"-i", "1,2", "--query-gpu=index", "--format=csv,noheader"},
			"Unable to determine the device handle for GPU1: 00000000:1B:00.0: GPU is lost.  Reboot the system to recover this GPU\n2\n"},
		"GPUs that need a reset": {gpus.NeedsReset(), []string{"-i", "2", "--query-gpu=index,memory.used", "--format=csv,noheader"}, "2, [GPU requires reset]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if said, _ := say(t, test.s, test.args...); said != test.want {
				t.Errorf("%q, want %q", said, test.want)
			}
		})
	}
}

func TestTheComputeModeIsRootsToSet(t *testing.T) {
	s, folder := gpus.L40S(), t.TempDir()
	if err := s.Write(folder); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	status := Run(folder, []string{"-i", s.GPUs[2].UUID, "-c", "EXCLUSIVE_PROCESS"}, &out)
	now, err := gpus.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	says, want, mode := "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:CD:00.0.\nAll done.\n", 0, "exclusive_process"
	if os.Geteuid() != 0 {
		says, want, mode = "Unable to set the compute mode for GPU 00000000:CD:00.0: Insufficient Permissions\n", 4, "default"
	}
	if status != want || !strings.HasPrefix(out.String(), says) {
		t.Errorf("status %d, says %q; want %d, %q", status, out.String(), want, says)
	}
	if *now.GPUs[2].ComputeMode != mode || *now.GPUs[1].ComputeMode != "default" {
		t.Errorf("modes of GPUs 2 and 1: %s, %s", *now.GPUs[2].ComputeMode, *now.GPUs[1].ComputeMode)
	}
}

func TestTheTableHasStraightEdges(t *testing.T) {
	for _, name := range gpus.Names() {
		said, status := say(t, gpus.Named(name))
		if status != 0 {
			continue
		}
		for i, line := range strings.Split(strings.TrimRight(said, "\n"), "\n")[1:] {
			if n := len([]rune(line)); n != 0 && n != 91 {
				t.Errorf("%s: line %d has %d columns: %q", name, i+1, n, line)
			}
		}
	}
}
