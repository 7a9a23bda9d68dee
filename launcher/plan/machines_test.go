package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

func ptr[T any](v T) *T { return &v }

// uuid is that of GPU i of the machine with that number; no two begin alike.
func uuid(machine, i int) string {
	return fmt.Sprintf("GPU-%x%02x10000-1111-2222-3333-444444444444", i%16, machine)
}

// machine is a host with n GPUs of 80 GiB, the first half on NUMA node 0 and the rest on
// node 1, and 16 cores with two CPUs each. link tells the way between two GPUs.
func machine(number, n int, link func(i, j int) gpu.Link) facts.Host {
	h := host(fmt.Sprint("m", number), fmt.Sprintf("10.0.0.%d", number+1), 16)
	var nodes [2][]int
	for core := range 16 {
		h.CPUs.Cores = append(h.CPUs.Cores, []int{core, core + 16})
		nodes[core/8] = append(nodes[core/8], core, core+16)
	}
	for cpu := range 32 {
		h.CPUs.Allowed = append(h.CPUs.Allowed, cpu)
	}
	d := &facts.Devices{Inventory: &gpu.Inventory{Source: "test"}}
	for i := range n {
		node := i * 2 / max(n, 2)
		d.Inventory.GPUs = append(d.Inventory.GPUs, gpu.GPU{
			Index: i, UUID: uuid(number, i), PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i), Name: "NVIDIA H100 80GB HBM3", State: gpu.StateOK,
			Memory: gpu.Memory{Total: ptr(uint64(80 << 30)), Used: ptr(uint64(4 << 20)), Reserved: ptr(uint64(500 << 20))},
		})
		slices.Sort(nodes[node])
		d.Near = append(d.Near, facts.Near{NUMA: ptr(node), CPUs: nodes[node]})
		row := make([]gpu.Link, n)
		for j := range n {
			row[j] = "X"
			if i != j {
				row[j] = link(i, j)
			}
		}
		d.Links = append(d.Links, row)
	}
	d.Islands = gpu.Islands(d.Links)
	h.Devices = d
	return h
}

func nvswitch(int, int) gpu.Link { return "NV18" }

// pcie joins GPUs of one node by its host bridges only.
func pcie(i, j int) gpu.Link {
	if i/4 == j/4 {
		return "NODE"
	}
	return "SYS"
}

// halves are two islands of NVLink whose members alternate.
func halves(i, j int) gpu.Link {
	if i%2 == j%2 {
		return "NV4"
	}
	return "SYS"
}

// bridged are pairs 0-1, 2-3, ...
func bridged(i, j int) gpu.Link {
	if i/2 == j/2 {
		return "NV4"
	}
	return pcie(i, j)
}

// on makes a job on hosts m0, m1, ... with these lines in its ranks block.
func on(t *testing.T, hosts int, ranks string, extra ...string) *config.Job {
	t.Helper()
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("%q", fmt.Sprint("m", i)))
	}
	return job(t, fmt.Sprintf("job \"j\" {\n  command = [\"true\"]\n  hosts \"ssh\" {\n    names = [%s]\n%s\n  }\n  ranks {\n%s\n  }\n}",
		strings.Join(names, ", "), strings.Join(extra, "\n"), ranks))
}

func mustMake(t *testing.T, j *config.Job, hosts ...facts.Host) *plan.Plan {
	t.Helper()
	p, problems := lint.Plan(j, hosts)
	if len(problems) > 0 {
		t.Fatalf("refused: %v", problems)
	}
	return p
}

// refusal returns what a plan is refused with, as one text.
func refusal(t *testing.T, j *config.Job, hosts ...facts.Host) string {
	t.Helper()
	p, problems := lint.Plan(j, hosts)
	if len(problems) == 0 {
		t.Fatalf("not refused; GPUs %v", gpusOf(p))
	}
	return inWords(problems)
}

func inWords(problems []plan.Problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Message)
	}
	return strings.Join(lines, "\n")
}

func mustHold(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// gpusOf are the numbers of the ranks' GPUs, -1 for none.
func gpusOf(p *plan.Plan) []int {
	var all []int
	for _, r := range p.Ranks {
		n := -1
		if r.Device != nil {
			n = r.Device.Index
		}
		all = append(all, n)
	}
	return all
}

func wantGPUs(t *testing.T, p *plan.Plan, want ...int) {
	t.Helper()
	if got := gpusOf(p); !slices.Equal(got, want) {
		t.Errorf("ranks are on GPUs %v, want %v", got, want)
	}
}

func visible(t *testing.T, p *plan.Plan, rank int) string {
	t.Helper()
	return env(t, p, rank, plan.Meeting{})["CUDA_VISIBLE_DEVICES"]
}
