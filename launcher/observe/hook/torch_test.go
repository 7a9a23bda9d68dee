//go:build linux

package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTorchsNumbersAreTold(t *testing.T) {
	const source = `
import sys, threading, time
import torch
from pool import CUDA_CALLS
import json
print(CUDA_CALLS, len(threading.enumerate()))
torch.cuda.allocate(3 << 30); torch.cuda.allocate(1 << 30); torch.cuda.allocate(5 << 20, device=1)
torch.cuda.free(1 << 30)
print(CUDA_CALLS, len(threading.enumerate()))
`
	for _, version := range []string{"1.13", "2.5"} {
		t.Run(version, func(t *testing.T) {
			eachPython(t, false, func(t *testing.T, python string) {
				b := newBench(t)
				// That torch is imported and CUDA in use is the program's doing alone.
				if o := b.run(true, python, torch(t, version), nil, "-W", "error", b.program("program.py", source)); o.status != 0 || o.stdout != "[] 1\n['init'] 1\n" || o.stderr != "" {
					t.Fatalf("%+v", o)
				}
				want := "torch device 0 allocated=3221225472 inactive=0 largest_free=1073741824 ooms=0 peak_allocated=4294967296 peak_reserved=4294967296 reserved=4294967296 retries=0"
				if got := b.last("torch device 0"); got != want {
					t.Errorf("%s\n%s", got, want)
				}
				if got := b.last("torch device 1"); !strings.Contains(got, "allocated=5242880 ") || !strings.Contains(got, "largest_free=0 ") {
					t.Error(got)
				}
				if got := b.last("torch imported"); !strings.Contains(got, " "+version+".") {
					t.Error(got)
				}
				if got := b.heard("torch trouble"); len(got) > 0 {
					t.Error(got)
				}
			})
		})
	}
}

func TestNumbersAreToldWhileTheProgramRuns(t *testing.T) {
	b := newBench(t)
	o := b.run(true, "python3", torch(t, "2.5"), nil, "-c", "import torch, time, os; torch.cuda.allocate(1 << 20); time.sleep(1.5); os._exit(0)")
	if o.status != 0 || len(b.heard("torch device 0")) == 0 {
		t.Errorf("%+v %q", o, b.heard(""))
	}
}

func TestTorchBuiltWithoutCUDAIsSaid(t *testing.T) {
	eachPython(t, false, func(t *testing.T, python string) {
		b := newBench(t)
		if o := b.run(true, python, torch(t, "cpu"), nil, "-c", "import torch"); o != (outcome{}) {
			t.Errorf("%+v", o)
		}
		if got := b.last("torch imported"); got != "torch imported 2.5.1+cpu none" {
			t.Error(got)
		}
	})
}

// A forked child of a process with CUDA in use has no numbers of its own; one that begins to
// use CUDA by itself has.
func TestForksAndSubprocessesTellForThemselvesOnly(t *testing.T) {
	const source = `
import os, subprocess, sys
import torch
import json
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
child(lambda: torch.cuda.allocate(7 << 20))
torch.cuda.allocate(3 << 20)
def bad():
    torch.cuda._in_bad_fork = True
child(bad)
subprocess.check_call([sys.executable, "-c", "import torch; torch.cuda.allocate(9 << 20)"])
`
	eachPython(t, false, func(t *testing.T, python string) {
		b := newBench(t)
		// Python 3.12 warns of forks of processes with several threads, which is right of it.
		if o := b.run(true, python, torch(t, "2.5"), nil, "-W", "ignore", b.program("program.py", source)); o != (outcome{}) {
			t.Fatalf("%+v", o)
		}
		b.last("torch device 0 allocated=3145728 ")
		for _, size := range []int{7 << 20, 3 << 20, 9 << 20} {
			if got := b.heard(fmt.Sprintf("torch device 0 allocated=%d ", size)); len(got) != 1 {
				t.Errorf("%d: %q", size, b.heard(""))
			}
		}
		if got := b.heard("torch python"); len(got) != 2 {
			t.Errorf("%q", got)
		}
	})
}

func TestAnAllocationThatFailsIsToldAndItsTracebackIsThePrograms(t *testing.T) {
	const source = "import torch\ntorch.cuda.allocate(3 << 30)\ntorch.cuda.allocate(9 << 30)\n"
	for version, observed := range map[string]bool{"1.13": false, "2.5": true} {
		t.Run(version, func(t *testing.T) {
			b := newBench(t)
			path := b.program("program.py", source)
			with := b.run(true, "python3", torch(t, version), []string{SnapshotVariable + "=" + b.dir + "/rank-3"}, path)
			without := b.run(false, "python3", torch(t, version), nil, path)
			if with != without || with.status != 1 {
				t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
			}
			if got := b.last("torch device 0"); !strings.Contains(got, "allocated=3221225472 ") || !strings.Contains(got, "ooms=1 ") {
				t.Error(got)
			}
			if !observed {
				return // such a torch cannot be asked to tell
			}
			if got := b.last("torch oom"); got != "torch oom 0 requested=9663676416 total=10737418240 free=7516192768" {
				t.Error(got)
			}
			file := strings.TrimPrefix(b.last("torch snapshot"), "torch snapshot ")
			if info, err := os.Stat(file); err != nil || info.Size() == 0 || !strings.HasPrefix(file, b.dir+"/rank-3.pid-") || !strings.HasSuffix(file, ".oom-1.pickle") {
				t.Errorf("%s: %v", file, err)
			}
		})
	}
}

