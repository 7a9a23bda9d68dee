package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/plugins"
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

func problem(problems []Problem, code string) *Problem {
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
	mustHold(t, w.Message, "m0: ranks 0-7: memory is estimated not to fit: up to 140.2 GiB of a GPU, of which 79.5 GiB are free",
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
	b.Devices.GPUs.GPUs[1].Memory.Used = ptr(uint64(60 << 30))
	p := mustMake(t, needing(t, 2, "shared = true", "parameters = \"2B\""), a, b)
	w := problem(p.Warnings, "memory_does_not_fit")
	if w == nil || w.Host != "m1" {
		t.Fatalf("warnings %v", p.Warnings)
	}
	mustHold(t, w.Message, "m1: rank 3: memory", "of which 19.5 GiB are free", "free the GPUs of what others hold there, up to 60.0 GiB")
}

func TestGroupsThatDoNotComeOutEvenLeaveMemoryUnestimated(t *testing.T) {
	p := mustMake(t, needing(t, 1, "groups = { pipeline = 4, tensor = 4 }", "parameters = \"7B\""), machine(0, 8, nvswitch))
	w := problem(p.Warnings, "memory_layout")
	if w == nil || p.Memory != nil {
		t.Fatalf("warnings %v", p.Warnings)
	}
	mustHold(t, w.Message, "make 16 ranks, and the job's 8 are no multiple")
}

func TestRanksOnOneGPUNeedItTogether(t *testing.T) {
	p := mustMake(t, needing(t, 1, "shared = true\nper_host = 4", "parameters = \"2B\"\ngradient_as_bucket_view = true"), machine(0, 1, nvswitch))
	r := p.Memory.Ranks[3]
	if r.Sharing != 4 || r.Need != 4*p.Memory.Stages[0].Least() || r.Verdict != memory.TooLarge {
		t.Errorf("%+v", r)
	}
	mustHold(t, text(p.Warnings), "of a GPU that 4 ranks share")
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
	g := &h.Devices.GPUs.GPUs[0]
	g.MIG = plugins.MIG{Enabled: ptr(true), Instances: []plugins.MIGInstance{{Index: 0, UUID: "MIG-1", Profile: "1g.10gb", Memory: ptr(uint64(10 << 30)), Used: ptr(uint64(0))}}}
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
	p := mustMake(t, needing(t, 1, "", "parameters = \"4.5B\"\ngradient_as_bucket_view = true\nactivations = \"11GiB\""), machine(0, 2, nvswitch))
	n := problem(p.Notes, "memory_tight")
	if n == nil || len(p.Warnings) > 0 {
		t.Fatalf("%s: notes %v, warnings %v", p.Memory.Verdict, p.Notes, p.Warnings)
	}
	mustHold(t, n.Message, "of which 79.5 GiB are free")
}
