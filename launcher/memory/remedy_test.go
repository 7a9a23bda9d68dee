package memory

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/internal/text"
)

func find(t *testing.T, e *Estimate, words string) Remedy {
	t.Helper()
	for _, r := range e.Remedies {
		if strings.Contains(r.Change, words) {
			return r
		}
	}
	t.Fatalf("no remedy has %q: %+v", words, e.Remedies)
	return Remedy{}
}

// Whoever does what a remedy says and writes it into the job file comes to its numbers.
func TestARemedysNumbersAreThoseOfTheChangedJob(t *testing.T) {
	base := model(13e9, activations(60*gi), func(m *Model) { m.MicroBatch = 8 })
	base.Trainable = base.Parameters
	for words, change := range map[string]func(*Model, *Layout){
		"gradient_as_bucket_view":                         func(m *Model, _ *Layout) { m.BucketView = true },
		"micro-batches of 1 sample instead of 8, 8 times": func(m *Model, _ *Layout) { m.Activations /= 8 },
		"checkpointing":                                   func(m *Model, _ *Layout) { m.Activations = m.Activations / 100 * 30 },
		"8-bit":                                           func(m *Model, _ *Layout) { m.Optimizer = AdamW8bit },
		"CPUOffload":                                      func(m *Model, _ *Layout) { m.Strategy, m.CPUOffload = FSDP, true },
		"ZeRO stage 1":                                    func(m *Model, _ *Layout) { m.Strategy = ZeRO1 },
		"ZeRO stage 2":                                    func(m *Model, _ *Layout) { m.Strategy = ZeRO2 },
		"FSDP":                                            func(m *Model, _ *Layout) { m.Strategy = FSDP },
		"LoRA: 1% of":                                     func(m *Model, _ *Layout) { m.Trainable = 130e6 },
	} {
		t.Run(words, func(t *testing.T) {
			l := cards(8, 79*gi)
			got := find(t, estimate(t, base, l), words)
			m := base
			change(&m, &l)
			if want := estimate(t, m, l); got.Need != want.Ranks[0].Need || got.Max != want.Ranks[0].Max || got.Fits != (want.Verdict == Fits) || got.Free != 79*gi {
				t.Errorf("%+v, but %+v is %s", got, want.Ranks[0], want.Verdict)
			}
		})
	}
}

func TestMoreGPUsHelpWhatIsSharded(t *testing.T) {
	m := model(70e9, strategy(FSDP), activations(10*gi))
	r := find(t, estimate(t, m, cards(8, 79*gi)), "GPUs like these instead of 8")
	enough := 0
	if _, err := fmt.Sscan(r.Change, &enough); err != nil || !r.Fits {
		t.Fatalf("%v: %+v", err, r)
	}
	for n, want := range map[int]bool{enough: true, enough - 8: false} {
		if e := estimate(t, m, cards(n, 79*gi)); (e.Verdict == Fits) != want {
			t.Errorf("%d GPUs: %s", n, e.Verdict)
		}
	}
}

func TestMoreGPUsDoNotHelpWhatIsCopied(t *testing.T) {
	m := model(70e9)
	few, many := estimate(t, m, cards(8, 79*gi)), estimate(t, m, cards(512, 79*gi))
	if few.Ranks[0].Need != many.Ranks[0].Need || !strings.Contains(few.Copied, "8 times the same 1043.1 GiB") || !strings.Contains(many.Copied, "512 times") {
		t.Errorf("%s; %s", few.Copied, many.Copied)
	}
	for _, r := range few.Remedies {
		if strings.Contains(r.Change, "GPUs like these") {
			t.Errorf("advised: %s", r.Change)
		}
	}
}

