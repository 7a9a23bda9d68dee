package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

// needing makes a job on hosts m0, m1, ... with these lines in its ranks and memory blocks.
func needing(t *testing.T, hosts int, ranks, block string, extra ...string) *config.Job {
	t.Helper()
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("\"m%d\"", i))
	}
	return job(t, fmt.Sprintf("job \"j\" {\n  command = [\"true\"]\n  hosts \"ssh\" {\n    names = [%s]\n  }\n  ranks {\n%s\n  }\n  memory {\n%s\n  }\n%s\n}",
		strings.Join(names, ", "), ranks, block, strings.Join(extra, "\n")))
}

const lora70B = "parameters = \"70B\"\ntrainable = 0.003\nactivations = \"6GiB\"\n"

func problem(problems []plan.Problem, code string) *plan.Problem {
	for i, p := range problems {
		if p.Code == code {
			return &problems[i]
		}
	}
	return nil
}

func TestAJobThatWillNotFitIsWarnedOf(t *testing.T) {
	p := mustMake(t, needing(t, 1, "", lora70B), machine(0, 8, nvswitch))
	w := problem(p.Warnings, "memory_does_not_fit")
	if w == nil || w.Host != "m0" {
		t.Fatalf("warnings %v", p.Warnings)
	}
	mustHold(t, w.Message, "m0: ranks 0-7: memory is estimated not to fit: up to 140.2 GiB needed of a GPU, 79.5 GiB free: 60.7 GiB too little",
		"DDP copies parameters, gradients and optimizer state to every GPU", "more GPUs do not lower what each needs", "FSDP or ZeRO stage 3")
	p = mustMake(t, needing(t, 2, "", lora70B+"strategy = \"fsdp\""), machine(0, 4, nvswitch), machine(1, 4, nvswitch))
	if len(p.Warnings) > 0 || p.Memory.Verdict != memory.Fits {
		t.Errorf("with FSDP: %v", p.Warnings)
	}
}

func TestTheWarningOfMemoryCanBeIgnored(t *testing.T) {
	j := needing(t, 1, "", lora70B, "check { ignore = [\"memory_does_not_fit\"] }")
	if p := mustMake(t, j, machine(0, 8, nvswitch)); len(p.Warnings) > 0 || p.Memory.Verdict != memory.TooLarge {
		t.Errorf("warnings %v", p.Warnings)
	}
}

func TestOnlyRanksWhoseGPUsLackMemoryAreNamed(t *testing.T) {
	a, b := machine(0, 2, nvswitch), machine(1, 2, nvswitch)
	b.Devices.Inventory.GPUs[1].Memory.Used = ptr(uint64(60 << 30))
	p := mustMake(t, needing(t, 2, "shared = true", "parameters = \"2B\""), a, b)
	w := problem(p.Warnings, "memory_does_not_fit")
	if w == nil || w.Host != "m1" {
		t.Fatalf("warnings %v", p.Warnings)
	}
	mustHold(t, w.Message, "m1: rank 3: memory", "41.7 GiB needed of a GPU, 19.5 GiB free: 22.2 GiB too little", "free the GPUs of what others hold there, up to 60.0 GiB")
}

func TestGroupsThatDoNotComeOutEvenLeaveMemoryUnestimated(t *testing.T) {
	p := mustMake(t, needing(t, 1, "groups = { pipeline = 4, tensor = 4 }", "parameters = \"7B\""), machine(0, 8, nvswitch))
	w := problem(p.Warnings, "memory_layout")
	if w == nil || p.Memory != nil {
		t.Fatalf("warnings %v", p.Warnings)
	}
	mustHold(t, w.Message, "job.hcl:7,26-36: what ranks need of memory cannot be estimated: tensor = 4 times pipeline = 4 are 16 ranks")
}

