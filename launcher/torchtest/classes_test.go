//go:build linux

package torchtest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runProgram starts a Python program with more in its job on this machine. What the run
// leaves lies in the folder.
func runProgram(t *testing.T, dir, source string, ranks int, more string) *command {
	t.Helper()
	needPrograms(t)
	program, job := filepath.Join(dir, "program.py"), filepath.Join(dir, "job.hcl")
	text := fmt.Sprintf("job %q {\n  command = [%q, %q]\n  hosts \"local\" {}\n  ranks {\n    per_host = %d\n  }\n  stop {\n    grace = \"5s\"\n  }\n%s\n}\n",
		"torch", programs.python, program, ranks, more)
	for path, content := range map[string]string{program: source, job: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, append(baseEnv(t, dir), "XDG_STATE_HOME="+dir), programs.muster, "run", job)
}

// ended is what a report has of how a run ended.
type ended struct {
	Outcome    string
	FirstCause *struct {
		Class, Message, Confidence string
		Rank                       *int
		Evidence                   []string
	} `json:"first_cause"`
	Attempts []struct{ Class, Decision, Reason, Message string }
}

// reportOf reads the report of the run whose files lie in the folder.
func reportOf(t *testing.T, dir string) (e ended) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "muster/runs/*/*/report.json"))
	if len(found) != 1 {
		t.Fatalf("there are %d reports", len(found))
	}
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// isOf checks the class and the rank of the first cause.
func (e ended) isOf(t *testing.T, class string, rank int) {
	t.Helper()
	if c := e.FirstCause; c == nil || c.Rank == nil || c.Class != class || *c.Rank != rank {
		t.Errorf("the first cause is %+v, want %s of rank %d", c, class, rank)
	}
}

const threeTries = "restart {\n attempts = 3\n backoff = \"0s\"\n}"

// meet has all ranks meet once.
const meet = `
import os, signal, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, t = dist.get_rank(), torch.ones(1)
dist.all_reduce(t)
`

// B18
func TestWhatTheProgramGetsWrongIsNotTriedAgain(t *testing.T) {
	for _, c := range []struct{ name, source, says string }{
		{"a module that is not there", "import os\nif os.environ['RANK'] == '1':\n    import trochvision\nimport time\ntime.sleep(1000)\n", "No module named 'trochvision'"},
		{"a program that cannot be parsed", "def main(:\n    pass\n", "SyntaxError"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			runProgram(t, dir, c.source, 2, threeTries).exits(1).says("user_error", c.says)
			e := reportOf(t, dir)
			if e.FirstCause == nil || e.FirstCause.Class != "user_error" || len(e.Attempts) != 1 || e.Attempts[0].Decision != "end" {
				t.Errorf("report %+v", e)
			}
			if c.name != "a program that cannot be parsed" { // which both ranks find
				e.isOf(t, "user_error", 1)
			}
		})
	}
}

// B31: rank 0 notices it, by gloo's words, and no counter speaks for want of memory.
func TestAPeerThatWasKilledIsTheCauseAndNotWhoNoticed(t *testing.T) {
	dir := t.TempDir()
	runProgram(t, dir, meet+"if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\nfor _ in range(1000):\n    dist.all_reduce(t)\n    time.sleep(0.01)\n", 2, "").
		exits(137).says("rank 1 on localhost was killed by SIGKILL", "killed.unknown")
	reportOf(t, dir).isOf(t, "killed.unknown", 1)
}

// The rank that dies last says why: rank 0 goes first, as its peer has closed its
// connections, and the other takes its time over its traceback.
func TestAPeersClosedConnectionIsNotTheCause(t *testing.T) {
	dir := t.TempDir()
	runProgram(t, dir, meet+`
if rank == 1:
    dist.destroy_process_group()
    time.sleep(0.7)
    torch.ones(2, 3) @ torch.ones(2, 3)
dist.all_reduce(t)
`, 2, threeTries).exits(1).says("mat1 and mat2 shapes cannot be multiplied")
	e := reportOf(t, dir)
	e.isOf(t, "user_error", 1)
	if len(e.Attempts) != 1 {
		t.Errorf("a mistake of the program was tried again: %+v", e.Attempts)
	}
}

const loader = `
import os, signal
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        if i == 0: %s
        return torch.ones(1)

if __name__ == "__main__":
    for batch in DataLoader(Data(), num_workers=1, multiprocessing_context="fork"): pass
`

// B31
func TestADataLoaderThatWasKilledIsOutOfMemoryOnlyWhereTheKernelCountedThat(t *testing.T) {
	for does, class := range map[string]string{
		"os.kill(os.getpid(), signal.SIGKILL)": "killed.unknown",
		"os.kill(os.getpid(), signal.SIGSEGV)": "crash.segv",
	} {
		t.Run(class, func(t *testing.T) {
			dir := t.TempDir()
			runProgram(t, dir, fmt.Sprintf(loader, does), 1, "").exits(1).says("DataLoader worker", class)
			reportOf(t, dir).isOf(t, class, 0)
		})
	}
}

// dies is the training of the examples, of which rank 1 is killed in the middle of each
// attempt but the third.
const dies = `
import os, runpy, signal, sys
import torch.distributed as dist
calls, reduce = 0, dist.all_reduce

def counted(*args, **more):
    global calls
    calls += 1
    if calls == 7 and os.environ["RANK"] == "1" and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return reduce(*args, **more)

dist.all_reduce = counted
sys.argv = [%[1]q, "--steps", "12", "--save-every", "4", "--checkpoint-dir", %[2]q]
runpy.run_path(%[1]q, run_name="__main__")
`

// Each attempt dies in the same way, and each has got further than the one before, which
// only the checkpoints tell: the rank that dies prints no steps.
func TestARunThatMakesProgressIsStartedAgainFromItsCheckpoint(t *testing.T) {
	dir := t.TempDir()
	checkpoints := filepath.Join(dir, "checkpoints")
	c := runProgram(t, dir, fmt.Sprintf(dies, filepath.Join(tree(), train), checkpoints), 2,
		threeTries+fmt.Sprintf("\nprogress {\n folder = %q\n}", checkpoints)).
		exits(0).says("starting with 2 ranks", "resuming at step 4 ", "resuming at step 8 ")
	e := reportOf(t, dir)
	if len(e.Attempts) != 3 || e.Outcome != "ok" {
		t.Fatalf("report %+v", e)
	}
	for _, a := range e.Attempts[:2] {
		if a.Class != "killed.unknown" || a.Decision != "restart" || !strings.Contains(a.Message, "rank 1") {
			t.Errorf("attempt %+v", a)
		}
	}
	losses, last := map[string]float64{}, ""
	for _, match := range stepLine.FindAllStringSubmatch(c.stdout.String(), -1) {
		var loss float64
		if _, err := fmt.Sscan(match[2], &loss); err != nil {
			t.Fatal(err)
		}
		if before, twice := losses[match[1]]; twice && math.Abs(before-loss) > sameLoss {
			t.Errorf("step %s has loss %v, and %v from the checkpoint on", match[1], before, loss)
		}
		losses[match[1]], last = loss, match[1]
	}
	if len(losses) != 12 || last != "11" {
		t.Errorf("%d steps were trained, the last is %s", len(losses), last)
	}
}
