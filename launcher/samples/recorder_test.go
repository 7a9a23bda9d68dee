package samples

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// only are values of which one is known.
func only(m Metric, n float64) Values {
	v := None()
	v[m] = n
	return v
}

// record makes a file from what each rank has at a time, one sample each step seconds.
func record(t testing.TB, ranks int, hours, step float64, of func(rank int, at float64) (v Values, attempt int)) *Series {
	t.Helper()
	path := filepath.Join(t.TempDir(), "samples")
	r, err := Create(path, ranks, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	values, who := make([]Values, ranks), make([]Occupant, ranks)
	for at := 0.0; at < hours*3600; at += step {
		for rank := range values {
			who[rank].Rank = rank
			values[rank], who[rank].Attempt = of(rank, at)
		}
		if err := r.Add(at, who, values); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file is for others too: %v", info.Mode())
	}
	if info.Size() > largest(ranks) || info.Size() > mostBytes+headerSize {
		t.Errorf("%v hours of %d ranks take %d bytes, more than %d", hours, ranks, info.Size(), largest(ranks))
	}
	return s
}

func TestAThousandHoursStayWithinTheBoundAndAreKeptFromTheirBeginning(t *testing.T) {
	s := record(t, 8, 1000, 20, func(rank int, at float64) (Values, int) {
		return only(Process, float64(rank)*1e9+at), 0
	})
	whole := s.Whole()
	if whole[0].At != 0 {
		t.Errorf("the first period is at %v", whole[0].At)
	}
	last := whole[len(whole)-1]
	if end := last.At + last.Span; end < 1000*3600-60 {
		t.Errorf("the last period ends at %v", end)
	}
	end := 0.0
	for _, b := range whole {
		if b.At < end {
			t.Errorf("the period at %v overlaps the one before, which ends at %v", b.At, end)
		}
		// A coarser period that reaches into finer ones is left out: one span at most.
		if b.At-end > 4800 {
			t.Errorf("between %v and %v there is nothing", end, b.At)
		}
		end = b.At + b.Span
		got := b.Slots[3]
		if lo, hi := got.Min[Process]-3e9, got.Max[Process]-3e9; lo < b.At-256 || hi > b.At+b.Span+256 {
			t.Errorf("the period at %v has %v to %v", b.At, lo, hi)
		}
	}
	if newest := s.Periods[0]; newest[len(newest)-1].Span != 1 {
		t.Errorf("the newest are of %v seconds", newest[0].Span)
	}
}

// largest is how large a file for so many slots may become, in bytes.
func largest(slots int) int64 { return Header{Slots: slots, Levels: levelsFor(slots)}.size() }

func TestHostsWithManyRanksKeepLessAndStayWithinTheBound(t *testing.T) {
	record(t, 64, 3, 10, func(rank int, at float64) (Values, int) { return only(RSS, at), 0 })
	if largest(64) > mostBytes+headerSize || largest(mostSlots) > 2*mostBytes {
		t.Errorf("64 ranks: %d bytes, %d ranks: %d", largest(64), mostSlots, largest(mostSlots))
	}
}

func TestPeriodsTellSmallestLargestAndMeanAndWhatIsNotKnown(t *testing.T) {
	s := record(t, 2, 0.1, 1, func(rank int, at float64) (Values, int) {
		v := only(Process, math.Mod(at, 10))
		if rank == 1 && at >= 10 {
			v = None()
		}
		return v, 0
	})
	tens := s.Periods[1]
	first := tens[0].Slots[0]
	if first.Min[Process] != 0 || first.Max[Process] != 9 || first.Mean[Process] != 4.5 {
		t.Errorf("ten seconds are %v, %v, %v", first.Min[Process], first.Max[Process], first.Mean[Process])
	}
	if _, known := first.Max.Get(RSS); known {
		t.Error("resident memory is known from nowhere")
	}
	if n := len(points(tens, Occupant{1, 0}, Process)); n != 1 {
		t.Errorf("rank 1 has %d points", n)
	}
	if points(tens, Occupant{7, 0}, Process) != nil {
		t.Error("there are points of a rank of another host")
	}
}

func TestAttemptsAndTasksInOneSlotDoNotMix(t *testing.T) {
	s := record(t, 1, 0.5, 1, func(_ int, at float64) (Values, int) {
		if at < 905 {
			return only(Process, 1), 0
		}
		return only(Process, 2), 1
	})
	for attempt := range 2 {
		all := points(s.Whole(), Occupant{0, attempt}, Process)
		if len(all) == 0 {
			t.Fatalf("nothing of attempt %d", attempt)
		}
		for _, p := range all {
			if p.Min != float64(attempt+1) || p.Max != float64(attempt+1) {
				t.Errorf("attempt %d has %v to %v at %v", attempt, p.Min, p.Max, p.At)
			}
		}
	}
}

// A process that was stopped, or a machine that hangs, takes no samples meanwhile.
func TestAGapIsAGap(t *testing.T) {
	s := record(t, 1, 2, 1, func(_ int, at float64) (Values, int) { return only(Process, at), 0 })
	path := filepath.Join(t.TempDir(), "gap")
	r, err := Create(path, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0.0; at < 7200; at++ {
		if at > 1000 && at < 5000 {
			continue
		}
		if err := r.Add(at, []Occupant{{0, 0}}, []Values{only(Process, at)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	gap, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if whole, less := len(s.Periods[2]), len(gap.Periods[2]); less > whole-60 {
		t.Errorf("%d minutes with a gap of 66 minutes, %d without", less, whole)
	}
}

func TestAFileIsReadableWhileItIsWrittenAndWithATornPeriod(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples")
	r, err := Create(path, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at := range 100 {
		if err := r.Add(float64(at), []Occupant{{4, 0}, {5, 0}}, []Values{only(RSS, 1), only(RSS, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Read(path)
	if err != nil || len(s.Periods[0]) < 80 {
		t.Fatalf("%v: %d seconds of 100", err, len(s.Periods[0]))
	}
	if _, err := r.file.f.WriteAt([]byte{0xAA}, s.offset(0, 3)+20); err != nil {
		t.Fatal(err)
	}
	torn, err := Read(path)
	if err != nil || len(torn.Periods[0]) != len(s.Periods[0])-1 {
		t.Errorf("%v: %d periods, %d before one was torn", err, len(torn.Periods[0]), len(s.Periods[0]))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNoFileOfSamplesIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "text": "hello\n", "other version": `{"version":2}` + "\n",
		"huge": `{"version":1,"slots":1,"metrics":["device_used","process","rss","gpu","traffic","allocated","reserved","largest_free"],"levels":[{"span_s":1,"kept":2000000000}]}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), "samples")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func TestValuesAreNullInJSONWhereTheyAreNotKnown(t *testing.T) {
	text, err := json.Marshal(only(RSS, 5))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"allocated":null,"device_used":null,"gpu":null,"largest_free":null,"process":null,"reserved":null,"rss":5,"traffic":null}`; string(text) != want {
		t.Errorf("%s", text)
	}
	var v Values
	if err := json.Unmarshal(text, &v); err != nil || v[RSS] != 5 || !math.IsNaN(v[GPU]) {
		t.Errorf("%v: %v", v, err)
	}
}

func BenchmarkAddOfEightRanks(b *testing.B) {
	r, err := Create(filepath.Join(b.TempDir(), "samples"), 8, 0)
	if err != nil {
		b.Fatal(err)
	}
	values, who := make([]Values, 8), make([]Occupant, 8)
	at := 0.0
	for b.Loop() {
		if err := r.Add(at, who, values); err != nil {
			b.Fatal(err)
		}
		at++
	}
}