// Groups that come of an expression have its place.
func TestAGroupThatDoesNotComeOutEvenHasAPlace(t *testing.T) {
	for ranks, want := range map[string]string{
		"groups = { tensor = 3 }":                 "job.hcl:7,12-22: what ranks need of memory cannot be estimated: tensor = 3: the job's 8 ranks are no multiple of that",
		"groups = merge({ dp = 4 }, { node = 8})": "job.hcl:7,10-40: what ranks need of memory cannot be estimated: dp = 4, but the job's 8 ranks have a data-parallel size of 8",
	} {
		p := mustMake(t, needing(t, 1, ranks, "parameters = \"7B\""), machine(0, 8, nvswitch))
		if w := problem(p.Warnings, "memory_layout"); w == nil || !strings.Contains(w.Message, want) || strings.Contains(w.Message, "pipeline") {
			t.Errorf("%s: %v", ranks, p.Warnings)
		}
	}
}

// What lacks little is told in a unit that shows it.
func TestWhatIsNeededIsToldAgainstWhatIsFree(t *testing.T) {
	h := machine(0, 1, nvswitch)
	need := mustMake(t, needing(t, 1, "", "parameters = \"2B\""), h).Memory.Ranks[0].Need
	total, reserved := need+400<<20, uint64(450<<20)
	h.Devices.Inventory.GPUs[0].Memory = gpu.Memory{Total: &total, Used: ptr(uint64(0)), Reserved: &reserved}
	p := mustMake(t, needing(t, 1, "", "parameters = \"2B\""), h)
	mustHold(t, inWords(p.Warnings), "37.7 GiB needed of a GPU, 37.7 GiB free: 50.0 MiB too little")
}

func TestWhatIsOffloadedIsComparedWithTheHostsMemory(t *testing.T) {
	const block = "parameters = \"30B\"\nstrategy = \"fsdp\"\ncpu_offload = true"
	h := machine(0, 8, nvswitch)
	h.MemoryAvailable = 900 << 30
	if p := mustMake(t, needing(t, 1, "", block), h); len(p.Warnings) > 0 || p.Memory.Offloaded.Need != 480e9 || p.Memory.Verdict != memory.Fits {
		t.Errorf("%v, %+v", p.Warnings, p.Memory.Offloaded)
	}
	h.Cgroup.Memory = ptr(uint64(400 << 30)) // a container's limit
	w := problem(mustMake(t, needing(t, 1, "", block), h).Warnings, "memory_does_not_fit")
	if w == nil || w.Host != "m0" {
		t.Fatalf("warnings %v", w)
	}
	mustHold(t, w.Message, "m0: the host's own memory is estimated to be too small for what cpu_offload leaves to it: 447.0 GiB for 8 ranks; 400.0 GiB available")
}

// Eight GPUs in two islands: a tensor group of four grows no further.
func TestTensorGroupsAreAdvisedWithinTheIslandsThatHostsHave(t *testing.T) {
	for _, test := range []struct {
		host facts.Host
		want string
	}{
		{machine(0, 8, nvswitch), "8 GPUs like these instead of 4 in larger tensor groups"},
		{machine(0, 8, halves), "8 GPUs like these instead of 4, with FSDP over more tensor groups"},
		{machine(0, 8, pcie), "8 GPUs like these instead of 4, with FSDP over more tensor groups"},
	} {
		p := mustMake(t, needing(t, 1, "devices = 4\ngroups = { tensor = 4 }", "parameters = \"25B\"\nstrategy = \"tensor\""), test.host)
		if !slices.ContainsFunc(p.Memory.Remedies, func(r memory.Remedy) bool { return r.Change == test.want }) {
			t.Errorf("no %q in %+v", test.want, p.Memory.Remedies)
		}
	}
}

// The note on NCCL's buffers and the estimate count the same communicators, by one name each.
func TestCommunicatorsAreNamedTheSameEverywhere(t *testing.T) {
	const ranks, chosen, list = "groups = { tensor = 2, cp = 2, island = 4 }", "nccl {\n  buffer_size = \"8MiB\"\n}", "(all ranks, tensor, cp, data, island)"
	p := mustMake(t, needing(t, 1, ranks, "parameters = \"1B\"", chosen), machine(0, 8, nvswitch))
	mustHold(t, strings.Join(p.Memory.Assumed, "\n"), list)
	mustHold(t, inWords(p.Notes), "this job probably has 5 "+list)
	bare := mustMake(t, job(t, "job \"j\" {\n  command = [\"true\"]\n  hosts \"ssh\" {\n    names = [\"m0\"]\n  }\n  ranks {\n"+ranks+"\n}\n"+chosen+"\n}"), machine(0, 8, nvswitch))
	mustHold(t, inWords(bare.Notes), "this job probably has 5 "+list)
}

