package memory

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/nccl"
)

func TestSizesOfGroupsSayHowAModelIsSplit(t *testing.T) {
	for _, test := range []struct {
		name   string
		model  Model
		world  int
		groups []Group
		want   Degrees
		comms  string
	}{
		{"one rank", model(1e9), 1, nil, Degrees{1, 1, 1, 1, 1}, ""},
		{"DDP", model(1e9), 8, nil, Degrees{8, 1, 1, 1, 1}, "all ranks"},
		{"FSDP", model(1e9, strategy(FSDP)), 8, nil, Degrees{8, 8, 1, 1, 1}, "all ranks"},
		{"FSDP within hosts", model(1e9, strategy(FSDP)), 16, []Group{{"fsdp", 8}}, Degrees{16, 8, 1, 1, 1}, "all ranks, fsdp, replicas"},
		{"tensor and data", model(1e9), 8, []Group{{"tensor", 4}}, Degrees{2, 1, 4, 1, 1}, "all ranks, tensor, data"},
		{"tensor, pipeline and data", model(1e9, strategy(ZeRO1)), 32, []Group{{"pp", 4}, {"tp", 4}}, Degrees{2, 2, 4, 4, 1}, "all ranks, tp, pp, data"},
		{"tensor over all", model(1e9, strategy(Tensor)), 8, nil, Degrees{1, 1, 8, 1, 1}, "all ranks"},
		{"pipeline over what tensor leaves", model(1e9, strategy(Pipeline)), 8, []Group{{"tensor", 2}}, Degrees{1, 1, 2, 4, 1}, "all ranks, tensor, pipeline"},
		{"context", model(1e9, strategy(FSDP)), 8, []Group{{"cp", 2}}, Degrees{8, 8, 1, 1, 2}, "all ranks, cp"},
		{"a group that divides nothing", model(1e9), 8, []Group{{"island", 4}}, Degrees{8, 1, 1, 1, 1}, "all ranks, island"},
		{"groups of all ranks", model(1e9), 8, []Group{{"node", 8}, {"dp", 8}}, Degrees{8, 1, 1, 1, 1}, "all ranks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := estimate(t, test.model, Layout{World: test.world, Groups: test.groups, NCCL: true})
			if got := strings.Join(e.Communicators, ", "); e.Degrees != test.want || got != test.comms {
				t.Errorf("%+v with communicators of %s", e.Degrees, got)
			}
			least, most := nccl.Buffers(0, 0)
			n := uint64(len(e.Communicators))
			if p := e.Stages[0]; p.NCCLLeast != n*least || p.NCCLMost != n*most {
				t.Errorf("NCCL has %d to %d bytes", p.NCCLLeast, p.NCCLMost)
			}
		})
	}
}

// Only groups that the job file has are named, and the one that is to be changed first.
func TestSizesThatContradictEachOtherAreSaid(t *testing.T) {
	for _, test := range []struct {
		model  Model
		world  int
		groups []Group
		want   string
		group  string
	}{
		{model(1e9), 6, []Group{{"tensor", 4}}, "tensor = 4: the job's 6 ranks are no multiple of that", "tensor"},
		{model(1e9), 6, []Group{{"pp", 4}}, "pp = 4: the job's 6 ranks are no multiple of that", "pp"},
		{model(1e9, strategy(Tensor)), 8, []Group{{"pp", 3}}, "pp = 3: the job's 8 ranks are no multiple of that", "pp"},
		{model(1e9), 8, []Group{{"tp", 4}, {"pipeline", 4}}, "tp = 4 times pipeline = 4 are 16 ranks: the job's 8 are no multiple of that", "tp"},
		{model(1e9), 8, []Group{{"tensor", 2}, {"data", 8}}, "data = 8, but the job's 8 ranks have a data-parallel size of 4 with tensor = 2", "data"},
		{model(1e9), 8, []Group{{"dp", 4}}, "dp = 4, but the job's 8 ranks have a data-parallel size of 8", "dp"},
		{model(1e9, strategy(FSDP)), 12, []Group{{"fsdp", 8}}, "fsdp = 8 does not divide the 12 data-parallel ranks", "fsdp"},
		{model(1e9), 9, []Group{{"cp", 2}}, "cp = 2 does not divide the 9 data-parallel ranks", "cp"},
	} {
		_, err := Make(test.model, Layout{World: test.world, Groups: test.groups})
		var found *Contradiction
		if !errors.As(err, &found) || err.Error() != test.want || found.Group != test.group {
			t.Errorf("%d ranks with %v: %v, want %q", test.world, test.groups, err, test.want)
		}
	}
}

// Without a memory block nothing is known but the groups: they are named and counted the same.
func TestCommunicatorsAreTheSameWithoutAModel(t *testing.T) {
	for _, test := range []struct {
		groups []Group
		want   string
	}{
		{[]Group{{"island", 4}, {"cp", 2}, {"tensor", 2}}, "all ranks, tensor, cp, data, island"},
		{[]Group{{"tp", 3}, {"node", 6}}, "all ranks, tp, node"}, // which contradict each other
		{nil, "all ranks"},
	} {
		l := Layout{World: 8, NCCL: true, Groups: test.groups}
		if got := strings.Join(l.Communicators(), ", "); got != test.want {
			t.Errorf("%v: %s, want %s", test.groups, got, test.want)
		}
		if e, err := Make(model(1e9), l); err == nil && strings.Join(e.Communicators, ", ") != test.want {
			t.Errorf("%v: with a model %v, want %s", test.groups, e.Communicators, test.want)
		}
	}
}

