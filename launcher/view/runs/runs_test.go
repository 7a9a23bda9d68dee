package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"
)

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, &os.PathError{Op: "write", Err: syscall.EPIPE} }

func TestAReaderThatHasGoneIsGivenUp(t *testing.T) {
	var err bytes.Buffer
	s := &terminal.Screen{Out: terminal.Stream{W: gone{}}, Err: terminal.Stream{W: &err}}
	r := NewRun(s)
	r.Watching("llama-1")
	r.Output("a", 0, false, []byte("one\ntwo\n"), false)
	r.Say("still here")
	if s.Left() == nil || err.String() != "muster: still here\n" {
		t.Errorf("closed %v, said %q", s.Left(), err.String())
	}
}

// full is a disk on which nothing has room.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "out", Err: syscall.ENOSPC}
}

func TestThatOutputCannotBeWrittenIsSaidOnceAndAtTheEnd(t *testing.T) {
	var err bytes.Buffer
	r := NewRun(&terminal.Screen{Out: terminal.Stream{W: full{}}, Err: terminal.Stream{W: &err}})
	r.Watching("llama-1")
	for range 3 {
		r.Output("a", 0, false, []byte("one\ntwo\n"), false)
	}
	while := err.String()
	if want := "muster: warning: the output cannot be written: write out: no space left on device; run llama-1 goes on, and muster logs llama-1 has it\n"; while != want {
		t.Errorf("it has said %q, want %q", while, want)
	}
	r.Report(&report.Report{Run: "llama-1", Outcome: report.OK})
	if end := strings.TrimPrefix(err.String(), while); !strings.Contains(end, "not all of its output could be written: write out: no space left on device; muster logs llama-1 has it") {
		t.Errorf("at the end it has said %q", end)
	}
}

// stalled is a reader that takes nothing until it is let.
type stalled struct{ begun, let chan struct{} }

func (s stalled) Write(p []byte) (int, error) {
	close(s.begun)
	<-s.let
	return len(p), nil
}

func TestAStalledReaderOfOutputKeepsNothingElseFromBeingSaid(t *testing.T) {
	var err bytes.Buffer
	out := stalled{make(chan struct{}), make(chan struct{})}
	r := NewRun(&terminal.Screen{Out: terminal.Stream{W: out}, Err: terminal.Stream{W: &err}})
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		r.Output("a", 0, false, []byte("one\n"), false)
	}()
	<-out.begun
	r.Event(event.Event{Kind: event.Stopping, Message: "stopping the workers: Ctrl-C"})
	r.Report(&report.Report{Outcome: report.OK})
	r.Phase("")
	close(out.let)
	<-shown
	if !strings.Contains(err.String(), "stopping the workers") {
		t.Errorf("it has said %q", err.String())
	}
}

func TestEachLineCarriesItsHostAndRank(t *testing.T) {
	var out, err bytes.Buffer
	r := NewRun(&terminal.Screen{Out: terminal.Stream{W: &out}, Err: terminal.Stream{W: &err}})
	r.Output("gpu1", 3, false, []byte("one\ntw"), false)
	r.Output("gpu1", 3, true, []byte("oops\n"), false)
	r.Output("gpu2", 4, false, []byte("other\n"), false)
	r.Output("gpu1", 3, false, []byte("o"), false)
	r.Output("gpu1", 3, false, nil, true)
	if out.String() != "gpu1:3| one\ngpu2:4| other\ngpu1:3| two\n" || err.String() != "gpu1:3| oops\n" {
		t.Errorf("out %q, err %q", out.String(), err.String())
	}
}

