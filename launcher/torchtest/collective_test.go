//go:build linux

package torchtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// measured is a finding of muster check --collective --json.
type measured struct {
	Code, Severity, Host, Message string
}

// four are hosts of one rank each; each is paired with two others.
func four(t *testing.T) (*testbed.Bed, string) {
	t.Helper()
	needPrograms(t)
	bed := testbed.New(t, testbed.Options{
		Hosts: 4, Docker0: true,
		Keep: []string{filepath.Dir(filepath.Dir(programs.python)), programs.pythonHome},
	})
	path := filepath.Join(t.TempDir(), "job.hcl")
	// The clock and the memory are this machine's own.
	text := fmt.Sprintf("job \"c\" {\n  command = [%q, \"train.py\"]\n  hosts \"ssh\" {\n    names = [\"node[1-4]\"]\n  }\n  ranks { per_host = 1 }\n  ports = \"20000-29999\"\n  check { ignore = [\"shared_memory\", \"disk_full\", \"cgroup_memory\", \"cgroup_pids\", \"nofile\", \"clock_offset\"] }\n}\n", programs.python)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return bed, path
}

// collective runs the check, and returns what came of the measuring.
func collective(t *testing.T, bed *testbed.Bed, path string, status int) []measured {
	t.Helper()
	c := start(t, bed.ClientEnv(), programs.muster, "check", "--collective", "--json", path).exits(status)
	var result struct{ Findings []measured }
	if err := json.Unmarshal([]byte(c.stdout.String()), &result); err != nil {
		t.Fatalf("%v\n%s", err, c.all())
	}
	var found []measured
	for _, f := range result.Findings {
		if strings.HasPrefix(f.Code, "collective_") || strings.HasPrefix(f.Code, "compute_") {
			found = append(found, f)
		}
	}
	return found
}

// only is whether all that was found is one finding of a host, besides the rates.
func only(found []measured, code, host string) bool {
	n := 0
	for _, f := range found {
		if f.Code == code && f.Host == host {
			n++
		} else if f.Code != "collective_rate" {
			return false
		}
	}
	return n == 1
}

func TestAHostThatIsSlowOrHangsInACollectiveIsNamed(t *testing.T) {
	bed, path := four(t)
	if found := collective(t, bed, path, 0); len(found) != 1 || found[0].Code != "collective_rate" || !strings.Contains(found[0].Message, "over 4 ranks") {
		t.Errorf("four healthy hosts: %+v", found)
	}

	slow := bed.Hosts[2]
	if err := slow.SetRate(4 << 20); err != nil {
		t.Fatal(err)
	}
	if found := collective(t, bed, path, 0); !only(found, "collective_slow", slow.Name) {
		t.Errorf("with a slow %s: %+v", slow.Name, found)
	}
	if err := slow.SetRate(0); err != nil {
		t.Fatal(err)
	}

	// gloo's connections are between ports that the kernel chose; muster's and the store's
	// are not.
	silent := bed.Hosts[1]
	nft(t, silent, "table ip test {\n chain in {\n type filter hook input priority 0\n tcp sport >= 32768 tcp dport >= 32768 drop\n }\n}\n")
	began := time.Now()
	found := collective(t, bed, path, 75)
	if !only(found, "collective_hang", silent.Name) {
		t.Errorf("with %s cut off: %+v", silent.Name, found)
	}
	t.Logf("named after %v", time.Since(began))
}

// What keeps ranks from measuring is torch then, and no cable.
func TestATorchThatCannotMeasureIsNamed(t *testing.T) {
	jax := needJAX(t)
	cards, err := gpus.L40S().OnThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	bed := testbed.New(t, testbed.Options{
		Hosts: 2, Docker0: true, GPUs: cards,
		Keep: []string{filepath.Dir(filepath.Dir(programs.python)), filepath.Dir(filepath.Dir(jax)), programs.pythonHome},
	})
	for _, test := range []struct{ python, more, says string }{
		{programs.python, "", "torch cannot use CUDA on all 2 hosts: Found no NVIDIA driver"},
		{jax, "program = \"jax\"", "cannot be loaded "}, // on how many hosts is a race: the first ends the others
	} {
		path := filepath.Join(t.TempDir(), "job.hcl")
		text := fmt.Sprintf("job \"c\" {\n  command = [%q, \"train.py\"]\n  %s\n  hosts \"ssh\" {\n    names = [\"node[1-2]\"]\n  }\n  ranks {\n    devices = [0, 1]\n    shared  = true\n  }\n  check { ignore = [\"shared_memory\", \"disk_full\", \"cgroup_memory\", \"cgroup_pids\", \"nofile\", \"memlock\", \"clock_offset\"] }\n}\n", test.python, test.more)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		found := collective(t, bed, path, 75)
		if len(found) != 1 || found[0].Code != "collective_failed" || !strings.Contains(found[0].Message, test.says) {
			t.Errorf("%s: %+v", test.python, found)
		}
	}
}

// nft changes a host's own packet filter.
func nft(t *testing.T, h *testbed.Host, rules string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := filepath.Join(h.Home, "rules.nft")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, err := h.Run(ctx, "nft", "-f", filepath.Join("/root", "rules.nft")); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
}
