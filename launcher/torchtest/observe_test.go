//go:build linux

package torchtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const observeTorch = "observe {\n torch = true\n}"

// torchTold is what a report says of torch in each rank.
func torchTold(t *testing.T, dir string) (all []torchState) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "muster/runs/*/*/report.json"))
	if len(found) != 1 {
		t.Fatalf("there are %d reports", len(found))
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Ranks []struct {
			Ends []struct{ Observed struct{ Torch torchState } }
		}
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Ranks {
		all = append(all, r.Ends[len(r.Ends)-1].Observed.Torch)
	}
	return all
}

type torchState struct {
	State, Why, Version, CUDA, Trouble string
	Devices                            []any
}

// loads trains a little with data loaders that are forked, spawned and served.
const loads = `
import sys, threading
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.ones(1)

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    for context in "fork", "spawn", "forkserver":
        for batch in DataLoader(Data(), num_workers=2, multiprocessing_context=context):
            model(batch).sum().backward()
    print("threads", [t.name for t in threading.enumerate()], "path", [p for p in sys.path if "muster-run" in p])
`

// There is no CUDA device here: numbers are absent, the reason is said, and a sitecustomize
// of the user's own (that of all these tests) has run.
func TestTheHookGetsAlongWithRealTorchAndItsDataLoaders(t *testing.T) {
	dir := t.TempDir()
	c := runProgram(t, dir, loads, 2, observeTorch).exits(0).says("threads ['MainThread'] path []")
	for rank, told := range torchTold(t, dir) {
		if (told.State != "unused" && told.State != "no_cuda") || told.Why == "" || told.Version == "" || told.Trouble != "" || len(told.Devices) > 0 {
			t.Errorf("rank %d: %+v", rank, told)
		}
	}
	env := readEnvirons(t, dir) // written by that sitecustomize
	if len(env) != 2 || !strings.HasSuffix(strings.Split(env[0]["PYTHONPATH"], ":")[0], "/py") {
		t.Errorf("PYTHONPATH %q", env[0]["PYTHONPATH"])
	}
	if strings.Contains(c.stderr.String(), "Warning") {
		t.Errorf("the hook is heard of:\n%s", c.stderr.String())
	}
}

// raises ends with an exception from within torch and its imports.
const raises = `
import torch
def forward(): return torch.ones(2, 3) @ torch.ones(2, 3)
forward()
`

func TestATracebackWithTheHookIsTheOneWithoutIt(t *testing.T) {
	shown := map[string]string{}
	for _, more := range []string{"", observeTorch} {
		dir := t.TempDir()
		c := runProgram(t, dir, raises, 1, more).exits(1).says("mat1 and mat2 shapes cannot be multiplied")
		var own []string
		for line := range strings.Lines(c.stderr.String()) {
			if rest, is := strings.CutPrefix(line, "localhost:0| "); is {
				own = append(own, strings.ReplaceAll(rest, dir, "DIR"))
			}
		}
		shown[more] = strings.Join(own, "")
	}
	if shown[""] != shown[observeTorch] || shown[""] == "" {
		t.Errorf("with the hook:\n%s\nwithout:\n%s", shown[observeTorch], shown[""])
	}
}

// asks has torch do by hand what it does when a program begins to use CUDA, as there is no
// device here: what the hook has asked to be called is called.
const asks = `
import sys, threading, time
import torch
import wave
for name in "memory_stats_as_nested_dict", "memory_snapshot", "is_initialized", "device_count", "_lazy_call":
    assert callable(getattr(torch.cuda, name)), name
assert callable(torch.cuda.memory._dump_snapshot)
assert callable(torch._C._cuda_attach_out_of_memory_observer)
assert callable(torch._C._cuda_isHistoryEnabled)
calls = [call for call, _ in torch.cuda._queued_calls if call.__module__ == "muster_observe"]
assert len(calls) == 1, calls
assert not torch.cuda.is_initialized()
calls[0]()
assert not torch.cuda.is_initialized()
time.sleep(1.5)
print("threads", [t.name for t in threading.enumerate()])
`

// Of torch's insides the hook uses some that are not documented. A torch that lacks one
// shows here.
func TestWhatTheHookAsksOfTorchIsThere(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	c := runProgram(t, dir, asks, 1, observeTorch).exits(0).says("threads ['MainThread']")
	if out := c.stderr.String(); strings.Contains(out, "Traceback") || strings.Contains(out, "Warning") {
		t.Error(out)
	}
	told := torchTold(t, dir)[0]
	// Without a device torch takes no observer, which is told to muster and to nobody else.
	if told.State == "no_cuda" || told.Trouble != "" && !strings.HasPrefix(told.Trouble, "out of memory observer: ") {
		t.Errorf("%+v", told)
	}
}
