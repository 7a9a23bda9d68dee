//go:build linux

package endtoend

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// connections counts the connections that a host's sshd has taken.
func connections(t testing.TB, h *testbed.Host) int {
	t.Helper()
	log, err := os.ReadFile(h.Log())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), "Connection from")
}

func TestABadJobFileIsExplainedAndNothingIsContacted(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	before := map[string]int{}
	for _, h := range bed.Hosts {
		before[h.Name] = connections(t, h)
	}
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"unknown block", `job "t" {
  command = ["true"]
  hosts "ssh" { names = ["host-z"] }
  rank { per_host = 2 }
}`, []string{"t.hcl:4,3-", `Did you mean "ranks"?`}},
		{"unknown argument", `job "t" {
  comand = ["true"]
  hosts "ssh" { names = ["host-z"] }
}`, []string{"t.hcl:2,3-", `Did you mean "command"?`, `needs the argument "command"`}},
		{"wrong type", `job "t" {
  command = "true -x"
  hosts "ssh" { names = ["host-z"] }
}`, []string{"t.hcl:2,13-", `["true", "-x"]`}},
		{"no hosts", `job "t" {
  command = ["true"]
  hosts "ssh" { names = [] }
}`, []string{"t.hcl:3,", "names is empty"}},
		{"a host twice", `job "t" {
  command = ["true"]
  hosts "ssh" { names = ["gpu[1-3]", "root@gpu2"] }
}`, []string{"t.hcl:3,", "is the same host"}},
		{"a range that runs backwards", `job "t" {
  command = ["true"]
  hosts "ssh" { names = ["gpu[04-01]"] }
}`, []string{"t.hcl:3,"}},
		{"several at once", `job "t" {
  comand = ["true"]
  hosts "ssh" { names = ["gpu[04-01]"] }
  stop { grace = "soon" }
  env = { RANK = "1", "a-b" = "x" }
}`, []string{"t.hcl:2,", "t.hcl:3,", "t.hcl:4,", "t.hcl:5,", "RANK cannot be set", "a-b"}},
		{"not HCL at all", "\x7fELF\x02\x01\x01\x00\xff\xfe", []string{"t.hcl"}},
		{"nothing", "", []string{"t.hcl"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := u.run("run", u.file("t.hcl", c.text))
			r.t = t
			r.exits(78).says(c.says...)
			if r.stdout != "" {
				t.Errorf("standard output has %q", r.stdout)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		u.run("run", u.path("no-such.hcl")).exits(78).says("no-such.hcl")
	})
	t.Run("a folder", func(t *testing.T) {
		u.run("run", u.dir).exits(78).says(u.dir)
	})
	for _, h := range bed.Hosts {
		if n := connections(t, h); n != before[h.Name] {
			t.Errorf("%s was contacted %d times", h.Name, n-before[h.Name])
		}
	}
}

func TestABadCommandLineIsExplained(t *testing.T) {
	u := newUser(t, threeHosts(t))
	path := u.write(job{script: "touch " + u.path("ran")})
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"unknown command", []string{"rnu", path}, "run"},
		{"unknown flag", []string{"run", path, "--rnak", "3"}, "rnak"},
		{"no job file", []string{"run"}, "one job file"},
		{"two job files", []string{"run", path, path}, "one job file"},
		{"-var without a value", []string{"run", path, "-var", "lr"}, "NAME=VALUE"},
		{"--ranks without a value", []string{"run", path, "--ranks"}, "ranks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := u.run(c.args...)
			r.t = t
			r.exits(64).says(c.says, "muster: ")
		})
	}
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}

func TestHelpAndVersionAreFoundHoweverTheyAreAskedFor(t *testing.T) {
	u := newUser(t, threeHosts(t))
	for words, says := range map[string]string{"help": "COMMANDS:", "help run": "muster run -", "run --help": "muster run -", "--version": "muster ", "version": "muster "} {
		if r := u.run(strings.Fields(words)...).exits(0); !strings.Contains(r.stdout, says) {
			t.Errorf("muster %s says %q", words, r.stdout)
		}
	}
	u.run("help", "nonsense").exits(64).says("nonsense")
}

func TestOneMachineUnderTwoNamesIsRefused(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.ssh("alias-z", "HostName "+bed.Host("host-z").Addr.String())
	r := u.runJob(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "host-a", "alias-z"}}).exits(75)
	r.says("host-z and alias-z are the same machine")
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}

// keyOf is a host's line in a user's known_hosts, without the address.
func (u *user) keyOf(h *testbed.Host) string {
	u.t.Helper()
	for line := range strings.Lines(u.read(".ssh/known_hosts")) {
		if key, ok := strings.CutPrefix(line, h.Addr.String()+" "); ok {
			return key
		}
	}
	u.t.Fatalf("no key of %s is known", h.Name)
	return ""
}

