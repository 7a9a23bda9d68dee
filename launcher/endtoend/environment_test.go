//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// environ reads what dumpSelf has left of a rank's environment.
func (u *user) environOf(rank int) map[string]string {
	u.t.Helper()
	return environ(u.t, zeroEnded(u.read(fmt.Sprintf("environ-%d", rank))))
}

func environ(t testing.TB, entries []string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := env[name]; twice {
			t.Errorf("%s is in the environment twice", name)
		}
		env[name] = value
	}
	return env
}

// B22
func TestEnvironmentValuesArriveUnchanged(t *testing.T) {
	values := map[string]string{
		"P": "64(x2)", "S": "a;b", "C": "a,b", "N": "l1\nl2", "Q": `"q" 's'`, "D": "$HOME", "E": "", "U": "é", "EQ": "k=v=w",
		"B": `back\slash`, "SP": " two  spaces ", "T": "tab\t", "CR": "a\r", "G": "*", "I": "`id`", "X": "$(id)", "H": "#no", "BANG": "!!",
	}
	var env strings.Builder
	for name, value := range values {
		fmt.Fprintf(&env, "    %s = %s\n", name, hclString(value))
	}
	for _, hosts := range [][]string{nil, three} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, threeHosts(t))
			if hosts == nil {
				u.sittingAt("host-a")
			}
			u.runJob(job{
				// Of the shells only bash passes exported functions on.
				command: []string{"bash", u.file("dump.sh", fmt.Sprintf(dumpSelf, u.dir)+fmt.Sprintf("greet me >%s/greeting-$RANK\n", u.dir))},
				hosts:   hosts, perHost: 2,
				more: "env = {\n" + env.String() + "}\n" + setup(`
					greet() { echo "hello $1"; }
					export -f greet
					export FROM_SETUP='a;b "c" $(d)
second line'
					export S=overruled
				`),
			}).exits(0)
			for rank := range 2 * max(1, len(hosts)) {
				got := u.environOf(rank)
				for name, want := range values {
					if value, ok := got[name]; !ok || value != want {
						t.Errorf("rank %d has %s=%q, want %q", rank, name, value, want)
					}
				}
				if got["FROM_SETUP"] != "a;b \"c\" $(d)\nsecond line" {
					t.Errorf("rank %d has FROM_SETUP=%q", rank, got["FROM_SETUP"])
				}
				if greeting := u.read(fmt.Sprintf("greeting-%d", rank)); greeting != "hello me\n" {
					t.Errorf("rank %d cannot call the function that setup has exported: %q", rank, greeting)
				}
			}
		})
	}
}

func TestAnEnvironmentValueThatNoProgramCanHaveIsRefusedByName(t *testing.T) {
	u := newUser(t, threeHosts(t))
	path := u.write(job{script: "true", more: "env = {\n GOOD = \"x\"\n BAD = \"a\\u0000b\"\n \"not-a-name\" = \"x\"\n RANK = \"7\"\n}"})
	u.run("run", path).exits(78).says("BAD", "NUL", "not-a-name", "RANK cannot be set")
}

// setup is a setup attribute with a text as it stands.
func setup(text string) string { return "\n  setup = <<EOT\n" + text + "\nEOT\n" }

// ownVariables are what muster gives to a worker by DESIGN.md's contract.
var ownVariables = []string{
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
	"ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
	"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE",
	"TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "PYTHONUNBUFFERED", "OMP_NUM_THREADS",
	"MUSTER_RUN", "MUSTER_RANK", "MUSTER_LOCAL_RANK", "MUSTER_WORLD_SIZE", "MUSTER_ATTEMPT", "PWD", "GLOO_SOCKET_IFNAME",
}

// sessionOnly are variables of a login by SSH that a worker must not take for its host's.
var sessionOnly = []string{"SSH_CLIENT", "SSH_CONNECTION", "SHLVL", "_", "PWD", "OLDPWD", "MAIL", "MOTD_SHOWN"}

