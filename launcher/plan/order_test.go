package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

func TestGroupsLieInsideIslands(t *testing.T) {
	p := mustMake(t, on(t, 1, "groups = { tensor = 4 }"), machine(0, 8, halves))
	wantGPUs(t, p, 0, 2, 4, 6, 1, 3, 5, 7)
	if len(p.Warnings) > 0 || p.Groups[1].Link != "NV4" {
		t.Errorf("groups %v, warnings %v", p.Groups, p.Warnings)
	}
	p = mustMake(t, on(t, 1, "groups = { tensor = 2 }"), machine(0, 8, bridged))
	wantGPUs(t, p, 0, 1, 2, 3, 4, 5, 6, 7)
}

func TestWithoutGroupsRanksFollowThePCIOrder(t *testing.T) {
	wantGPUs(t, mustMake(t, on(t, 1, ""), machine(0, 8, halves)), 0, 1, 2, 3, 4, 5, 6, 7)
}

func TestSomeGPUsAreTakenOfOneIsland(t *testing.T) {
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 4"), machine(0, 8, halves)), 0, 2, 4, 6)
	h := machine(0, 8, halves)
	h.Devices.Inventory.GPUs[2].Memory.Used = ptr(uint64(20 << 30))
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 4"), h), 1, 3, 5, 7)
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 3"), h), 0, 4, 6)
}

func TestAGroupOnSlowLinksIsAWarningWithItsPairOrAnError(t *testing.T) {
	p := mustMake(t, on(t, 1, "groups = { tensor = 4 }"), machine(0, 8, pcie))
	mustHold(t, inWords(p.Warnings), "m0: the tensor group of ranks 0-3 is not on fast links: rank 0's GPU 0 and rank 1's GPU 1 are joined by NODE")
	p = mustMake(t, on(t, 2, "groups = { tensor = 8 }"), machine(0, 4, nvswitch), machine(1, 4, nvswitch))
	mustHold(t, inWords(p.Warnings), "spread over hosts: rank 0 on m0 and rank 4 on m1")
	p = mustMake(t, on(t, 1, "groups = { tensor = 4 }"), machine(0, 6, nvswitch))
	mustHold(t, inWords(p.Warnings), "job.hcl:8,12-22: tensor = 4: 6 ranks cannot be parted into groups of 4")
}

// A group of four cannot have NVLink here, but its pairs can, and it is kept on one node.
func TestWhatCannotBeFastIsAsFastAsItCanBe(t *testing.T) {
	p := mustMake(t, on(t, 1, "groups = { tensor = 4, pair = 2 }"), machine(0, 8, bridged))
	for _, g := range p.Groups {
		if g.Name == "pair" && !g.Fast() || g.Name == "tensor" && g.Link != "NODE" {
			t.Errorf("group %+v", g)
		}
	}
	scattered := machine(0, 8, func(i, j int) gpu.Link { return pcie(i/2+i%2*4, j/2+j%2*4) })
	for i := range scattered.Devices.Near {
		scattered.Devices.Near[i].NUMA = ptr(i % 2)
	}
	wantGPUs(t, mustMake(t, on(t, 1, "groups = { tensor = 4 }"), scattered), 0, 2, 4, 6, 1, 3, 5, 7)
}

func TestAGroupThatBeginsOnAnotherHostIsCutWhereItIs(t *testing.T) {
	p := mustMake(t, on(t, 2, "groups = { tensor = 4 }"), machine(0, 2, nvswitch), machine(1, 6, func(i, j int) gpu.Link {
		if (i < 4) == (j < 4) {
			return "NV4"
		}
		return "SYS"
	}))
	wantGPUs(t, p, 0, 1, 4, 5, 0, 1, 2, 3)
}

// Three GPUs of one island and four of the other: the one rank that completes a group of the
// host before must not take what a whole group needs.
func TestAPartOfAGroupLeavesIslandsToWholeOnes(t *testing.T) {
	h := machine(1, 7, func(i, j int) gpu.Link {
		if (i < 4) == (j < 4) {
			return "NV4"
		}
		return "SYS"
	})
	p := mustMake(t, on(t, 2, "groups = { tensor = 3 }"), machine(0, 2, nvswitch), h)
	for _, g := range p.Groups[1:] {
		if !g.Fast() {
			t.Errorf("group %+v; GPUs %v", g, gpusOf(p))
		}
	}
}

