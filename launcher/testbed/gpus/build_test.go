package gpus_test

import (
	"os"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// programs builds the stand-ins.
func programs(t testing.TB) gpus.Programs {
	t.Helper()
	p, err := gpus.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// machine writes a scenario into a folder of its own, which this process and its children
// take for their machine.
func machine(t testing.TB, s *gpus.Scenario) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := s.Write(folder); err != nil {
		t.Fatal(err)
	}
	t.Setenv(gpus.Variable, folder)
	return folder
}

func TestStandInsAreBuilt(t *testing.T) {
	p := programs(t)
	for _, path := range []string{p.Library, p.NvidiaSMI, p.Worker} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v", path, err)
		}
	}
}