func TestAWorkersEnvironmentIsTheHostsAndTheContractAndNothingElse(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	r := u.runJob(job{script: fmt.Sprintf(dumpSelf, u.dir), hosts: three, perHost: 2, more: setup("export FROM_SETUP=1")}).exits(0)
	login := environ(t, zeroEnded(openSSH(t, bed, bed.Host("host-a"), "env -0")))
	for rank := range 6 {
		got := u.environOf(rank)
		want := maps.Clone(login)
		for _, name := range sessionOnly {
			delete(want, name)
		}
		for _, name := range append(slices.Clone(ownVariables), "FROM_SETUP") {
			if _, there := got[name]; !there {
				t.Errorf("rank %d lacks %s", rank, name)
			}
			want[name] = got[name]
		}
		for name, value := range got {
			if want[name] != value {
				t.Errorf("rank %d has %s=%q, a login has %q", rank, name, value, want[name])
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("rank %d lacks %v of the host's environment", rank, want)
		}
		checkContract(t, rank, got, r)
	}
}

// checkContract checks what torchrun's users know, for 2 ranks on each of 3 hosts.
func checkContract(t *testing.T, rank int, got map[string]string, r result) {
	t.Helper()
	for name, want := range map[string]any{
		"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 6, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": rank / 2, "GROUP_WORLD_SIZE": 3,
		"ROLE_RANK": rank, "ROLE_WORLD_SIZE": 6, "ROLE_NAME": "default", "MUSTER_RANK": rank, "MUSTER_LOCAL_RANK": rank % 2, "MUSTER_WORLD_SIZE": 6, "MUSTER_ATTEMPT": 0,
		"TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_USE_AGENT_STORE": "False",
		"TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "PYTHONUNBUFFERED": 1, "PWD": "/root",
		"TORCHELASTIC_RUN_ID": got["MUSTER_RUN"],
		// Hosts' own names resolve to 127.0.1.1, and docker's bridge is another interface.
		"GLOO_SOCKET_IFNAME": "eth0",
	} {
		if got[name] != fmt.Sprint(want) {
			t.Errorf("rank %d has %s=%q, want %v", rank, name, got[name], want)
		}
	}
	r.says(got["MUSTER_RUN"])
}

func TestSetupAndEnvWinOverDefaultsAndTheHost(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.runJob(job{
		script: fmt.Sprintf(dumpSelf, u.dir), hosts: three[:2],
		blocks: "    host \"host-a\" {\n env = { TERM_OF = host.name, BOTH = \"host\", GONE = null }\n }",
		more: `env = { OMP_NUM_THREADS = 7, BOTH = "job", GONE = "job", SHARD = rank.global % 4, LANG = "from-env" }` +
			setup("export OMP_NUM_THREADS=3 PYTHONUNBUFFERED= LANG=from-setup HOME=/elsewhere RANK=9 MASTER_ADDR=nowhere"),
	}).exits(0)
	for rank, want := range []map[string]string{
		{"OMP_NUM_THREADS": "7", "PYTHONUNBUFFERED": "", "LANG": "from-env", "HOME": "/elsewhere", "BOTH": "job", "GONE": "job", "SHARD": "0", "RANK": "0"},
		{"OMP_NUM_THREADS": "7", "PYTHONUNBUFFERED": "", "LANG": "from-env", "HOME": "/elsewhere", "BOTH": "host", "TERM_OF": "host-a", "SHARD": "1", "RANK": "1"},
	} {
		got := u.environOf(rank)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("rank %d has %s=%q, want %q", rank, name, got[name], value)
			}
		}
		if _, there := got["GONE"]; there && rank == 1 {
			t.Errorf("rank 1 has GONE, which its host takes out")
		}
		if got["MASTER_ADDR"] == "nowhere" {
			t.Error("setup has changed MASTER_ADDR")
		}
	}
}

// openSSH runs a command on a host by the client that everybody has.
func openSSH(t testing.TB, bed *testbed.Bed, h *testbed.Host, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", "-F", bed.SSHConfig, "-o", "BatchMode=yes", h.Name, command)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + bed.ClientHome}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ssh %s %s: %v", h.Name, command, err)
	}
	return string(out)
}
