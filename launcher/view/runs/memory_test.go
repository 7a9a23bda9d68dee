package runs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/plugins/gpu"
)

// of are values of which these are known; sizes in GiB.
func of(known map[samples.Metric]float64) samples.Values {
	v := samples.None()
	for m, n := range known {
		v[m] = n
		if m != samples.GPU && m != samples.Traffic {
			v[m] = n * (1 << 30)
		}
	}
	return v
}

var inThePast = time.Unix(1_700_000_000, 0)

// training is a run of three ranks on two hosts: one of them has ended.
func training(torch bool) (history.Run, event.State) {
	run := history.Run{ID: "llama-7f3a", Job: "llama", Started: inThePast,
		Hosts: []history.Host{{Name: "gpu01", Ranks: 2}, {Name: "gpu02", FirstRank: 2, Ranks: 1}}}
	s := event.State{Name: event.Running, Ranks: map[int]event.RankState{}}
	for rank, host := range []string{"gpu01", "gpu01", "gpu02"} {
		s.Ranks[rank] = event.RankState{Host: host, Name: "running", PID: 100 + rank, Since: inThePast}
	}
	s.Ranks[2] = event.RankState{Host: "gpu02", Name: "ended", Since: inThePast}
	first, second := 3, 4
	peak := func(held, rss float64) []samples.Peak {
		return []samples.Peak{{Phase: samples.PhaseStart, Max: of(map[samples.Metric]float64{samples.Process: held, samples.DeviceUsed: held + 1, samples.RSS: rss})}}
	}
	now := map[samples.Metric]float64{samples.DeviceUsed: 63, samples.Process: 61.5, samples.RSS: 4.25, samples.GPU: 97, samples.Traffic: 41}
	if torch {
		now[samples.Allocated], now[samples.Reserved] = 40, 58
	}
	s.Samples = &samples.Overview{Hosts: []samples.HostDigest{{Host: "gpu01", Ago: 2, Digest: samples.Digest{Every: 1,
		Ranks: []samples.Rank{
			{Rank: 0, GPU: &first, Total: 80 << 30, Processes: 9, Now: of(now), Peaks: peak(70, 5), Growth: []samples.Growth{
				{Rank: 0, Metric: "rss", Kind: samples.KindHost, Slope: 300 << 20, From: 2 << 30, To: 5 << 30, Hours: 10}}},
			{Rank: 1, GPU: &second, Total: 80 << 30, Processes: 9, Now: of(map[samples.Metric]float64{samples.RSS: 4}), Peaks: peak(68, 5)},
		},
		Others: []samples.Holder{{Device: "GPU-3", PID: 4242, User: "bob", Name: "python\x1b[2J", Bytes: new(uint64(12 << 30))}, {Device: "GPU-4", PID: 17}},
	}}, {Host: "gpu02", Ago: 40, Digest: samples.Digest{Every: 30, Why: "no libnvidia-ml.so.1"}}}}
	return run, s
}

func TestStatusShowsHowRanksUseMemoryAndDevices(t *testing.T) {
	for name, torch := range map[string]bool{"status": false, "status-torch": true} {
		run, s := training(torch)
		var b bytes.Buffer
		if err := Status(&b, Standing{Run: run, State: s, Now: inThePast.Add(3 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		viewtest.Compare(t, "memory/"+name+".txt", b.Bytes())
	}
}

func TestStatusWithoutSamplesHasNoEmptyColumns(t *testing.T) {
	run, s := training(false)
	s.Samples = nil
	var b bytes.Buffer
	if err := Status(&b, Standing{Run: run, State: s, Now: inThePast}); err != nil {
		t.Fatal(err)
	}
	if header := strings.Split(b.String(), "\n")[2]; header != "RANK  HOST   STATE    SINCE  PID" {
		t.Errorf("%q", header)
	}
}

func TestTheReportShowsPeaksByAttemptAndPhase(t *testing.T) {
	rep := &report.Report{Ranks: []report.Rank{
		{Rank: 0, Host: "gpu01", GPU: &report.GPU{ID: gpu.ID{Index: 3}}, Peaks: []samples.Peak{
			{Attempt: 0, Phase: samples.PhaseStart, Max: of(map[samples.Metric]float64{samples.Process: 70, samples.DeviceUsed: 71, samples.RSS: 5})},
			{Attempt: 1, Phase: samples.PhaseStart, Max: of(map[samples.Metric]float64{samples.Process: 60, samples.DeviceUsed: 61, samples.RSS: 5})},
			{Attempt: 1, Phase: samples.PhaseLater, Max: of(map[samples.Metric]float64{samples.Process: 64, samples.DeviceUsed: 65, samples.RSS: 7})},
		}},
		{Rank: 1, Host: "gpu02"},
	}}
	var b bytes.Buffer
	if err := Peaks(&b, rep); err != nil {
		t.Fatal(err)
	}
	viewtest.Compare(t, "memory/report.txt", b.Bytes())
	b.Reset()
	if err := Peaks(&b, &report.Report{Ranks: []report.Rank{{}}}); err != nil || b.Len() > 0 {
		t.Errorf("of a run without samples: %q, %v", b.String(), err)
	}
}

// Scripts read these; a name that changes is an incompatible change.
func TestSamplesInJSONAreAContract(t *testing.T) {
	run, s := training(true)
	var b bytes.Buffer
	if err := StatusLine(&b, Standing{Run: run, State: s, Now: inThePast}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
	viewtest.Compare(t, "memory/top.json", indented(t, b.Bytes()))
	b.Reset()
	line := samples.Line{Occupant: samples.Occupant{Rank: 3, Attempt: 1}, At: 1.7e9, Span: 10, Summary: samples.Summary{Min: of(nil), Max: of(map[samples.Metric]float64{samples.RSS: 1}), Mean: of(nil)}}
	if err := SeriesLine(&b, "gpu01", line); err != nil {
		t.Fatal(err)
	}
	viewtest.Compare(t, "memory/series.json", indented(t, b.Bytes()))
}

func indented(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", " "); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTopFitsTheTerminalAndGivesItBack(t *testing.T) {
	run, s := training(false)
	var out bytes.Buffer
	screen := &terminal.Screen{Out: terminal.Stream{W: &out, IsTerminal: true}, Err: terminal.Stream{W: &bytes.Buffer{}}}
	top := NewTop(screen, run)
	for range 2 {
		if err := top.Show(s, inThePast); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), topBegin); n != 1 {
		t.Errorf("the other screen is taken %d times", n)
	}
	top.End()
	if _, left, is := strings.Cut(out.String(), topEnd); !is || !strings.HasPrefix(left, "llama-7f3a: running") {
		t.Errorf("after the end there is %q", left)
	}
	top.End()
	if n := strings.Count(out.String(), topEnd); n != 1 {
		t.Errorf("the screen is given back %d times", n)
	}
	shown := string(fitted([]byte(strings.Repeat("a long line of the table\n", 20)), 10, 5))
	for line := range strings.SplitSeq(shown, "\r\n") {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, restOff)); n > 10 {
			t.Errorf("%d columns in %q", n, line)
		}
	}
	if n := strings.Count(shown, "\n") + 1; n != 5 || !strings.Contains(string(fitted([]byte("a\nb\nc\n"), 80, 3)), "no room for 1 more line;") {
		t.Errorf("%d lines: %q", n, shown)
	}
}