func TestTheLargestMicroBatchThatFitsIsAdvised(t *testing.T) {
	m := model(2e9, activations(160*gi), func(m *Model) { m.MicroBatch = 16 })
	r := find(t, estimate(t, m, cards(1, 79*gi)), "micro-batches of")
	if !r.Fits || !strings.Contains(r.Change, "micro-batches of 4 samples instead of 16, 4 times") {
		t.Errorf("%+v", r)
	}
	for samples, want := range map[uint64]bool{4: true, 5: false} {
		one := m
		one.Activations = 10 * gi * samples
		if e := estimate(t, one, cards(1, 79*gi)); (e.Verdict == Fits) != want {
			t.Errorf("%d samples: %s", samples, e.Verdict)
		}
	}
}

func TestWhatOthersHoldIsTheFirstThingToFree(t *testing.T) {
	l := cards(2, 79*gi)
	busy := uint64(20 * gi)
	l.Cards[1].Free, l.Cards[1].Used = &busy, 59*gi
	e := estimate(t, model(2e9), l)
	if r := e.Remedies[0]; e.Worst != 1 || !r.Fits || !strings.Contains(r.Change, "up to 59.0 GiB") {
		t.Errorf("rank %d: %+v", e.Worst, r)
	}
}

// Nothing by itself makes 70 B parameters, all trained, fit on eight cards; several things
// together do, and none of them could be left out.
func TestRemediesThatOnlyTogetherAreEnough(t *testing.T) {
	m := model(70e9, activations(40*gi), func(m *Model) { m.MicroBatch = 8 })
	l := cards(8, 79*gi)
	little := uint64(500 * gi) // too little for offloading
	l.Hosts = []Host{{Ranks: 8, Free: &little}}
	e := estimate(t, m, l)
	r := e.Together
	if r == nil || !r.Fits || r.Other || e.Cheapest() != r {
		t.Fatalf("together: %+v", r)
	}
	if !strings.Contains(r.Change, "FSDP") || !strings.Contains(r.Change, "GPUs like these instead of 8") || strings.Contains(r.Change, "LoRA") || strings.Contains(r.Change, "stage 2") {
		t.Errorf("%s", r.Change)
	}
}

// Another training is advised alone only where nothing else is enough.
func TestAnotherTrainingComesLast(t *testing.T) {
	e := estimate(t, model(13e9), cards(1, 40*gi))
	adapters := find(t, e, "LoRA")
	if !adapters.Fits || !adapters.Other || e.Cheapest().Other {
		t.Errorf("the cheapest is %+v of %+v", e.Cheapest(), e.Remedies)
	}
}

func TestNothingHelpsWhereNothingIsFree(t *testing.T) {
	e := estimate(t, model(7e9), cards(2, 1<<20))
	if e.Verdict != TooLarge || e.Cheapest() != nil || e.Together != nil {
		t.Errorf("%s: %+v", e.Verdict, e.Cheapest())
	}
}

func TestALongerPipelineAndLargerTensorGroupsNeedLess(t *testing.T) {
	for _, name := range []string{Tensor, Pipeline} {
		m := model(30e9, strategy(name), activations(8*gi))
		l := cards(4, 79*gi)
		l.Island = 8
		e := estimate(t, m, l)
		r := find(t, e, "GPUs like these instead of 4")
		n := 0
		if _, err := fmt.Sscan(r.Change, &n); err != nil {
			t.Fatal(err)
		}
		if larger := estimate(t, m, cards(n, 79*gi)); !r.Fits || larger.Verdict != Fits || larger.Ranks[larger.Worst].Need != r.Need {
			t.Errorf("%s: %+v, but %+v", name, r, larger.Ranks[larger.Worst])
		}
	}
}

// The largest sizes that a job file takes come to numbers, not to an overflow.
func TestTheLargestModelDoesNotOverflow(t *testing.T) {
	m := model(1e14, strategy(Pipeline), activations(16<<40), func(m *Model) { m.DType, m.GradientDType, m.Schedule, m.MicroBatches = "fp32", "fp32", GPipe, 4096 })
	e := estimate(t, m, cards(2, 79*gi))
	if p := e.Stages[0]; p.States() != 8e14 || p.Activations != 4096*(8<<40) || e.Verdict != TooLarge {
		t.Errorf("%+v", p)
	}
}

