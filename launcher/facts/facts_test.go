//go:build linux

package facts

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

func TestSiblingsOfOneCoreAreTogether(t *testing.T) {
	siblings := map[int]string{0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
	cores := coresOf([]int{0, 1, 4, 5}, func(c int) string { return siblings[c] })
	if !reflect.DeepEqual(cores, [][]int{{0, 4}, {1, 5}}) {
		t.Errorf("4 CPUs on 2 cores: %v", cores)
	}
	cores = coresOf([]int{0, 1}, func(int) string { return "" })
	if !reflect.DeepEqual(cores, [][]int{{0}, {1}}) {
		t.Errorf("2 CPUs of unknown cores: %v", cores)
	}
	cores = coresOf([]int{4, 5}, func(c int) string { return siblings[c] })
	if !reflect.DeepEqual(cores, [][]int{{4}, {5}}) {
		t.Errorf("a cpuset of second threads: %v", cores)
	}
}

func TestOwnNameInEtcHosts(t *testing.T) {
	hosts := "127.0.0.1 localhost\n127.0.1.1\tGPU01.site gpu01 # debian\n10.0.0.5 other\n"
	if got := addressesOf("gpu01", hosts); !slices.Equal(got, []string{"127.0.1.1"}) {
		t.Errorf("gpu01 is at %v", got)
	}
}

func TestAddressThatSSHCameTo(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1 50022 10.0.0.5 22":   "10.0.0.5",
		"fe80::1 50022 2001:db8::5 22": "2001:db8::5",
		"":                             "",
		"a b c d":                      "",
	} {
		if got := reachedAt(text); got != want {
			t.Errorf("SSH_CONNECTION %q: %q", text, got)
		}
	}
}

func TestBridgesOfContainersAreKnownByName(t *testing.T) {
	for name, virtualName := range map[string]bool{"docker0": true, "br-12ab": true, "veth1": true, "virbr0": true, "br0": false, "eth0": false, "eno1": false, "ib0": false, "bond0": false} {
		if got := virtual("", name) != ""; got != virtualName {
			t.Errorf("%s taken for virtual: %v", name, got)
		}
	}
}

func TestThisHostHasFacts(t *testing.T) {
	h := Gather("")
	if h.ID == "" || h.CPUs.Physical == 0 || len(h.CPUs.Allowed) == 0 || h.Memory == 0 || len(h.NICs) == 0 {
		t.Errorf("facts are thin: %+v", h)
	}
	if h.EphemeralPorts[0] == 0 || h.EphemeralPorts[1] <= h.EphemeralPorts[0] {
		t.Errorf("ephemeral ports %v", h.EphemeralPorts)
	}
}

func TestLogindThatWouldKillTheRunIsKnown(t *testing.T) {
	write := func(root, path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := t.TempDir()
	if got := logind(Root(root), "ann", 1000); got != (Logind{}) {
		t.Errorf("a host without logind: %+v", got)
	}
	write(root, "run/systemd/users/1000", "")
	write(root, "etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\nKillUserProcesses=no\n")
	write(root, "usr/lib/systemd/logind.conf.d/10-kill.conf", "[Login]\nKillUserProcesses=yes\n")
	for _, test := range []struct {
		user         string
		uid          int
		kill, remove bool
	}{{"ann", 1000, true, true}, {"root", 0, false, false}} {
		got := logind(Root(root), test.user, test.uid)
		if got.KillUserProcesses != test.kill || got.RemoveIPC != test.remove || got.Linger {
			t.Errorf("%s: %+v", test.user, got)
		}
	}
	write(root, "etc/systemd/logind.conf.d/10-kill.conf", "[Login]\nKillUserProcesses=no\nRemoveIPC=no\n")
	write(root, "var/lib/systemd/linger/ann", "")
	if got := logind(Root(root), "ann", 1000); got.KillUserProcesses || got.RemoveIPC || !got.Linger {
		t.Errorf("after the site's own setting: %+v", got)
	}
}

func TestAllowedCPUsAreReadOnAnyMachine(t *testing.T) {
	if got := allowedCPUs("Name:\tx\nCpus_allowed:\tf,0000000f\nCpus_allowed_list:\t0-1,1500-1501\n"); !slices.Equal(got, []int{0, 1, 1500, 1501}) {
		t.Errorf("allowed: %v", got)
	}
	if got := allowedCPUs("Name:\tx\n"); got != nil {
		t.Errorf("nobody tells, and %v are allowed", got)
	}
}
