package failure

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// sample is a real tail of a failure with its right answer, from public reports. Sizes are
// the message's value times 1024^n; PyTorch prints two decimals.
type sample struct {
	Name    string             `json:"name"`
	Class   string             `json:"cls"`
	Restart string             `json:"restart"`
	GPU     *float64           `json:"gpu"`
	Rank    *float64           `json:"rank"`
	Numbers map[string]float64 `json:"nums"`
	text    string
}

func samples(t testing.TB) []sample {
	t.Helper()
	text, err := os.ReadFile("testdata/oom/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		text, err := os.ReadFile(filepath.Join("testdata/oom", all[i].Name))
		if err != nil {
			t.Fatal(err)
		}
		all[i].text = string(text)
	}
	if len(all) < 60 {
		t.Fatalf("only %d samples", len(all))
	}
	return all
}

// circumstances are what a launcher knows beside the text. Without an entry the worker
// wrote the sample to its standard error and ended with 1.
var circumstances = map[string]func(e *Evidence, text string){
	"024": good, "025": good, "043": good, "058": good, "087": good,
	"088": func(e *Evidence, text string) { ofKernel(456)(e, text); e.Signal = "" },
	"039": ofKernel(23793), "040": ofKernel(456), "041": ofKernel(2811),
	"083": func(e *Evidence, text string) { ofKernel(2536443)(e, text); e.Signal = "SIGSEGV" },
	"073": ofDriver, "075": ofDriver, "076": ofDriver, "077": ofDriver, "079": ofDriver, "080": ofDriver, "081": ofDriver,
}

func good(e *Evidence, _ string) { e.Code = 0 }

func ofKernel(pid int) func(e *Evidence, text string) {
	return func(e *Evidence, text string) {
		*e = Evidence{Signal: "SIGKILL", Worker: evidence.Worker{PIDs: []int{pid}, Kernel: strings.Split(text, "\n")}}
	}
}

func ofDriver(e *Evidence, text string) {
	*e = Evidence{Signal: "SIGABRT", Worker: evidence.Worker{Kernel: strings.Split(text, "\n")}}
}

// otherwise are samples on which muster differs from the table, and why.
var otherwise = map[string]string{
	// torchrun's report of a SIGKILL alone: what the table suspects is not said without
	// evidence. See TestSIGKILLIsForWantOfMemoryOnlyWhereThatIsCounted.
	"037": class.KilledUnknown,
}

func (s sample) evidence(text string) Evidence {
	e := Evidence{Code: 1, Worker: evidence.Worker{Stderr: []byte(text)}}
	if change := circumstances[s.Name[:3]]; change != nil {
		change(&e, text)
	}
	return e
}

func (s sample) check(t *testing.T, v verdict.Verdict) {
	t.Helper()
	want := s.Class
	if other := otherwise[s.Name[:3]]; other != "" {
		want = other
	}
	if v.Class != want {
		t.Errorf("class %s, want %s: %s\n%q", v.Class, want, v.Message, v.Evidence)
	}
	if restart := strings.ReplaceAll(s.Restart, "other-node", "other-host"); string(v.Restart) != restart {
		t.Errorf("restart %q, want %q", v.Restart, restart)
	}
	if s.GPU != nil && v.Numbers[verdict.NumGPU] != *s.GPU {
		t.Errorf("gpu %v, want %v", v.Numbers, *s.GPU)
	}
	if rank, ok := v.Numbers[verdict.NumRank]; s.Rank != nil && (!ok || rank != *s.Rank) {
		t.Errorf("rank %v, want %v", v.Numbers, *s.Rank)
	}
	for name, n := range s.Numbers {
		if name == "tried" {
			name = verdict.NumRequested
		}
		if got, ok := v.Numbers[name]; !ok || math.Abs(got-n) > output.Slack {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, n)
		}
	}
	if v.Message == "" || v.Confidence == "" || v.Class != class.None && len(v.Evidence) == 0 {
		t.Errorf("unfinished: %+v", v)
	}
	if _, known := class.Find(v.Class); !known {
		t.Errorf("%s is in no table", v.Class)
	}
}

func TestPublicFailuresHaveTheirRightClasses(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.Name, func(t *testing.T) { s.check(t, Classify(s.evidence(s.text))) })
	}
}

