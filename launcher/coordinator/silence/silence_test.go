package silence

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/coordinator/watch"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/plugins/gpu"
)

// newWatch observes a run of two hosts with two GPUs each, of which the first has 1 MiB in use.
func newWatch(t *testing.T, more ...string) *Watch {
	t.Helper()
	job, diags := config.Source{Filename: "job.hcl", Text: []byte(`job "j" {
  command = ["true"]
  hosts "ssh" {
    names = ["a", "b"]
  }
` + strings.Join(more, "\n") + "\n}")}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	var hosts []facts.Host
	for i := range 2 {
		d := &facts.Devices{Inventory: &gpu.Inventory{Source: "nvml", Links: [][]gpu.Link{{"X", "NV4"}, {"NV4", "X"}}}, Near: make([]facts.Near, 2), Islands: [][]int{{0, 1}}}
		for g := range 2 {
			d.Inventory.GPUs = append(d.Inventory.GPUs, gpu.GPU{Index: g, UUID: fmt.Sprintf("GPU-%d%d000000", i, g), PCI: fmt.Sprintf("0000:0%d:00.0", g+1), State: gpu.StateOK,
				Memory: gpu.Memory{Total: new(uint64(80 << 30)), Used: new(uint64(1 << 20))}, Processes: []gpu.Process{{PID: 77, Kind: "graphics"}}})
		}
		hosts = append(hosts, facts.Host{
			System: facts.System{ID: fmt.Sprint(i)},
			Network: facts.Network{NICs: []facts.NIC{
				{Name: "eth0", Up: true, Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}},
				{Name: "eth1", Up: true, Addresses: []string{fmt.Sprintf("10.1.0.%d", i+1)}},
			}},
			Devices: d,
		})
	}
	p, problems := plan.Make(job, hosts)
	if problems != nil {
		t.Fatal(problems)
	}
	r := run.New(run.Settings{Job: job}, p, nil)
	return New(r, watch.NewMemory(r), func() plan.Meeting { return plan.Meeting{} }, !p.Independent)
}

// hangsIn has a hang of four ranks on two hosts, silent alike and at one step, whose stacks py-spy
// has taken: the innermost frame of each; "" where there is none.
func hangsIn(w *Watch, frames ...string) *report.Cause {
	a := &inquiry{stacks: map[int]message.RankStack{}}
	for rank, frame := range frames {
		a.silent = append(a.silent, hang.Seen{Pulse: hang.Pulse{Rank: rank, Age: 1000, Output: 70, Told: 70, CPU: 70, Files: 70}, Host: w.run.Hosts[rank/2].Name, Mark: observe.Nowhere})
		stack := message.RankStack{PID: 40 + rank, State: "S (sleeping)", Stdout: []byte(fmt.Sprintf("step 4 of rank %d\n\n", rank)), Stderr: []byte("12%\r 13%\r")}
		if frame != "" {
			stack.How, stack.Text, stack.File = "py-spy", "Thread 1 (idle): \"MainThread\"\n    "+frame+"\n", fmt.Sprintf("/logs/rank-%d.stacks", rank)
		}
		a.stacks[rank] = stack
	}
	return w.cause(a)
}

const waits = "all_reduce (torch/distributed/distributed_c10d.py:2806)"

func TestARankThatTheStacksShowElsewhereIsNamedAndToldOfFirst(t *testing.T) {
	c := hangsIn(newWatch(t, `hang { silence = "1m" }`), waits, waits, "work (gl.py:9)", waits)
	if c.Rank == nil || *c.Rank != 2 || !strings.Contains(c.Message, "rank 2 on b is the one to look at: by the stacks it alone is elsewhere, in work (gl.py:9)") {
		t.Errorf("%+v", c)
	}
	if !strings.HasPrefix(c.Evidence[0], "rank 2 on b") || !strings.Contains(strings.Join(c.Evidence, "\n"), "all of its stack: b:/logs/rank-2.stacks") {
		t.Errorf("%s", strings.Join(c.Evidence, "\n"))
	}
}