// fitsBy are the changes that make it fit alone, in their order.
func fitsBy(e *Estimate) []string {
	var all []string
	for _, r := range e.Remedies {
		if r.Fits {
			all = append(all, r.Change)
		}
	}
	return all
}

// 30B in groups of 4 of 16 GPUs: sharding over the GPUs that there are comes before more of
// them, and the smallest group that is enough is advised.
func TestShardingOverMoreOfTheGPUsThatThereAreComesBeforeMoreGPUs(t *testing.T) {
	l := cards(16, 79*gi)
	l.Groups = []Group{{"fsdp", 4}}
	m := model(30e9, strategy(FSDP), activations(6*gi))
	e := estimate(t, m, l)
	wide := find(t, e, "fsdp over 16 ranks instead of groups of 4")
	if all := fitsBy(e); e.Together != nil || len(all) != 4 || all[0] != e.Cheapest().Change || all[0] != wide.Change || all[2] != "32 GPUs like these instead of 16" {
		t.Errorf("what fits: %q, together %+v", all, e.Together)
	}
	l.Groups = nil
	if all := estimate(t, m, l); all.Ranks[0].Need != wide.Need {
		t.Errorf("without groups it needs %d, and the remedy says %d", all.Ranks[0].Need, wide.Need)
	}
	m.Parameters, m.Trainable = 24e9, 24e9
	l.Groups = []Group{{"fsdp", 4}}
	find(t, estimate(t, m, l), "fsdp over 8 ranks instead of groups of 4")
}

// 55B and 20 GiB of activations: nothing alone is enough on eight GPUs, but an 8-bit Adam
// and smaller micro-batches are; new machines and offloading cost more.
func TestCheapChangesTogetherComeBeforeMoreGPUs(t *testing.T) {
	e := estimate(t, model(55e9, strategy(FSDP), activations(20*gi)), cards(8, 79*gi+gi/5))
	r := e.Together
	if r == nil || r != e.Cheapest() || !r.Fits || r.Offloaded != nil || r.Change != "Adam with an 8-bit state; micro-batches of 1/4 of the size, 4 times as many accumulated" {
		t.Fatalf("together: %+v of %q", r, fitsBy(e))
	}
	if all := fitsBy(e); len(all) != 3 || !strings.Contains(all[0], "CPUOffload") || !strings.Contains(all[1], "24 GPUs like these instead of 8") || !strings.Contains(all[2], "LoRA") {
		t.Errorf("what fits at a higher cost: %q", all)
	}
}

// With gpipe each stage holds all micro-batches: 1f1b holds as many as there are stages.
func TestWhatAPipelineHoldsIsLessenedByItsSchedule(t *testing.T) {
	m := model(8e9, strategy(Pipeline), activations(8*gi), func(m *Model) { m.Schedule, m.MicroBatches = GPipe, 96 })
	e := estimate(t, m, cards(8, 79*gi))
	if r := e.Cheapest(); r == nil || !r.Fits || !strings.Contains(r.Change, "1f1b: at most 8 micro-batches in flight instead of 96") {
		t.Errorf("the cheapest is %+v", r)
	}
	r := find(t, e, "micro_batches = ")
	n := 0
	if _, err := fmt.Sscanf(r.Change, "micro_batches = %d in flight", &n); err != nil || !r.Fits {
		t.Fatalf("%v: %+v", err, r)
	}
	for n, want := range map[int]bool{n: true, n + 1: false} {
		m.MicroBatches = n
		if e := estimate(t, m, cards(8, 79*gi)); (e.Verdict == Fits) != want {
			t.Errorf("%d micro-batches: %s", n, e.Verdict)
		}
	}
	if !strings.Contains(r.Cost, "instead of 6%") {
		t.Errorf("it costs: %s", r.Cost)
	}
}

