package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

func job(t *testing.T, text string) *config.Job {
	t.Helper()
	j, diags := config.Source{Filename: "job.hcl", Text: []byte(text)}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return j
}

func host(id, addr string, cores int, nics ...facts.NIC) facts.Host {
	return facts.Host{
		System:  facts.System{ID: id, Hostname: id},
		Machine: facts.Machine{CPUs: facts.CPUs{Physical: cores}},
		Network: facts.Network{NICs: append([]facts.NIC{
			{Name: "lo", Up: true, Loopback: true, Addresses: []string{"127.0.0.1"}},
			{Name: "eth0", Up: true, Addresses: []string{addr}},
		}, nics...), HostnameAddrs: []string{"127.0.1.1"}},
	}
}

func three(t *testing.T) (*config.Job, []facts.Host) {
	return job(t, `job "j" {
  command = ["true"]
  env = { SHARD = rank.global % 4, WHERE = host.name }
  hosts "ssh" {
    names = ["host-z", "host-a", "host-m"]
    host "host-a" {
      ranks { per_host = 1 }
    }
  }
  ranks { per_host = 2 }
}`), []facts.Host{host("z", "10.0.0.9", 8), host("a", "10.0.0.5", 8), host("m", "10.0.0.1", 3)}
}

func env(t *testing.T, p *plan.Plan, rank int, m plan.Meeting) map[string]string {
	t.Helper()
	vars, err := environ.Of(p, rank, m)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	return values
}

func TestRanksFollowTheJobFilesHostOrder(t *testing.T) {
	j, hosts := three(t)
	p, problems := lint.Plan(j, hosts)
	if problems != nil {
		t.Fatal(problems)
	}
	want := [][3]int{{0, 0, 0}, {1, 1, 0}, {2, 0, 1}, {3, 0, 2}, {4, 1, 2}}
	var got [][3]int
	for _, r := range p.Ranks {
		got = append(got, [3]int{r.Rank, r.Local, r.Host})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("ranks %v, want %v", got, want)
	}
	e := env(t, p, 4, plan.Meeting{Run: "j-1", MasterAddr: "10.0.0.9", MasterPort: 20001})
	for name, value := range map[string]string{
		"RANK": "4", "LOCAL_RANK": "1", "WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "2", "GROUP_WORLD_SIZE": "3",
		"SHARD": "0", "WHERE": "host-m", "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "20001",
		"OMP_NUM_THREADS": "1", "TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_RESTART_COUNT": "0",
	} {
		if e[name] != value {
			t.Errorf("rank 4 has %s=%q, want %q", name, e[name], value)
		}
	}
	if got := env(t, p, 0, plan.Meeting{})["OMP_NUM_THREADS"]; got != "4" {
		t.Errorf("8 cores for 2 ranks give %s threads", got)
	}
}

func TestOneMachineUnderTwoNamesIsRefused(t *testing.T) {
	j, hosts := three(t)
	hosts[2].ID = hosts[0].ID
	_, problems := lint.Plan(j, hosts)
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "host-z and host-m are the same machine") {
		t.Errorf("problems: %v", problems)
	}
}

func TestTheMasterIsNeverLoopbackNorABridgeWhereThereAreSeveralHosts(t *testing.T) {
	j, hosts := three(t)
	hosts[0].NICs = append([]facts.NIC{{Name: "docker0", Up: true, Virtual: "docker's bridge", Addresses: []string{"172.17.0.1"}}}, hosts[0].NICs...)
	p, _ := lint.Plan(j, hosts)
	if c := p.Candidates(); len(c) != 1 || c[0].Addr != "10.0.0.9" {
		t.Errorf("candidates %v", c)
	}
	reasons := fmt.Sprint(p.Masters)
	for _, part := range []string{"docker's bridge", "the name z resolves to it", "loopback: other hosts"} {
		if !strings.Contains(reasons, part) {
			t.Errorf("no reason holds %q: %v", part, reasons)
		}
	}
}