// variants are what collectors make of a text. Each leaves what it says as it is.
var variants = map[string]func(text string) string{
	"CRLF":          func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") },
	"wrapped at 80": func(text string) string { return wrapped(text, 80) },
	"wrapped at 40": func(text string) string { return wrapped(text, 40) },
	"kubectl":       prefixed("2026-01-02T03:04:05.123456789Z "),
	"container":     prefixed("2026-01-02T03:04:05.123456789+00:00 stderr F "),
	"bracket time":  prefixed("[2026-01-02 03:04:05] "),
	"collector":     prefixed("[80746] "),
	"ray":           prefixed("(RayWorkerVllm pid=1756, ip=10.0.0.1) "),
	"compose":       prefixed("trainer-1  | "),
	"two prefixes":  prefixed("2026-01-02T03:04:05.1Z [1234] "),
	"wrapped, then prefixed": func(text string) string {
		return prefixed("2026-01-02T03:04:05.123456789Z ")(wrapped(text, 60))
	},
	"colours": func(text string) string {
		return "\x1b[31m" + strings.ReplaceAll(text, " ", " \x1b[0m\x1b[1;32m") + "\x1b[0m\n"
	},
	"after a progress bar": func(text string) string { return "  5%|#  | 5/100 [00:01<00:19]\r" + text },
	"after much output":    func(text string) string { return strings.Repeat("loss 2.31 lr 3e-4 tokens/s 12000\n", 1500) + text },
	"cut off at the start": func(text string) string {
		return "ckpt saved at /data/out in 3.2 s, going on\n  with the next\n" + text
	},
	"warnings after it": func(text string) string {
		return text + "\n/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects\n"
	},
	"bytes that are no text": func(text string) string { return "\xff\xfe\x00\n" + text + "\n\xc3\x28" },
}

func prefixed(prefix string) func(string) string {
	return func(text string) string {
		return prefix + strings.Join(strings.Split(strings.TrimRight(text, "\n"), "\n"), "\n"+prefix) + "\n"
	}
}

// wrapped folds long lines at blanks, as loggers do.
func wrapped(text string, width int) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		for len(line) > width {
			at := strings.LastIndexByte(line[:width], ' ')
			if at <= 0 {
				break
			}
			out, line = append(out, line[:at]), line[at+1:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestTheSameFailuresAreSeenAsCollectorsWriteThem(t *testing.T) {
	for _, s := range samples(t) {
		if kernel := circumstances[s.Name[:3]]; kernel != nil && s.evidence("").Code != 0 {
			continue // no worker's output
		}
		for name, change := range variants {
			t.Run(s.Name+"/"+name, func(t *testing.T) { s.check(t, Classify(s.evidence(change(s.text)))) })
		}
	}
}

func TestKernelLinesAreReadWhateverStandsInFront(t *testing.T) {
	for _, s := range samples(t) {
		if circumstances[s.Name[:3]] == nil || s.evidence("").Stderr != nil {
			continue
		}
		for _, prefix := range []string{"[12345.678] ", "Jan  2 03:04:05 gpu01 kernel: ", "kern  :warn  : 2026-01-02T03:04:05,1+00:00 "} {
			t.Run(s.Name+"/"+prefix, func(t *testing.T) { s.check(t, Classify(s.evidence(prefixed(prefix)(s.text)))) })
		}
	}
}

// Two ranks in one stream, their lines taking turns.
func TestInterleavedRanksAreReadApart(t *testing.T) {
	other := []string{"[rank9]: step 1 of 5", "[rank9]: loss 2.3", "[rank9]:   File \"x.py\", line 3, in f"}
	for _, s := range samples(t) {
		if circumstances[s.Name[:3]] != nil || strings.Contains(s.text, "[rank") || s.Name[:3] == "037" {
			continue
		}
		var out []string
		for i, line := range strings.Split(wrapped(s.text, 50), "\n") {
			out = append(out, "[rank4]: "+line, other[i%len(other)])
		}
		if s.Name[:3] == "054" {
			s.Rank = nil // the text names its peer, the prefix itself
		}
		t.Run(s.Name, func(t *testing.T) {
			v := Classify(s.evidence(strings.Join(out, "\n")))
			s.check(t, v)
			if s.Rank == nil && v.Numbers[verdict.NumRank] != 4 {
				t.Errorf("rank %v, want 4", v.Numbers)
			}
		})
	}
}

// Whole sentences count, from wherever in a log they come: each sample in each stream.
func TestEitherStreamIsRead(t *testing.T) {
	for _, s := range samples(t) {
		if e := s.evidence(s.text); e.Stderr != nil {
			e.Stdout, e.Stderr = e.Stderr, nil
			t.Run(s.Name, func(t *testing.T) { s.check(t, Classify(e)) })
		}
	}
}

func TestExitZeroIsNoFailureWhateverTheLogSays(t *testing.T) {
	for _, s := range samples(t) {
		v := Classify(Evidence{Worker: evidence.Worker{Stderr: []byte(s.text)}})
		if v.Class != class.None {
			t.Errorf("%s: %s", s.Name, v.Class)
		}
		if flagged := strings.Contains(fmt.Sprint(v.Notes), "(oom.") || strings.Contains(fmt.Sprint(v.Notes), "user_error"); strings.HasPrefix(s.Class, "oom.") && !flagged &&
			!slices.Contains([]string{"037", "039", "040", "041", "010"}, s.Name[:3]) {
			t.Errorf("%s: nobody is told of the %s: %q", s.Name, s.Class, v.Notes)
		}
	}
}