func failed() *report.Report {
	rank := 1
	end := func(rank int, e report.End) report.Rank {
		return report.Rank{Rank: rank, Host: "gpu1", Ends: []report.End{e}}
	}
	return &report.Report{
		Version: 1, Run: "j-abc", Job: "j", Outcome: report.Failed, Exit: 3,
		FirstCause: &report.Cause{Class: class.Exit, Message: "rank 1 on gpu1 ended with exit status 3", Host: "gpu1", Rank: &rank,
			Evidence: []string{}, Numbers: map[string]float64{}, Log: "/state/rank-1.log", Tail: "Traceback\n\x1b[2JValueError: boom\n"},
		Attempts: []report.Attempt{{Outcome: report.Failed, Changes: map[string]string{}}},
		Ranks: []report.Rank{
			end(0, report.End{Signal: "SIGTERM", StoppedByMuster: "SIGTERM"}), end(1, report.End{Exit: 3}),
			end(2, report.End{Exit: 1}), end(3, report.End{Signal: "SIGKILL", StoppedByMuster: "SIGKILL"}),
		},
		Left: []string{}, Warnings: []string{}, Findings: []report.Finding{{Code: "silent", Severity: codes.Warn, Message: "nothing moves"}},
	}
}

func TestTheFailureScreenSaysFirstWhatCameFirst(t *testing.T) {
	got := strings.TrimSpace(string(failureScreen(&terminal.Stream{}, failed())))
	want := `✗ rank 1 on gpu1 ended with exit status 3
  its last lines:
    Traceback
    ^[[2JValueError: boom
  rank 0: stopped by muster (SIGTERM); rank 2: ended with status 1 afterwards; rank 3: stopped by muster (SIGKILL)
  all of its output: gpu1:/state/rank-1.log
  run j-abc, exit status 3`
	if got != want {
		t.Errorf("screen:\n%s\nwant:\n%s", got, want)
	}
}

// keys returns the names at a place of a JSON document, sorted.
func keys(t *testing.T, write func(io.Writer) error, path ...string) []string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	for _, step := range path {
		v = v.(map[string]any)[step]
		if list, ok := v.([]any); ok {
			v = list[0]
		}
	}
	var names []string
	for name := range v.(map[string]any) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Scripts read these; a name that changes is an incompatible change.
