package memory

import (
	"fmt"
	"strings"
	"testing"
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
			if want := estimate(t, m, l); got.Need != want.Ranks[0].Need || got.Most != want.Ranks[0].Most || got.Fits != (want.Verdict == Fits) || got.Free != 79*gi {
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
		e := estimate(t, m, cards(4, 79*gi))
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
	m := model(1e14, activations(16<<40), func(m *Model) { m.DType, m.GradientDType, m.MicroBatches = "fp32", "fp32", 4096 })
	e := estimate(t, m, cards(2, 79*gi))
	if p := e.Stages[0]; p.States() != 16e14 || p.Activations != 4096*(16<<40) || e.Verdict != TooLarge {
		t.Errorf("%+v", p)
	}
}
