package samples

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

const gib = 1 << 30

// shape is how a number goes over time; at in hours.
type shape func(at float64) float64

func flat(n float64) shape        { return func(float64) float64 { return n } }
func ramp(n, slope float64) shape { return func(at float64) float64 { return n + slope*at } }
func levels1h(n, add float64) shape { // a warm-up that levels off within its first hours
	return func(at float64) float64 { return n + add*(1-math.Exp(-at*2)) }
}
func step(n, add, when float64) shape {
	return func(at float64) float64 {
		if at >= when {
			return n + add
		}
		return n
	}
}
func saw(n, add, period float64) shape {
	return func(at float64) float64 { return n + add*math.Mod(at, period)/period }
}
func evaluations(n, add, every float64) shape {
	return func(at float64) float64 {
		if math.Mod(at, every) > every*0.8 {
			return n + add
		}
		return n
	}
}
func (s shape) after(when float64) shape {
	return func(at float64) float64 { return s(max(0, at-when)) }
}
func (s shape) and(other shape) shape {
	return func(at float64) float64 { return s(at) + other(at) }
}
func (s shape) noisy(most float64) shape {
	source := rand.New(rand.NewPCG(1, 2))
	return func(at float64) float64 { return s(at) + most*source.Float64() }
}

// course are the numbers of a rank; nil: not known.
type course map[Metric]shape

func (c course) series(t *testing.T, hours float64) *Series {
	t.Helper()
	return record(t, 1, hours, max(10, hours), func(_ int, at float64) (Values, int) {
		v := None()
		for m, of := range c {
			v[m] = of(at / 3600)
		}
		return v, 0
	})
}

func TestSteadyGrowthIsFoundAndNamedByWhichNumberRises(t *testing.T) {
	for name, c := range map[string]struct {
		of     course
		hours  float64
		kind   string
		metric Metric
		slope  float64
		says   string
	}{
		"tensors": {course{DeviceUsed: ramp(30*gib, gib), Process: ramp(29*gib, gib), Reserved: ramp(28*gib, gib), Allocated: ramp(20*gib, gib).noisy(2 * gib), RSS: flat(3 * gib)},
			6, KindTensors, Allocated, gib, ".detach()"},
		"the allocator's cache": {course{DeviceUsed: ramp(30*gib, gib), Process: ramp(29*gib, gib), Reserved: ramp(28*gib, gib), Allocated: flat(20 * gib).noisy(gib), RSS: flat(3 * gib)},
			6, KindCache, Reserved, gib, "expandable_segments"},
		"NCCL's buffers": {course{DeviceUsed: ramp(30*gib, gib/2), Process: ramp(29*gib, gib/2), Reserved: flat(28 * gib), Allocated: flat(20 * gib), RSS: flat(3 * gib)},
			8, KindOutside, Process, gib / 2, "NCCL"},
		"a device without torch's numbers": {course{DeviceUsed: ramp(30*gib, gib/2), Process: ramp(29*gib, gib/2), RSS: flat(3 * gib)},
			8, KindDevice, Process, gib / 2, "torch's own numbers"},
		"somebody else": {course{DeviceUsed: ramp(30*gib, gib/2), Process: flat(29 * gib), RSS: flat(3 * gib)},
			8, KindForeign, DeviceUsed, gib / 2, "somebody else"},
		"the host": {course{DeviceUsed: flat(30 * gib), Process: flat(29 * gib), RSS: ramp(3*gib, gib/4).noisy(gib / 8)},
			30, KindHost, RSS, gib / 4, "loaders"},
		"a leak under a saw-tooth": {course{Process: saw(10*gib, 4*gib, 0.05).and(ramp(0, gib/2))},
			12, KindDevice, Process, gib / 2, "leak"},
		"a leak over three weeks": {course{RSS: ramp(3*gib, gib/100)},
			500, KindHost, RSS, gib / 100, "leak"},
		"a leak that begins after six hours": {course{RSS: ramp(3*gib, gib).after(6)},
			12, KindHost, RSS, gib, "leak"},
		"a leak that begins after a day": {course{RSS: ramp(3*gib, gib).after(24)},
			64, KindHost, RSS, gib, "leak"},
		"a leak that begins after days, between evaluations": {course{DeviceUsed: evaluations(30*gib, 9*gib, 1.5).and(ramp(0, gib/2).after(100)), Process: evaluations(29*gib, 9*gib, 1.5).and(ramp(0, gib/2).after(100))},
			148, KindDevice, Process, gib / 2, "leak"},
		"a leak after a warm-up": {course{Process: levels1h(5*gib, 20*gib).and(ramp(0, gib))},
			24, KindDevice, Process, gib, "leak"},
	} {
		t.Run(name, func(t *testing.T) {
			found := c.of.series(t, c.hours).Growing(0, 0, 80*gib)
			if len(found) != 1 {
				t.Fatalf("found %+v", found)
			}
			g := found[0]
			message, fix := g.Words()
			if g.Kind != c.kind || g.Metric != c.metric.String() || math.Abs(g.Slope-c.slope) > 0.15*c.slope {
				t.Errorf("%s: of %s, by %s an hour", g.Kind, g.Metric, Size(g.Slope))
			}
			if !strings.Contains(message+fix, c.says) {
				t.Errorf("%q is not in %s; %s", c.says, message, fix)
			}
			if used := c.of[DeviceUsed]; g.Kind != KindHost && used != nil {
				if want := (80*gib - used(c.hours)) / c.slope; math.Abs(g.FullIn-want) > 0.2*want {
					t.Errorf("full in %v hours, not %v", g.FullIn, want)
				}
			}
			t.Log(message, fix)
		})
	}
}

func TestWhatIsHealthyIsNoGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		of    course
		hours float64
	}{
		"flat":                        {course{Process: flat(10 * gib).noisy(gib)}, 10},
		"a warm-up that levels off":   {course{Process: levels1h(5*gib, 20*gib)}, 10},
		"a warm-up, early":            {course{Process: levels1h(5*gib, 20*gib)}, 2},
		"a saw-tooth":                 {course{Process: saw(10*gib, 8*gib, 0.3)}, 10},
		"a slow saw-tooth":            {course{RSS: saw(10*gib, 8*gib, 3)}, 20},
		"evaluations":                 {course{Process: evaluations(10*gib, 5*gib, 1.5)}, 10},
		"one step":                    {course{Process: step(10*gib, 8*gib, 4)}, 10},
		"up and down in eight hours":  {course{RSS: saw(10*gib, 8*gib, 8)}, 55},
		"up and down in a day":        {course{RSS: saw(10*gib, 8*gib, 24).noisy(gib / 4)}, 140},
		"a step days ago":             {course{RSS: step(10*gib, 8*gib, 40)}, 90},
		"an evaluation at the end":    {course{Process: step(10*gib, 8*gib, 99.5).noisy(gib)}, 100},
		"a step near the end":         {course{Process: step(10*gib, 8*gib, 9)}, 10},
		"shrinking":                   {course{Process: ramp(30*gib, -gib)}, 10},
		"too short to be told":        {course{Process: ramp(10*gib, 10*gib)}, 1},
		"a few MiB":                   {course{RSS: ramp(10*gib, 1<<20)}, 10},
		"nothing is known":            {course{GPU: flat(100)}, 10},
		"less than the cache's noise": {course{Reserved: flat(10 * gib).noisy(gib / 2), Allocated: flat(8 * gib).noisy(2 * gib)}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			if found := c.of.series(t, c.hours).Growing(0, 0, 80*gib); len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
}

// Seconds awake are what counts: a night in which the machine slept is not there, and a
// process that was stopped for hours leaves a hole.
func TestAHoleInTheSamplesIsNoGrowthAndHidesNone(t *testing.T) {
	of := func(slope float64) *Series {
		return record(t, 1, 10, 10, func(_ int, at float64) (Values, int) {
			if at > 4*3600 && at < 5*3600 {
				return None(), 0
			}
			return only(Process, 10*gib+slope*at/3600), 0
		})
	}
	if found := of(0).Growing(0, 0, 0); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	if found := of(gib).Growing(0, 0, 0); len(found) != 1 {
		t.Errorf("found %+v", found)
	}
}

func TestOneRankFarOverTheOthersIsNamed(t *testing.T) {
	held := func(amounts ...float64) map[int]Values {
		peaks := map[int]Values{}
		for rank, n := range amounts {
			peaks[rank] = only(Process, n*gib)
		}
		return peaks
	}
	for name, c := range map[string]struct {
		peaks map[int]Values
		want  []int
	}{
		"one of four":        {held(60, 20, 20, 20), []int{0}},
		"one of two":         {held(20, 60), []int{1}},
		"even":               {held(60, 58, 61, 60), nil},
		"the first a little": {held(40, 30, 30, 30), nil},
		"all small":          {held(1, 0.1, 0.1), nil},
		"one rank":           {held(60), nil},
		"halves":             {held(60, 60, 20, 20), []int{0, 1}},
		"nothing known":      {map[int]Values{0: None(), 1: None()}, nil},
		"by the device, where processes do not show": {map[int]Values{0: only(DeviceUsed, 60*gib), 1: only(DeviceUsed, 10*gib)}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			var ranks []int
			for _, u := range Imbalance(c.peaks) {
				ranks = append(ranks, u.Rank)
				if message, fix := u.Words(); !strings.Contains(message, Size(u.Held)) || fix == "" {
					t.Errorf("%s; %s", message, fix)
				}
			}
			if len(ranks) != len(c.want) || len(ranks) > 0 && ranks[0] != c.want[0] {
				t.Errorf("ranks %v, not %v", ranks, c.want)
			}
		})
	}
}

func TestPeaksAreKeptByAttemptAndPhase(t *testing.T) {
	var peaks []Peak
	for _, at := range []struct {
		attempt int
		age, n  float64
	}{{0, 5, 40}, {0, 30, 10}, {0, 700, 20}, {0, 800, 15}, {1, 5, 30}} {
		peaks = Raise(peaks, at.attempt, PhaseOf(at.age), only(Process, at.n))
	}
	if len(peaks) != 3 || peaks[0].Max[Process] != 40 || peaks[1].Max[Process] != 20 || peaks[1].Phase != PhaseLater || peaks[2].Max[Process] != 30 || Highest(peaks)[Process] != 40 {
		t.Errorf("%+v", peaks)
	}
}