func TestEachHostThatCannotTakePartIsNamedOnceAndNothingIsLeftOnTheOthers(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	a, m, z := bed.Host("host-a"), bed.Host("host-m"), bed.Host("host-z")
	silentPort, _ := silentServer(t, m)
	u.ssh("refuses", "HostName "+m.Addr.String(), "Port 9")
	u.ssh("silent", "HostName "+m.Addr.String(), "Port "+silentPort, "ConnectTimeout 1")
	u.ssh("changed", "HostName "+a.Addr.String(), "UserKnownHostsFile "+u.file(".ssh/changed", a.Addr.String()+" "+u.keyOf(z)))
	u.ssh("stranger", "HostName "+a.Addr.String(), "UserKnownHostsFile "+u.file(".ssh/empty", ""))
	u.ssh("denies", "HostName "+a.Addr.String(), "User nobody-here")
	u.ssh("full", "HostName "+m.Addr.String())
	u.ssh("arm", "HostName "+a.Addr.String())
	on(t, m, "mkdir", "-p", "/root/.cache")
	on(t, m, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/root/.cache")
	t.Cleanup(func() { on(t, m, "umount", "/root/.cache") })
	on(t, a, "mount", "--bind", u.file("arch", "riscv128\n"), "/proc/sys/kernel/arch")
	t.Cleanup(func() { on(t, a, "umount", "/proc/sys/kernel/arch") })

	hosts := []string{"host-z", "refuses", "silent", "changed", "stranger", "denies", "full", "arm"}
	r := u.runJob(job{script: "touch " + u.path("ran"), hosts: hosts}).exits(69)
	r.says("7 of 8 hosts cannot take part; nothing was started")
	for host, words := range map[string]string{
		"refuses": "refused", "silent": "said nothing", "changed": "HOST KEY CHANGED", "stranger": "is not known",
		"denies": "nobody-here", "full": "no space for a program", "arm": "riscv128",
	} {
		r.checkErrorOf(host, words)
	}
	r.saysNothingOf("host-z")
	r.says("ssh-keyscan") // the command that makes the stranger known
	if u.exists("ran") {
		t.Error("a worker was started")
	}
	if left := onHost(m, "/root/.cache/muster/bin/*"); len(left)+len(onHost(m, "/root/.cache/muster/bin/.*")) > 0 {
		t.Errorf("the upload that failed has left %q", left)
	}
}

// checkErrorOf checks that a host's error stands there once.
func (r result) checkErrorOf(host, words string) {
	r.t.Helper()
	var found []string
	for _, entry := range strings.Split(r.stderr, "\n  ")[1:] {
		if strings.HasPrefix(strings.TrimPrefix(entry, "connect to "), host+":") || strings.HasPrefix(entry, "  ") && len(found) > 0 {
			found = append(found, entry)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], words) {
		r.t.Errorf("of %s it says %q, where %q is wanted:\n%s", host, found, words, r.stderr)
	}
}

func TestASingleHostThatCannotTakePartIsExplained(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.ssh("refuses", "HostName "+u.bed.Host("host-m").Addr.String(), "Port 9")
	r := u.runJob(job{script: "true", hosts: []string{"refuses"}}).exits(69).says("refuses", "refused")
	if strings.Count(r.stderr, "refused") != 1 {
		t.Errorf("it is said more than once:\n%s", r.stderr)
	}
}

func TestHostsWithUnusualServersTakePart(t *testing.T) {
	bed := ownBed(t, testbed.Options{Hosts: 3, Names: []string{"plain", "no-forwarding", "rsa-only"}, Each: func(_ int, h *testbed.HostOptions) {
		switch h.Name {
		case "no-forwarding":
			h.SSHDConfig = []string{"AllowStreamLocalForwarding no", "AllowTcpForwarding no"}
		case "rsa-only":
			h.KnownHostKeyTypes = []string{"rsa"}
			h.Port = 2222
		}
	}})
	// The head host is the one whose sockets are needed.
	for _, head := range []string{"no-forwarding", "rsa-only"} {
		t.Run(head, func(t *testing.T) {
			u := newUser(t, bed)
			r := u.runJob(job{script: "echo here; echo there >&2", hosts: []string{head, "plain"}, perHost: 2}).exits(0)
			for rank, line := range []string{head + ":0| ", head + ":1| ", "plain:2| ", "plain:3| "} {
				if !strings.Contains(r.stdout, line+"here\n") || !strings.Contains(r.stderr, line+"there\n") {
					t.Errorf("rank %d is not shown:\n%s%s", rank, r.stdout, r.stderr)
				}
			}
		})
	}
}