func TestTheAddressThatSSHCameToIsTriedFirst(t *testing.T) {
	j, hosts := three(t)
	head := host("z", "10.0.0.9", 8, facts.NIC{Name: "ib0", Up: true, SpeedMbps: 400000, Addresses: []string{"10.9.0.9"}},
		facts.NIC{Name: "eth1", Up: true, Addresses: []string{"10.8.0.9"}})
	head.ReachedAt = "10.8.0.9"
	hosts[0] = head
	var order []string
	for _, m := range mustMake(t, j, hosts...).Candidates() {
		order = append(order, m.Addr)
	}
	if fmt.Sprint(order) != "[10.8.0.9 10.9.0.9 10.0.0.9]" {
		t.Errorf("order %v", order)
	}
}

func TestTheSocketInterfaceIsSetWhereAnotherCouldBeChosen(t *testing.T) {
	j, hosts := three(t)
	hosts[0].HostnameAddrs = []string{"10.0.0.9"}
	hosts[2].NICs = append(hosts[2].NICs, facts.NIC{Name: "ib0", Up: true, Addresses: []string{"10.9.0.1"}})
	p, _ := lint.Plan(j, hosts)
	m := plan.Meeting{MasterAddr: "10.0.0.9", Locals: []string{"10.0.0.9", "10.0.0.5", "10.0.0.1"}}
	for rank, want := range map[int]string{0: "", 2: "eth0", 3: "eth0"} {
		if got := env(t, p, rank, m)["GLOO_SOCKET_IFNAME"]; got != want {
			t.Errorf("rank %d: GLOO_SOCKET_IFNAME=%q, want %q", rank, got, want)
		}
	}
}

func TestTheSameInputGivesTheSameDigest(t *testing.T) {
	j, hosts := three(t)
	p, _ := lint.Plan(j, hosts)
	q, _ := lint.Plan(j, hosts)
	a, err := environ.Digest(p)
	b, _ := environ.Digest(q)
	if err != nil || a != b {
		t.Errorf("digests %s and %s, %v", a, b, err)
	}
	hosts[0].CPUs.Physical = 1
	r, _ := lint.Plan(j, hosts)
	if c, _ := environ.Digest(r); c == a {
		t.Error("other facts, same digest")
	}
}

func TestALogoutThatWouldHurtTheRunIsSaidBefore(t *testing.T) {
	j, hosts := three(t)
	hosts[1].Logind = facts.Logind{Session: true, KillUserProcesses: true, RemoveIPC: true}
	hosts[2].Logind = facts.Logind{Session: true, KillUserProcesses: true, Linger: true}
	p, _ := lint.Plan(j, hosts)
	if len(p.Warnings) != 2 || p.Warnings[0].Host != "host-a" || !strings.Contains(p.Warnings[0].Message, "enable-linger") {
		t.Errorf("warnings: %v", p.Warnings)
	}
}

// What is JAX's is set where it is asked for, and comes from the plan.
func TestJAXIsToldWhatItReads(t *testing.T) {
	text := "job \"j\" {\n  command = [\"x\"]\n%s\n  hosts \"ssh\" {\n    names = [\"a\", \"b\"]\n  }\n  ranks {\n    per_host = 2\n    devices = 2\n  }\n}"
	hosts := []facts.Host{machine(0, 2, nvswitch), machine(1, 2, nvswitch)}
	m := plan.Meeting{Run: "r", MasterAddr: "fd00::1", MasterPort: 20001}
	for word, want := range map[string]map[string]string{
		"": {"JAX_COORDINATOR_ADDRESS": "", "OMPI_COMM_WORLD_RANK": "", "OMPI_MCA_orte_hnp_uri": ""},
		"program = \"jax\"": {"JAX_COORDINATOR_ADDRESS": "[fd00::1]:20001", "JAX_LOCAL_DEVICE_IDS": "1", "OMPI_COMM_WORLD_SIZE": "4",
			"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_MCA_orte_hnp_uri": "muster"},
	} {
		p, problems := lint.Plan(job(t, fmt.Sprintf(text, word)), hosts)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got := env(t, p, 3, m)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("with %q %s is %q, want %q", word, name, got[name], value)
			}
		}
	}
}
