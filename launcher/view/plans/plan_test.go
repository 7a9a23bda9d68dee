package plans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// twoMachines are two HGX machines with GPUs of their own.
func twoMachines() []facts.Host {
	a, b := viewtest.EightH100(), viewtest.EightH100()
	b.ID, b.Hostname = "8e1b0a2a3b4c5d6e", "hgx02"
	for i := range b.Devices.Inventory.GPUs {
		b.Devices.Inventory.GPUs[i].UUID = fmt.Sprintf("GPU-%xc0ffee0-77aa-4f5e-9c61-0242ac1100%02x", i, i)
	}
	return []facts.Host{a, b}
}

func planOf(t *testing.T, ranks string) *plan.Plan { return planOn(t, ranks, twoMachines()) }

func planOn(t *testing.T, ranks string, hosts []facts.Host) *plan.Plan {
	t.Helper()
	return planWith(t, ranks, "", hosts)
}

// planWith is a plan of a job with another block.
func planWith(t *testing.T, ranks, block string, hosts []facts.Host) *plan.Plan {
	t.Helper()
	job, diags := config.Source{Filename: "train.hcl", Text: []byte(`job "llama" {
  command = ["python", "train.py", "--data", "a b"]
  setup   = "source ~/venv/bin/activate"
  env     = { SHARD = rank.global % 4 }
  hosts "ssh" {
    names = ["hgx01", "hgx02"]
  }
  ranks {
` + ranks + `
  }
` + block + `
}`)}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	p, problems := lint.Plan(job, hosts)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

func printedBy(t *testing.T, show func(s *terminal.Screen)) []byte {
	t.Helper()
	var out bytes.Buffer
	show(&terminal.Screen{Out: terminal.Stream{W: &out}})
	return out.Bytes()
}

// In the table stand, for each rank, what it calls its device and what nvidia-smi calls it.
func TestAPlanAsPeopleReadIt(t *testing.T) {
	for name, ranks := range map[string]string{
		"all":     "groups = { tensor = 4 }",
		"some":    "devices = [3, 5]\nvisibility = \"rank\"\ngroups = { tensor = 4 }",
		"nothing": "per_host = 2\ndevices = \"none\"",
	} {
		viewtest.Compare(t, "plan/"+name+".txt", printedBy(t, func(s *terminal.Screen) {
			if err := Plan(s, planOf(t, ranks)); err != nil {
				t.Fatal(err)
			}
		}))
	}
}

func TestWhatHoldsForAllHostsIsSaidOnce(t *testing.T) {
	hosts := twoMachines()
	for _, h := range hosts {
		for i := range h.Devices.Inventory.GPUs {
			h.Devices.Inventory.GPUs[i].ComputeMode = new("exclusive_process")
		}
	}
	text := string(printedBy(t, func(s *terminal.Screen) { _ = Plan(s, planOn(t, "", hosts)) }))
	if n := strings.Count(text, "exclusive process"); n != 1 || !strings.Contains(text, "LOCAL_RANK is 0, MUSTER_LOCAL_RANK the real one") {
		t.Errorf("said %d times:\n%s", n, text)
	}
}

func TestOneHostAwaitsNoOther(t *testing.T) {
	var b strings.Builder
	masterLines(&b, &plan.Plan{Hosts: []plan.Host{{Name: "a"}}, Masters: []plan.Master{{Addr: "127.0.0.1", NIC: "lo"}}})
	if b.String() != "ranks meet at 127.0.0.1\n" {
		t.Errorf("it says %q", b.String())
	}
}

func TestDevicesThatTellLittleStillFillTheTable(t *testing.T) {
	for uuid, want := range map[string]string{"GPU-c3f0c2a9-77aa": "GPU-c3f0c2a9", "0x1f2e": "0x1f2e", "": "-"} {
		if got := shortUUID(uuid); got != want {
			t.Errorf("%q is shown as %q, want %q", uuid, got, want)
		}
	}
}

func TestARanksEnvironmentAsPeopleReadIt(t *testing.T) {
	p := planOf(t, "devices = [3, 5]")
	vars, err := environ.Whole(p, 3, plan.Meeting{}, map[string]string{
		"HOME": "/home/ann", "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "7", "SHARD": "9", "EVIL": "\x1b[2J",
	})
	if err != nil {
		t.Fatal(err)
	}
	e := RankEnv{Plan: p, Rank: 3, Vars: vars}
	text := printedBy(t, func(s *terminal.Screen) { PlanEnv(s, e) })
	viewtest.Compare(t, "plan/env.txt", text)
	if bytes.ContainsRune(text, 0x1b) {
		t.Error("the terminal is told what a host says")
	}
	var out bytes.Buffer
	if err := PlanEnvJSON(&out, e); err != nil {
		t.Fatal(err)
	}
	viewtest.Compare(t, "plan/env.json", out.Bytes())
}

func TestAPlansJSONIsAContract(t *testing.T) {
	var out bytes.Buffer
	if err := PlanJSON(&out, planOf(t, "devices = [3, 5]\ngroups = { tensor = 4 }")); err != nil {
		t.Fatal(err)
	}
	viewtest.Compare(t, "plan/contract.json", out.Bytes())
	var p map[string]any
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
}

func TestWhatDiffersIsShownWithWhoHasIt(t *testing.T) {
	hosts := twoMachines()
	hosts[1].Devices.Driver = pointer("535.10")
	job, diags := config.Source{Filename: "t.hcl", Text: []byte(`job "t" {
  command = ["true"]
  env     = { SHARD = rank.global % 2 }
  hosts "ssh" {
    names = ["hgx01", "hgx02"]
  }
  ranks { devices = [3, 5] }
}`)}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	p, problems := lint.Plan(job, hosts)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	text := string(printedBy(t, func(s *terminal.Screen) {
		if err := PlanDiff(s, p); err != nil {
			t.Fatal(err)
		}
	}))
	for _, part := range []string{"driver\n    hgx02: 535.10\n    hgx01: 550.54.15\n", "SHARD\n    ranks 0,2: 0\n    ranks 1,3: 1\n", "CUDA_VISIBLE_DEVICES\n    ranks 2-3: GPU-"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
	if strings.Contains(text, "LOCAL_RANK") {
		t.Errorf("what must differ is shown:\n%s", text)
	}
}

func pointer[T any](v T) *T { return &v }