func TestRanksOnOneGPUNeedItTogether(t *testing.T) {
	p := mustMake(t, needing(t, 1, "shared = true\nper_host = 4", "parameters = \"2B\"\ngradient_as_bucket_view = true"), machine(0, 1, nvswitch))
	r := p.Memory.Ranks[3]
	if r.Sharing != 4 || r.Need != 4*p.Memory.Stages[0].Min() || r.Verdict != memory.TooLarge {
		t.Errorf("%+v", r)
	}
	mustHold(t, inWords(p.Warnings), "needed of a GPU that 4 ranks share, ")
}

func TestARankThatSpreadsOverGPUsHasThemTogether(t *testing.T) {
	p := mustMake(t, needing(t, 1, "per_host = 2\ndevices = 8", "parameters = \"7B\""), machine(0, 8, nvswitch))
	if r := p.Memory.Ranks[1]; r.Free == nil || *r.Free != 4*(80<<30-500<<20-4<<20) {
		t.Errorf("%+v", r)
	}
	mustHold(t, strings.Join(p.Memory.Assumed, "\n"), "a rank that has several GPUs divides what it needs evenly")
}

func TestAnInstanceHasItsOwnMemory(t *testing.T) {
	h := machine(0, 1, nvswitch)
	g := &h.Devices.Inventory.GPUs[0]
	g.MIG = gpu.MIG{Enabled: ptr(true), Instances: []gpu.MIGInstance{{Index: 0, UUID: "MIG-1", Profile: "1g.10gb", Memory: ptr(uint64(10 << 30)), Used: ptr(uint64(0))}}}
	p := mustMake(t, needing(t, 1, "", "parameters = \"1B\""), h)
	if r := p.Memory.Ranks[0]; r.Free == nil || *r.Free != 10<<30 || r.Verdict != memory.TooLarge {
		t.Errorf("%+v", r)
	}
}

func TestWithoutGPUsNothingIsCompared(t *testing.T) {
	p := mustMake(t, needing(t, 1, "per_host = 2", "parameters = \"70B\""), host("m0", "10.0.0.1", 4))
	if len(p.Warnings) > 0 || problem(p.Notes, "memory_unknown") == nil || p.Memory.Stages[0].NCCLMost != 0 {
		t.Errorf("warnings %v, notes %v", p.Warnings, p.Notes)
	}
}

func TestBuffersOfNCCLAreThoseThatAreSet(t *testing.T) {
	few := mustMake(t, needing(t, 1, "", "parameters = \"1B\"", "nccl {\n  buffer_size = \"1MiB\"\n  max_ctas = 4\n}"), machine(0, 2, nvswitch))
	usual := mustMake(t, needing(t, 1, "", "parameters = \"1B\""), machine(0, 2, nvswitch))
	if a, b := few.Memory.Stages[0].NCCLLeast, usual.Memory.Stages[0].NCCLLeast; a != 4*(524288+4915200+1<<20) || b != 24*9633792 {
		t.Errorf("%d and %d bytes", a, b)
	}
}

func TestTightMemoryIsNoted(t *testing.T) {
	p := mustMake(t, needing(t, 1, "", "parameters = \"4.5B\"\ngradient_as_bucket_view = true\nfused = true\nactivations = \"11GiB\""), machine(0, 2, nvswitch))
	n := problem(p.Notes, "memory_tight")
	if n == nil || len(p.Warnings) > 0 {
		t.Fatalf("%s: notes %v, warnings %v", p.Memory.Verdict, p.Notes, p.Warnings)
	}
	mustHold(t, n.Message, "of a GPU, 79.5 GiB free")
}