// Gradients that are accumulated without a pipeline are of one micro-batch after the other.
func TestWithoutAPipelineOneMicroBatchIsHeld(t *testing.T) {
	m := model(1e9, activations(10*gi), func(m *Model) { m.MicroBatches = 8 })
	if got := estimate(t, m, Layout{World: 8}).Stages[0].Activations; got != 10*gi {
		t.Errorf("it holds %s", text.GiB(got))
	}
}

// A tensor group waits for its slowest link in each layer: beyond an island more GPUs hold
// more groups.
func TestMoreGPUsLeaveTensorGroupsWithinAnIsland(t *testing.T) {
	m := model(50e9, strategy(Tensor), activations(34*gi))
	l := cards(8, 79*gi)
	l.Island = 8
	e := estimate(t, m, l)
	if r := find(t, e, "GPUs like these instead of 8"); !r.Fits || !strings.Contains(r.Change, "16 GPUs like these instead of 8, with FSDP over more tensor groups") {
		t.Errorf("%+v", r)
	}
	l.Island = 16
	find(t, estimate(t, m, l), "16 GPUs like these instead of 8 in larger tensor groups")
	l.Groups, l.Island, m.Strategy = []Group{{"pipeline", 2}, {"tensor", 4}}, 8, Pipeline
	find(t, estimate(t, m, l), "in a longer pipeline")
}

func TestAbsurdNumbersOfGPUsAreNotAdvised(t *testing.T) {
	for _, name := range []string{Tensor, FSDP, Pipeline} {
		e := estimate(t, model(2e12, strategy(name), activations(100*gi)), cards(4, 79*gi))
		for _, r := range e.Remedies {
			if strings.Contains(r.Change, "GPUs like these") {
				t.Errorf("%s: advised: %s", name, r.Change)
			}
		}
	}
}

// What is offloaded lies on the host, which needs the memory for all its ranks.
func TestOffloadingIsAdvisedLateAndOnlyWhereHostsHaveTheMemory(t *testing.T) {
	m := model(30e9, strategy(FSDP), activations(20*gi), func(m *Model) { m.MicroBatch = 1 })
	l := cards(4, 79*gi)
	l.Groups = nil
	for free, want := range map[uint64]bool{600 * gi: true, 400 * gi: false} {
		l.Hosts = []Host{{Ranks: 4, Free: &free}}
		r := find(t, estimate(t, m, l), "fsdp with its share in the host's memory")
		if r.Fits != want || r.Offloaded == nil || r.Offloaded.Need != 30e9*16 || *r.Offloaded.Free != free {
			t.Errorf("%s free: %+v, %+v", text.GiB(free), r, r.Offloaded)
		}
	}
	l.Hosts = []Host{{Ranks: 4}}
	if r := find(t, estimate(t, m, l), "in the host's memory"); !r.Fits || r.Offloaded.Free != nil {
		t.Errorf("where the host does not tell: %+v", r)
	}
	all := estimate(t, m, l).Remedies
	if at := len(all) - 3; !strings.Contains(all[at].Change, "in the host's memory") || !strings.Contains(all[at+1].Change, "GPUs like these") {
		t.Errorf("order: %+v", all)
	}
}

// What cpu_offload does not do for copies, it does not do for the remedies of copies either.
func TestOffloadingWithoutEffectHasNoneInRemedies(t *testing.T) {
	m := model(13e9, activations(20*gi))
	without := estimate(t, m, cards(8, 79*gi))
	m.CPUOffload = true
	if with := estimate(t, m, cards(8, 79*gi)); !reflect.DeepEqual(with.Remedies, without.Remedies) {
		t.Errorf("%+v, without it %+v", with.Remedies, without.Remedies)
	}
}

// An 8-bit optimizer's state stays on the GPU.
func TestOffloadingTakesAFullStateInsteadOf8Bits(t *testing.T) {
	m := model(70e9, strategy(FSDP), activations(20*gi), func(m *Model) { m.Optimizer = AdamW8bit })
	find(t, estimate(t, m, cards(8, 79*gi)), "DeepSpeed's offload), and AdamW with a full state")
}
