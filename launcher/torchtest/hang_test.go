//go:build linux

package torchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const silent = "hang {\n silence = \"4s\"\n action = \"stop\"\n}"

// absent has rank 1 stay away from the sixth all_reduce, in which the others wait for it.
const absent = `
import faulthandler, threading
%s
def waits_for_nobody():
    threading.Event().wait()

for step in range(1, 7):
    if step == 6 and rank == 1:
        waits_for_nobody()
    print("step", step, flush=True)
    dist.all_reduce(t)
`

// hangsWhereItIs runs a program of three ranks that hangs, and looks whether the report has
// where each of them is, as found out in this way.
func hangsWhereItIs(t *testing.T, dir, source, more, how string) {
	t.Helper()
	c := runProgram(t, dir, meet+source, 3, silent+more).exits(124)
	c.says("no output, no progress and no work of all 3 ranks", "rank 1 on localhost is the one to look at: it is at step 5, the others at step 6")
	e := reportOf(t, dir)
	e.isOf(t, "hang", 1)
	for rank, function := range []string{"all_reduce (", "waits_for_nobody (", "all_reduce ("} {
		line := ""
		for _, evidence := range e.FirstCause.Evidence {
			if strings.HasPrefix(evidence, fmt.Sprintf("rank %d on localhost: ", rank)) {
				line = evidence
			}
		}
		_, frames, found := strings.Cut(line, "by "+how+" in ")
		if !found || !strings.Contains(frames, function) {
			t.Errorf("rank %d is to be in %s by %s: %q", rank, function, how, e.FirstCause.Evidence)
		}
	}
	stacks, _ := filepath.Glob(filepath.Join(dir, "muster/runs/*/*/attempt-0/rank-*.stacks"))
	if len(stacks) != 3 {
		t.Errorf("stacks are kept in %q", stacks)
	}
	for _, path := range stacks {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "by "+how) || !strings.Contains(string(text), "program.py") {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
}

// A py-spy that may not trace is what containers without SYS_PTRACE have.
func TestACollectiveThatARankNeverEntersIsExplainedByFaulthandler(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spy := filepath.Join(dir, "bin", "py-spy")
	if err := os.Mkdir(filepath.Dir(spy), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spy, []byte("#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	hangsWhereItIs(t, dir, fmt.Sprintf(absent, "faulthandler.register(signal.SIGUSR1, all_threads=True)"),
		fmt.Sprintf("\nsetup = \"export PATH=%s:$PATH\"", filepath.Dir(spy)), "faulthandler")
}

// It needs nothing of the program. Beside the Python of these tests there is one.
func TestACollectiveThatARankNeverEntersIsExplainedByPySpy(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("py-spy may trace what it has not started only as root")
	}
	hangsWhereItIs(t, t.TempDir(), fmt.Sprintf(absent, ""), "", "py-spy")
}

// All have told of the same step when one of them stays away from the next: only the stacks tell
// the rank that waits for nobody from those that wait for it.
func TestARankThatIsNoStepBehindIsNamedByTheStacks(t *testing.T) {
	t.Parallel()
	c := runProgram(t, t.TempDir(), meet+`
import faulthandler
faulthandler.register(signal.SIGUSR1, all_threads=True)
for step in range(1, 7):
    if step == 6 and rank == 1:
        time.sleep(1000)
    dist.all_reduce(t)
    print("step", step, flush=True)
    dist.barrier()
`, 3, silent).exits(124)
	c.says("rank 1 on localhost is the one to look at: by the stacks it alone is elsewhere, in <module> (", "while the others wait in all_reduce",
		`last line "step 5"`, "what you can change: see why rank 1 is in <module> (")
}

// The others wait for a rank in all_reduce, and it computes without a word for twice the time
// that would be a hang.
func TestACollectiveThatARankEntersLateIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := runProgram(t, t.TempDir(), meet+`
print("step", 1, flush=True)
if rank == 1:
    end = time.monotonic() + 9
    while time.monotonic() < end:
        torch.ones(200, 200) @ torch.ones(200, 200)
dist.all_reduce(t)
print("rank", rank, "has", t.item(), flush=True)
dist.barrier()
dist.destroy_process_group() # gloo's threads may not outlive the program
`, 3, silent).exits(0)
	c.says("rank 2 has 9.0")
	if strings.Contains(c.stderr.String(), "no output") {
		t.Errorf("it was taken for a hang:\n%s", c.all())
	}
}