func TestWhatIsAdvisedOfAHangIsWhatIsNotDoneYet(t *testing.T) {
	for _, c := range []struct {
		hang   string
		frames []string
		want   string
	}{
		{"", []string{waits, waits, "work (gl.py:9)", waits}, "see why rank 2 is in work (gl.py:9)"},
		{"", []string{waits, waits, waits, waits}, "compare the stacks of the ranks; where all wait in collectives, TORCH_DISTRIBUTED_DEBUG=DETAIL"},
		{"", []string{waits, "", waits, waits}, "py-spy dump --pid 41 on a, as root, shows where rank 1 is while it hangs"},
		{"action = \"stop\"", []string{waits, "", waits, waits}, "action = \"report\" } leaves it running"},
		{"stacks = false", []string{"", "", "", ""}, "hang { stacks = true }"},
		{"", []string{"", "", "", ""}, ""}, // what the class of a hang advises: how stacks are had
	} {
		cause := hangsIn(newWatch(t, "hang {\n"+c.hang+"\n}"), c.frames...)
		if all := strings.Join(cause.Advice, "\n"); !strings.Contains(all, c.want) || c.want == "" && all != "" {
			t.Errorf("%q %q: %s", c.hang, c.frames, all)
		}
	}
}

func TestTheLastLineOfEachRankIsEvidenceOfAHang(t *testing.T) {
	c := hangsIn(newWatch(t, `hang { silence = "1m" }`), waits, waits, waits, waits)
	for rank := range 4 {
		want := fmt.Sprintf(`last line "step 4 of rank %d", last on stderr "13%%"`, rank)
		if !strings.HasPrefix(c.Evidence[rank], fmt.Sprint("rank ", rank, " on ")) || !strings.HasSuffix(c.Evidence[rank], want) {
			t.Errorf("%s lacks %s", c.Evidence[rank], want)
		}
	}
	if long := lastLine([]byte(strings.Repeat("x", 5000))); len(long) > maxLine+5 {
		t.Errorf("a long line takes %d bytes", len(long))
	}
}

func TestOfManyRanksThatHangSomeAreToldOfAndTheRestAreCounted(t *testing.T) {
	a := &inquiry{}
	w := newWatch(t, "")
	for rank := range 40 {
		a.silent = append(a.silent, hang.Seen{Pulse: hang.Pulse{Rank: rank}, Host: "a", Mark: observe.Nowhere})
	}
	lines := w.places(a, new(30))
	if len(lines) != maxPlaces+1 || lines[maxPlaces] != "and 24 more" || !strings.HasPrefix(lines[0], "rank 30 on a") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// DDP over boards that PCIe joins has no groups, and is what hangs most often.
func TestBoardsThatPCIeJoinsAreSaidOfAHangOfAnyJobThatNCCLJoins(t *testing.T) {
	for _, c := range []struct {
		link gpu.Link
		more string
		want string // "": it is not said
	}{
		{"PIX", "", "on a, b GPUs are joined by PCIe, PIX (one PCIe bridge), not by NVLink: where an IOMMU or ACS is in the way of direct access (P2P), NCCL hangs in its first collectives; nccl { p2p_disable = true }"},
		{"NV4", "", ""},
		{"PIX", "nccl {\n p2p_disable = true\n }", ""},
		{"PIX", "env = { NCCL_P2P_LEVEL = \"NVL\" }", ""},
		{"PIX", "mode = \"independent\"", ""},
		{"PIX", "ranks {\n backend = \"gloo\"\n }", ""},
	} {
		w := newWatch(t, c.more)
		for host := range 2 {
			w.run.Plan.Facts[host].Devices.Links = [][]gpu.Link{{"X", c.link}, {c.link, "X"}}
		}
		all := strings.Join(w.known(nil), "\n")
		if said := strings.Contains(all, "PCIe"); said != (c.want != "") || !strings.Contains(all, c.want) {
			t.Errorf("%s with %q: %s", c.link, c.more, all)
		}
	}
}