func TestJSONContracts(t *testing.T) {
	run := history.Run{ID: "j-abc", Job: "j", Hosts: []history.Host{{Name: "gpu1", Ranks: 2}}}
	ps := func(w io.Writer) error { return RunsJSON(w, []Listed{{Run: run}}) }
	rep := func(w io.Writer) error { return ReportJSON(w, failed()) }
	status := func(w io.Writer) error {
		return StatusJSON(w, Standing{Run: run, State: event.State{Name: event.Running}})
	}
	telling := func(w io.Writer) error { return StatusJSON(w, Standing{Run: run, State: telling()}) }
	for _, test := range []struct {
		name string
		got  []string
		want string
	}{
		{"ps", keys(t, ps), "runs version"},
		{"ps.runs", keys(t, ps, "runs"), "attempt exit head job run started state"},
		{"report", keys(t, rep), "attempts exit findings first_cause job left outcome ranks run version warnings"},
		{"report.first_cause", keys(t, rep, "first_cause"), "attempt class evidence host log message numbers rank tail"},
		{"report.attempts", keys(t, rep, "attempts"), "attempt changes ended outcome started"},
		{"report.findings", keys(t, rep, "findings"), "at attempt code fix gpu host message rank severity"},
		{"report.ranks", keys(t, rep, "ranks"), "ends gpu host memory_peak peaks rank"},
		{"report.ranks.ends", keys(t, rep, "ranks", "ends"), "attempt exit log signal stopped_by_muster"},
		{"status", keys(t, status), "attempt exit findings job message others ranks run state version warnings"},
		{"status.ranks", keys(t, status, "ranks"), "attempt host rank samples state"},
		{"status.ranks.observed", keys(t, telling, "ranks", "observed"), "checkpoint checkpoint_at first furthest furthest_at phase phase_at progress progress_at refused refused_why torch values"},
		{"status.ranks.observed.torch", keys(t, telling, "ranks", "observed", "torch"), "cuda devices snapshots state trouble version"},
		{"status.ranks.observed.torch.devices", keys(t, telling, "ranks", "observed", "torch", "devices"), "allocated at device inactive largest_free oom ooms peak_allocated peak_reserved pid reserved retries"},
	} {
		if got := strings.Join(test.got, " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// telling is a run whose rank 0 has told all that there is to tell.
func telling() event.State {
	r := observe.NewRecord(7, true)
	for _, line := range []string{"epoch 1", "step 40", "phase eval", "value loss 2.31", "value grad nan", "checkpoint /c/40", "rubbish", "torch imported 2.5.1 12.4",
		"torch device 1 allocated=3221225472 reserved=4294967296 largest_free=5 ooms=1 retries=2", "torch oom 1 requested=1 total=2 free=1", "torch snapshot /s/1.pickle", "torch trouble none"} {
		r.Take([]byte(line), 7, 1)
	}
	return event.State{Name: event.Running, Ranks: map[int]event.RankState{0: {Name: "running", PID: 7, Observed: r.Latest()}}}
}

func TestStatusHasWhatRanksTellWhereTheyDo(t *testing.T) {
	run := history.Run{ID: "j-abc", Job: "j", Hosts: []history.Host{{Name: "gpu1", Ranks: 2}}}
	shown := func(s event.State) string {
		var b bytes.Buffer
		if err := Status(&b, Standing{Run: run, State: s}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got, want := shown(telling()), "epoch 1, step 40, eval, grad NaN, loss 2.31, torch cuda:1 3.00 of 4.00 GiB in use"; !strings.Contains(got, "TELLS") || !strings.Contains(got, want) {
		t.Errorf("%s lacks %s", got, want)
	}
	silent := event.State{Name: event.Running, Ranks: map[int]event.RankState{0: {Name: "running", PID: 7}}}
	if got := shown(silent); strings.Contains(got, "TELLS") {
		t.Errorf("%s", got)
	}
}

// Ranks that have ended use nothing any more, and what they told keeps its column.
func TestWhatARankTellsStandsInItsColumn(t *testing.T) {
	s := telling()
	rank := s.Ranks[0]
	rank.Name = "ended"
	s.Ranks[0] = rank
	values := samples.None()
	values[samples.RSS] = 1 << 30
	s.Samples = &samples.Overview{Hosts: []samples.HostDigest{{Host: "gpu1", Digest: samples.Digest{Ranks: []samples.Rank{{Rank: 1, Now: values}}}}}}
	var b bytes.Buffer
	run := history.Run{ID: "j-abc", Job: "j", Hosts: []history.Host{{Name: "gpu1", Ranks: 2}}}
	if err := Status(&b, Standing{Run: run, State: s}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if at := strings.Index(lines[2], "TELLS"); at < 0 || strings.Index(lines[3], "epoch 1, step 40") != at {
		t.Errorf("%s", b.String())
	}
}

// The numbers asked for stay, and what is left out is named.
func TestTheTableOfRanksFitsTheTerminal(t *testing.T) {
	for width, torch := range map[int]bool{60: false, 80: false, 100: true, 120: true} {
		run, s := training(torch)
		var b bytes.Buffer
		if err := Status(&b, Standing{Run: run, State: s, Now: inThePast, Width: width}); err != nil {
			t.Fatal(err)
		}
		viewtest.Compare(t, fmt.Sprintf("memory/status-%d.txt", width), b.Bytes())
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns of %d in %q", n, width, line)
			}
		}
	}
}

func TestARunIsWarnedOfBeforeItStarts(t *testing.T) {
	var out bytes.Buffer
	r := NewRun(&terminal.Screen{Err: terminal.Stream{W: &out}})
	p := &plan.Plan{Job: "j", WorldSize: 2, Hosts: []plan.Host{{Name: "a"}, {Name: "b"}}}
	p.Warnings = []plan.Problem{{Message: "memory is estimated not to fit"}}
	r.Plan(p)
	if want := "muster: j: 2 ranks on 2 hosts, a to b\nmuster: warning: memory is estimated not to fit\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