func TestStagesFollowEachOtherInARowOfRanks(t *testing.T) {
	e := estimate(t, model(1e9), Layout{World: 16, Groups: []Group{{"pipeline", 4}, {"tensor", 2}}})
	var stages []int
	for _, r := range e.Ranks {
		stages = append(stages, r.Stage)
	}
	if !slices.Equal(stages, []int{0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3}) {
		t.Errorf("stages %v", stages)
	}
}

func TestRanksThatShareAGPUAddUp(t *testing.T) {
	free := uint64(100 * gi)
	l := Layout{World: 4, Cards: []Card{{Ranks: []int{0, 1, 2}, Free: &free}, {Ranks: []int{3}, Free: &free}}}
	e := estimate(t, model(2e9), l)
	alone := e.Ranks[3]
	if alone.Verdict != Fits || e.Ranks[0].Verdict != TooLarge || e.Ranks[0].Need != 3*alone.Need || e.Ranks[2].Sharing != 3 || e.Worst != 0 {
		t.Errorf("%+v", e.Ranks)
	}
}

func TestWhatIsNotToldIsNotCompared(t *testing.T) {
	e := estimate(t, model(70e9), Layout{World: 2, Cards: []Card{{Ranks: []int{0}}}})
	if e.Verdict != Unknown || len(e.Remedies) > 0 || e.Ranks[0].Need == 0 || e.Ranks[1].Sharing != 0 {
		t.Errorf("%+v", e)
	}
}

// Between what surely does not fit and what surely does lies what NCCL may take, and what
// the allocator loses.
func TestJustEnoughIsTight(t *testing.T) {
	m := model(4e9)
	need := estimate(t, m, cards(8, 1<<40)).Ranks[0]
	for _, test := range []struct {
		free uint64
		want Verdict
	}{
		{need.Need - 1, TooLarge}, {need.Need, Tight}, {need.Max, Tight}, {need.Max/usable*100 + 200, Fits},
	} {
		if e := estimate(t, m, cards(8, test.free)); e.Verdict != test.want {
			t.Errorf("needs %d to %d, %d free: %s, want %s", need.Need, need.Max, test.free, e.Verdict, test.want)
		}
	}
}

// What communication holds beside the shards: of FSDP two units and the gradients of one,
// of DeepSpeed's first stages a bucket of 500 M elements, of DDP all gradients once more.
func TestCommunicationHoldsMemoryToo(t *testing.T) {
	for _, test := range []struct {
		name  string
		model Model
		world int
		want  uint64
	}{
		{"DDP", model(4e9), 8, 8e9},
		{"DDP whose gradients are views of its buckets", model(4e9, func(m *Model) { m.BucketView = true }), 8, 0},
		{"one rank", model(4e9), 1, 0},
		{"ZeRO stage 1", model(4e9, strategy(ZeRO1)), 8, 1e9},
		{"ZeRO stage 2 of little that is trained", model(4e9, strategy(ZeRO2), lora(100e6)), 8, 2e8},
		{"FSDP of 32 units", model(3.2e9, strategy(FSDP)), 8, 6e8},
		{"FSDP of 80 units", model(80e9, strategy(FSDP)), 8, 6e9},
		{"FSDP with units that are told", model(80e9, strategy(FSDP), func(m *Model) { m.Unit = 5e8 }), 8, 3e9},
		{"FSDP of a frozen model", model(80e9, strategy(FSDP), lora(800e6)), 8, 4.02e9},
		{"FSDP on one rank", model(80e9, strategy(FSDP)), 1, 0},
	} {
		if got := estimate(t, test.model, Layout{World: test.world}).Stages[0].Gathered; got != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, got, test.want)
		}
	}
}

func TestWhatIsAssumedIsSaid(t *testing.T) {
	words := func(m Model, l Layout) string { return strings.Join(estimate(t, m, l).Assumed, "\n") }
	for _, test := range []struct {
		text string
		want []string
		not  string
	}{
		{words(model(7e9), cards(8, 79*gi)), []string{"2 for it in bf16, 2 for its gradient, 12 for adamw with a copy in fp32", "activations are not told",
			"no gradient_as_bucket_view", "the larger counts", "the step is torch's default on CUDA (foreach)", "0.2 to 0.9 GiB for each communicator (all ranks)"}, "pipeline"},
		{words(model(7e9, lora(7e6), activations(gi), func(m *Model) { m.DType = NF4 }), cards(1, 79*gi)),
			[]string{"0.516 for it in nf4, and where it is trained (then in bf16) 2 for its gradient, 12"}, "foreach"},
		{words(model(7e9, activations(40*gi)), Layout{World: 8, Groups: []Group{{"pp", 4}, {"tp", 2}, {"island", 2}}}),
			[]string{"10 of 34 parts", "with 1f1b a stage has 1 to 4 micro-batches", "island = 2 divides nothing"}, "NCCL"},
	} {
		for _, part := range test.want {
			if !strings.Contains(test.text, part) {
				t.Errorf("%q is not in:\n%s", part, test.text)
			}
		}
		if strings.Contains(test.text, test.not) {
			t.Errorf("%q is in:\n%s", test.not, test.text)
		}
	}
}
