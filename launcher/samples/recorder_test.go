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

// record makes a folder from what each rank has at a time, one sample each step seconds.
func record(t testing.TB, ranks int, hours, step float64, of func(rank int, at float64) (v Values, attempt int)) *Series {
	t.Helper()
	path := filepath.Join(t.TempDir(), "samples")
	r, err := Create(path, 1e9)
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
	var total, bound int64
	for _, l := range levels {
		bound += 2*l.full + 1<<20 // and what was written at once
	}
	files, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s is for others too: %v", f.Name(), info.Mode())
		}
		total += info.Size()
	}
	if total > bound {
		t.Errorf("%v hours of %d ranks take %d bytes, more than %d", hours, ranks, total, bound)
	}
	return s
}

func TestAThousandHoursStayWithinTheBoundAndAreKeptFromTheirBeginning(t *testing.T) {
	s := record(t, 8, 1000, 240, func(rank int, at float64) (Values, int) {
		return only(Process, float64(rank)*1e9+at), 0
	})
	if s.Periods[0].At != 0 {
		t.Errorf("the first period is at %v", s.Periods[0].At)
	}
	last := s.Periods[len(s.Periods)-1]
	if end := last.At + last.Span; end < 1000*3600-300 {
		t.Errorf("the last period ends at %v", end)
	}
	end := 0.0
	for _, p := range s.Periods {
		if p.At < end {
			t.Errorf("the period at %v overlaps the one before, which ends at %v", p.At, end)
		}
		// A coarser period that reaches into finer ones is left out: one span at most.
		if p.At-end > 3600 {
			t.Errorf("between %v and %v there is nothing", end, p.At)
		}
		end = p.At + p.Span
		got := p.Ranks[3]
		if lo, hi := got.Min[Process]-3e9, got.Max[Process]-3e9; lo < p.At-1 || hi > p.At+p.Span {
			t.Errorf("the period at %v has %v to %v", p.At, lo, hi)
		}
	}
	if last.Span != 1 {
		t.Errorf("the newest are of %v seconds", last.Span)
	}
}

func TestHostsWithManyRanksKeepLessAndStayWithinTheBound(t *testing.T) {
	record(t, 64, 3, 10, func(rank int, at float64) (Values, int) { return only(RSS, at), 0 })
}

func TestPeriodsTellSmallestLargestAndMeanAndWhatIsNotKnown(t *testing.T) {
	s := record(t, 2, 3, 1, func(rank int, at float64) (Values, int) {
		v := only(Process, math.Mod(at, 10))
		if rank == 1 && at >= 120 {
			v = None()
		}
		return v, 0
	})
	first := s.Periods[0]
	if r := first.Ranks[0]; first.Span != 60 || r.Min[Process] != 0 || r.Max[Process] != 9 || r.Mean[Process] != 4.5 {
		t.Errorf("%v seconds are %v, %v, %v", first.Span, r.Min[Process], r.Max[Process], r.Mean[Process])
	}
	if _, known := first.Ranks[0].Max.Get(RSS); known {
		t.Error("resident memory is known from nowhere")
	}
	if n := len(s.points(Occupant{1, 0}, Process)); n != 2 {
		t.Errorf("rank 1 has %d points", n)
	}
	if s.points(Occupant{7, 0}, Process) != nil {
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
		all := s.points(Occupant{0, attempt}, Process)
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
	folder := filepath.Join(t.TempDir(), "gap")
	r, err := Create(folder, 0)
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
	gap, err := Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range gap.Periods {
		if p.At > 1000 && p.At+p.Span < 5000 {
			t.Errorf("%v seconds from %v on are known", p.Span, p.At)
		}
	}
}

func TestAFolderIsReadableWhileItIsWrittenAndWithATornLine(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "samples")
	r, err := Create(folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at := range 100 {
		if err := r.Add(float64(at), []Occupant{{4, 0}, {5, 0}}, []Values{only(RSS, 1), only(RSS, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Read(folder)
	if err != nil || len(s.Periods) < 80 {
		t.Fatalf("%v: %d seconds of 100", err, len(s.Periods))
	}
	seconds := filepath.Join(folder, levels[0].name())
	text, err := os.ReadFile(seconds)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(seconds, text[:len(text)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	torn, err := Read(folder)
	if err != nil || len(torn.Periods) != len(s.Periods)-1 {
		t.Errorf("%v: %d periods, %d before one was torn", err, len(torn.Periods), len(s.Periods))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFullFileMakesRoomAndKeepsTheNewest(t *testing.T) {
	s := record(t, 8, 2, 1, func(_ int, at float64) (Values, int) { return only(RSS, at), 0 })
	n := 0
	for _, p := range s.Periods {
		if p.Span == 1 {
			n++
		}
	}
	if n < 600 || n > 4000 {
		t.Errorf("%d seconds of two hours are kept", n)
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
	r, err := Create(filepath.Join(b.TempDir(), "samples"), 0)
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