func TestWhereLinksAreNotKnownOneNodeIsPreferred(t *testing.T) {
	h := machine(0, 4, func(i, j int) gpu.Link { return "" })
	h.Devices.Inventory.GPUs[0].State = gpu.StateLost
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 2"), h), 2, 3)
	h.Devices.Links, h.Devices.Near = nil, h.Devices.Near[:1]
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 2\ngroups = { tensor = 2 }"), h), 1, 2)
}

func TestAWrittenOrderIsKept(t *testing.T) {
	p := mustMake(t, on(t, 1, "devices = [7, 0, 5, 2]\ngroups = { tensor = 2 }"), machine(0, 8, halves))
	wantGPUs(t, p, 7, 0, 5, 2)
	mustHold(t, inWords(p.Warnings), "ranks 0-1 is not on fast links")
}

func TestRanksGetCoresOfTheirGPUsNode(t *testing.T) {
	p := mustMake(t, on(t, 1, ""), machine(0, 8, nvswitch))
	var sets []string
	for _, r := range p.Ranks {
		sets = append(sets, fmt.Sprintf("%d:%s", *r.Node, text.Ranges(r.CPUs)))
	}
	want := []string{"0:0-1,16-17", "0:2-3,18-19", "0:4-5,20-21", "0:6-7,22-23", "1:8-9,24-25", "1:10-11,26-27", "1:12-13,28-29", "1:14-15,30-31"}
	if !slices.Equal(sets, want) {
		t.Errorf("CPUs %v, want %v", sets, want)
	}
	p = mustMake(t, on(t, 1, "bind = \"none\""), machine(0, 8, nvswitch))
	if p.Ranks[0].CPUs != nil {
		t.Errorf("bound to %v", p.Ranks[0].CPUs)
	}
}

// allow narrows a host as a cpuset does.
func allow(h facts.Host, allowed ...int) facts.Host {
	h.CPUs = facts.CPUs{Allowed: allowed}
	for core := range 16 {
		var cpus []int
		for _, cpu := range []int{core, core + 16} {
			if slices.Contains(allowed, cpu) {
				cpus = append(cpus, cpu)
			}
		}
		if len(cpus) > 0 {
			h.CPUs.Cores = append(h.CPUs.Cores, cpus)
		}
	}
	h.CPUs.Physical = len(h.CPUs.Cores)
	near := slices.Clone(h.Devices.Near)
	for i := range near {
		var cpus []int
		for _, cpu := range near[i].CPUs {
			if slices.Contains(allowed, cpu) {
				cpus = append(cpus, cpu)
			}
		}
		near[i].CPUs = cpus
	}
	h.Devices.Near = near
	return h
}

func TestBindingStaysWithinTheCpuset(t *testing.T) {
	p := mustMake(t, on(t, 1, ""), allow(machine(0, 8, nvswitch), 4, 5, 6, 7))
	for i, want := range []string{"4", "5", "6", "7"} {
		if got := text.Ranges(p.Ranks[i].CPUs); got != want {
			t.Errorf("rank %d has CPUs %s, want %s", i, got, want)
		}
	}
	for _, r := range p.Ranks[4:] {
		if r.CPUs != nil || r.Node != nil {
			t.Errorf("rank %d is bound to CPUs %v of a node that is not allowed", r.Rank, r.CPUs)
		}
	}
	mustHold(t, inWords(p.Warnings), "ranks 4-7 sit on NUMA node 1, of which no CPU is allowed there (CPUs 4-7 are)")
}

func TestANodeOfUnknownSlotsIsLookedUpAndUnknownCPUsAreSaid(t *testing.T) {
	h := machine(0, 2, nvswitch)
	for i := range h.Devices.Near {
		h.Nodes = append(h.Nodes, facts.Node{ID: i, CPUs: h.Devices.Near[i].CPUs})
		h.Devices.Near[i].CPUs = nil
	}
	if got := text.Ranges(mustMake(t, on(t, 1, ""), h).Ranks[1].CPUs); got != "8-15,24-31" {
		t.Errorf("rank 1 has CPUs %s", got)
	}
	h.CPUs, h.Nodes = facts.CPUs{}, nil
	mustHold(t, inWords(mustMake(t, on(t, 1, ""), h).Warnings), "rank 0 sit on NUMA node 0, and which CPUs are allowed there is not known: they are not bound")
}