func TestSnapshotsAreOnlyWrittenWhereTheyAreWantedAndFewOfThem(t *testing.T) {
	const source = `
import torch
for _ in range(9):
    try: torch.cuda.allocate(99 << 30)
    except RuntimeError: pass
`
	b := newBench(t)
	b.run(true, "python3", torch(t, "2.5"), nil, "-c", source)
	b.last("torch oom")
	if got := b.heard("torch snapshot"); len(got) != 0 {
		t.Error(got)
	}
	b.run(true, "python3", torch(t, "2.5"), []string{SnapshotVariable + "=" + b.dir + "/r"}, "-c", source)
	b.last("torch snapshot")
	if got := b.heard("torch snapshot"); len(got) != 2 {
		t.Error(got)
	}
	b.run(true, "python3", torch(t, "2.5"), []string{SnapshotVariable + "=/not/there/r"}, "-c", source)
	if got := b.last("torch trouble"); !strings.Contains(got, "snapshot: ") || len(b.heard("torch trouble")) != 1 {
		t.Error(b.heard("torch trouble"))
	}
}

// The largest free block is not looked for where a snapshot would cost the program.
func TestTheLargestBlockIsNotLookedForWhereThatCosts(t *testing.T) {
	for name, set := range map[string]string{
		"a history is kept": "torch._C.history = True",
		"many blocks":       "torch.cuda._lazy_init(); torch.cuda.pools[0].blocks = [[1, True]] * 5000",
	} {
		b := newBench(t)
		o := b.run(true, "python3", torch(t, "2.5"), nil, "-c", "import torch\n"+set+"\ntorch.cuda.memory_snapshot = None\ntorch.cuda.allocate(1 << 20)\n")
		if got := b.last("torch device 0"); o != (outcome{}) || strings.Contains(got, "largest_free") || len(b.heard("torch trouble")) > 0 {
			t.Errorf("%s: %+v %q", name, o, b.heard(""))
		}
	}
}

func TestWhatGoesWrongInTheHookIsToldOnceAndToNobodyElse(t *testing.T) {
	for name, source := range map[string]string{
		"another torch":        "import torch",
		"numbers of its own":   "import torch\ntorch.cuda.memory_stats_as_nested_dict = lambda d: 1 // 0\nimport json\ntorch.cuda.allocate(1)",
		"no snapshots":         "import torch\ndef none(): raise RuntimeError('not supported')\ntorch.cuda.memory_snapshot = none\nimport json\ntorch.cuda.allocate(1 << 20)",
		"an observer it lacks": "import torch\ntorch._C._cuda_attach_out_of_memory_observer = lambda f: 1 // 0\nimport json\ntorch.cuda.allocate(1)",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			modules := torch(t, "2.5")
			if name == "another torch" {
				b.program("other/torch/__init__.py", "from . import version, cuda, autograd\n")
				b.program("other/torch/autograd.py", "")
				b.program("other/torch/cuda.py", "")
				b.program("other/torch/version.py", "cuda = '12'\n")
				modules = []string{filepath.Join(b.dir, "other")}
			}
			if o := b.run(true, "python3", modules, nil, "-c", source); o != (outcome{}) {
				t.Errorf("%+v", o)
			}
			b.last("torch trouble")
			if got := b.heard("torch trouble"); len(got) != 1 {
				t.Error(got)
			}
			if name == "no snapshots" && !strings.Contains(b.last("torch device 0"), "allocated=1048576 ") {
				t.Errorf("its other numbers are lost: %q", b.heard(""))
			}
		})
	}
}

// What counts is the least that is allocated in a window, as each step takes and gives back.
func TestGrowthIsSeenAndAStepsUpAndDownIsNot(t *testing.T) {
	const source = `
import sys
sys.path.insert(0, %q)
from muster_observe import Growth
def run(floor, hours=4):
    g, found = Growth(), 0
    for second in range(0, int(hours * 3600), 5):
        g_now = floor(second) + (second %% 60) * (50 << 20)
        found += g.grows(0, g_now, float(second))
    return found
print(run(lambda s: 4 << 30), run(lambda s: (4 << 30) + s * (1 << 20)), run(lambda s: (4 << 30) + s * 1000), run(lambda s: (1 << 30) if s < 300 else (9 << 30)))
`
	b := newBench(t)
	o := b.run(false, "python3", nil, nil, "-c", fmt.Sprintf(source, b.hook))
	if o.status != 0 {
		t.Fatalf("%+v", o)
	}
	var steady, leak, tiny, start int
	if _, err := fmt.Sscan(o.stdout, &steady, &leak, &tiny, &start); err != nil || steady != 0 || leak == 0 || tiny != 0 || start != 0 {
		t.Errorf("steady %d, leak %d, tiny %d, start %d (%v)", steady, leak, tiny, start, err)
	}
}
