//go:build linux

package torchtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// needJAX is JAX's Python, made where it is missing.
func needJAX(t *testing.T) string {
	t.Helper()
	needPrograms(t)
	ctx, cancel := context.WithTimeout(t.Context(), setupTime)
	defer cancel()
	venv, err := output(ctx, ".ci/jax")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(venv, "bin", "python")
}

// jaxJob is a job whose four ranks meet by JAX.
func jaxJob(t *testing.T, python, script, hosts string, perHost int, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.hcl")
	text := fmt.Sprintf("job \"jax\" {\n  command = [%q, %q]\n  program = \"jax\"\n  %s\n  ranks { per_host = %d }\n  %s\n}\n", python, script, hosts, perHost, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// allMet is what four ranks say that have summed.
func allMet(c *command) {
	c.t.Helper()
	for rank := range world {
		if want := fmt.Sprintf("process %d of %d, rank %d, sum 10", rank, world, rank); !strings.Contains(c.stdout.String(), want) {
			c.t.Errorf("no rank says %q\n%s", want, c.all())
		}
	}
}

func TestJAXFindsItsProcessesWithoutArguments(t *testing.T) {
	python := needJAX(t)
	script, err := filepath.Abs("testdata/jaxmeet.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(baseEnv(t, dir), "XDG_STATE_HOME="+dir)
	allMet(start(t, env, programs.muster, "run", jaxJob(t, python, script, `hosts "local" {}`, world, "")).exits(0))
}

func TestJAXFindsItsProcessesOnSeveralHosts(t *testing.T) {
	python := needJAX(t)
	bed := testbed.New(t, testbed.Options{Hosts: 2, Keep: []string{filepath.Dir(filepath.Dir(python)), programs.pythonHome}})
	script, err := os.ReadFile("testdata/jaxmeet.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range bed.Hosts {
		if err := os.WriteFile(filepath.Join(h.Home, "meet.py"), script, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hosts := fmt.Sprintf("hosts \"ssh\" {\n    names = [%q, %q]\n  }", bed.Hosts[0].Name, bed.Hosts[1].Name)
	path := jaxJob(t, python, "meet.py", hosts, world/2, "")
	// Debian's way of naming a host keeps JAX's gloo from others; muster tells that before.
	start(t, bed.ClientEnv(), programs.muster, "check", path).exits(0).says("[name_is_loopback]")
	for _, h := range bed.Hosts {
		err := h.Do(func() error {
			return os.WriteFile("/etc/hosts", fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", h.Addr, h.Name), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	allMet(start(t, bed.ClientEnv(), programs.muster, "run", path).exits(0))
}

// The healthy twin of what is asked for: without it JAX finds nothing to meet by.
func TestWithoutTheWordJAXIsToldNothing(t *testing.T) {
	python := needJAX(t)
	dir := t.TempDir()
	env := append(baseEnv(t, dir), "XDG_STATE_HOME="+dir)
	path := jaxJob(t, python, "-c", `hosts "local" {}`, 1, "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Replace(string(text), "  program = \"jax\"\n", "", 1)
	if err := os.WriteFile(path, []byte(plain), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, env, programs.muster, "run", path, "--", "import jax; jax.distributed.initialize()").exits(1).says("coordinator_address should be defined")
}
