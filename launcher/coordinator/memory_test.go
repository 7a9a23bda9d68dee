package coordinator

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/samples"
)

const gib = 1 << 30

func held(n float64) samples.Values {
	v := samples.None()
	v[samples.Process] = n * gib
	return v
}

// tellSamples has a host tell of its two ranks.
func (d *drill) tellSamples(host int, age float64, amounts ...float64) {
	digest := &samples.Digest{Attempt: d.b.Attempt, Age: age}
	for i, n := range amounts {
		digest.Ranks = append(digest.Ranks, samples.Rank{Rank: 2*host + i, Now: held(n), Peaks: samples.Raise(nil, d.b.Attempt, samples.PhaseOf(age), held(n))})
	}
	d.news(host, message.Update{Samples: digest})
}

// found are the findings with a code.
func (d *drill) found(code string) (messages []string) {
	for _, e := range d.said(event.Found) {
		if e.Finding.Code == code {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

func TestARankFarOverTheOthersIsNamedOnceTheWarmUpIsOver(t *testing.T) {
	d := newDrill(t)
	d.b.Plan.Backend = "nccl"
	d.run()
	d.tellSamples(0, 60, 60, 20)
	d.tellSamples(1, 60, 20, 20)
	d.tellSamples(2, 60, 20, 20)
	if found := d.found("memory_imbalance"); len(found) > 0 {
		t.Errorf("during the warm-up: %q", found)
	}
	for range 2 {
		d.tellSamples(0, 700, 60, 20)
	}
	if found := d.found("memory_imbalance"); len(found) != 1 || !strings.Contains(found[0], "rank 0") || !strings.Contains(found[0], "60.0 GiB") {
		t.Errorf("found %q", found)
	}
}

func TestAnAttemptsEndIsJudgedByWhatRanksHeldUntilTheirEnds(t *testing.T) {
	for backend, want := range map[string]int{"gloo": 1, "none": 0} {
		d := newDrill(t)
		d.b.Plan.Backend = backend
		d.run()
		d.tellSamples(0, 5, 20, 20)
		for rank := range 6 {
			n := 20.0
			if rank == 5 {
				n = 50
			}
			d.news(rank/2, message.Update{Ended: &message.Ended{Rank: rank, Peaks: samples.Raise(nil, 0, samples.PhaseStart, held(n))}})
		}
		if found := d.found("memory_imbalance"); len(found) != want {
			t.Errorf("%s: found %q", backend, found)
		}
		r := d.end(0, 1, 2)
		if p := r.Ranks[5].MemoryPeak; p == nil || *p != 50*gib || len(r.Ranks[5].Peaks) != 1 {
			t.Errorf("the report has %v, %v", p, r.Ranks[5].Peaks)
		}
	}
}

// The one that fails early is often the one that was first to load.
func TestRanksThatHadNotLoadedYetSayNothingOfTheBalance(t *testing.T) {
	d := newDrill(t)
	d.b.Plan.Backend = "nccl"
	d.run()
	for rank := range 6 {
		n := 0.1
		if rank == 0 {
			n = 30
		}
		d.news(rank/2, message.Update{Ended: &message.Ended{Rank: rank, Peaks: samples.Raise(nil, 0, samples.PhaseStart, held(n))}})
	}
	if found := d.found("memory_imbalance"); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

func TestGrowthIsToldOncePerAttempt(t *testing.T) {
	d := newDrill(t)
	d.run()
	digest := &samples.Digest{Age: 7200, Ranks: []samples.Rank{{Rank: 2, Now: held(1), Growth: []samples.Growth{{Rank: 2, Kind: samples.KindCache, Slope: gib, From: gib, To: 3 * gib, Hours: 2}}}}}
	for range 3 {
		d.news(1, message.Update{Samples: digest})
	}
	if found := d.found("memory_growth"); len(found) != 1 || !strings.HasPrefix(found[0], "b: rank 2") {
		t.Errorf("found %q", found)
	}
}

func TestWhatAJobIgnoresIsNotFoundInMemory(t *testing.T) {
	d := newDrillOf(t, "check {\n ignore = [\"memory_imbalance\", \"memory_growth\"]\n}")
	d.b.Plan.Backend = "nccl"
	d.run()
	d.tellSamples(0, 700, 60, 20)
	d.tellSamples(1, 700, 20, 20)
	if found := d.found("memory_imbalance"); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

func TestADigestOfAnEarlierAttemptOrOfAnothersRankIsLeftOut(t *testing.T) {
	d := newDrill(t)
	d.run()
	d.news(0, message.Update{Samples: &samples.Digest{Attempt: 3}})
	d.tellSamples(1, 5, 7)
	d.news(0, message.Update{Samples: &samples.Digest{Ranks: []samples.Rank{{Rank: 5, Peaks: samples.Raise(nil, 0, samples.PhaseStart, held(9))}, {Rank: 77}}}})
	if o := d.core.Samples(); len(o.Hosts) != 2 {
		t.Errorf("%+v", o)
	}
	if p := d.core.Memory.Peaks(5); len(p) > 0 {
		t.Errorf("host a has told of c's rank: %+v", p)
	}
}