func TestMoreRanksThanCoresShareThem(t *testing.T) {
	p := mustMake(t, on(t, 1, ""), allow(machine(0, 8, nvswitch), 4, 20, 5, 8))
	for rank, want := range []string{"4-5,20", "4-5,20", "4-5,20", "4-5,20", "8", "8", "8", "8"} {
		if got := text.Ranges(p.Ranks[rank].CPUs); got != want {
			t.Errorf("rank %d has CPUs %s, want %s", rank, got, want)
		}
	}
}

func TestThreadsAreTheAllowedCoresOfARank(t *testing.T) {
	for _, test := range []struct {
		cores, ranks int
		want         string
	}{{16, 4, "4"}, {16, 5, "3"}, {2, 4, "1"}} {
		h := host("m0", "10.0.0.1", test.cores)
		p := mustMake(t, on(t, 1, fmt.Sprint("per_host = ", test.ranks)), h)
		if got := env(t, p, 0, plan.Meeting{})["OMP_NUM_THREADS"]; got != test.want {
			t.Errorf("%d ranks on %d cores have %s threads, want %s", test.ranks, test.cores, got, test.want)
		}
	}
	// Six GPUs of one node and two of the other: more threads than bound cores help nobody.
	h := machine(0, 8, nvswitch)
	for i := 4; i < 6; i++ {
		h.Devices.Near[i] = h.Devices.Near[0]
	}
	p := mustMake(t, on(t, 1, ""), h)
	if got := env(t, p, 0, plan.Meeting{})["OMP_NUM_THREADS"]; got != "1" {
		t.Errorf("a rank bound to %s has %s threads", text.Ranges(p.Ranks[0].CPUs), got)
	}
}

func TestRanksSpreadOverEquallyNearNICs(t *testing.T) {
	a, b := machine(0, 4, nvswitch), machine(1, 4, nvswitch)
	for i := range a.Devices.Near {
		a.Devices.Near[i].HCAs = []string{"mlx5_0", "mlx5_1"}
	}
	p := mustMake(t, on(t, 2, ""), a, b)
	var nics []string
	for _, r := range p.Ranks {
		nics = append(nics, r.NIC)
	}
	if want := []string{"mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1", "eth0", "eth0", "eth0", "eth0"}; !slices.Equal(nics, want) {
		t.Errorf("NICs %v, want %v", nics, want)
	}
}

func BenchmarkThousandHosts(b *testing.B) {
	var hosts []facts.Host
	for i := range 1024 {
		h := machine(i, 8, halves)
		h.ID = fmt.Sprint("host ", i)
		for g := range h.Devices.Inventory.GPUs {
			h.Devices.Inventory.GPUs[g].UUID = fmt.Sprintf("GPU-%04x%04x-0000", i, g)
		}
		hosts = append(hosts, h)
	}
	t := &testing.T{}
	j := on(t, 1024, "groups = { tensor = 4 }")
	for b.Loop() {
		p, problems := lint.Plan(j, hosts)
		if len(problems) > 0 || p.WorldSize != 8192 {
			b.Fatal(problems)
		}
	}
}

func BenchmarkEnvironmentsOfAThousandHosts(b *testing.B) {
	var hosts []facts.Host
	for i := range 1024 {
		h := machine(i, 8, nvswitch)
		h.ID = fmt.Sprint("host ", i)
		for g := range h.Devices.Inventory.GPUs {
			h.Devices.Inventory.GPUs[g].UUID = fmt.Sprintf("GPU-%04x%04x-0000", i, g)
		}
		hosts = append(hosts, h)
	}
	t := &testing.T{}
	p, problems := lint.Plan(on(t, 1024, ""), hosts)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	for b.Loop() {
		if _, err := environ.Digest(p); err != nil {
			b.Fatal(err)
		}
	}
}
