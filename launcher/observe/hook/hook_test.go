//go:build linux

package hook

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds a program that a test starts.
const patience = 30 * time.Second

// pythons are those of this machine, by how they are called. Python is what muster's hook
// must get along with in any version.
var pythons = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	candidates, _ := filepath.Glob(os.ExpandEnv("$HOME/.pyenv/versions/*/bin/python"))
	for _, name := range append(candidates, "python3") {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		version, err := exec.Command(path, "-c", "import sys; print('.'.join(str(n) for n in sys.version_info[:2]))").Output()
		if err == nil {
			found[strings.TrimSpace(string(version))] = path
		}
	}
	return found
})

// fewPythons are the usual one, the oldest and the newest from 3.6 on, and where old is set
// one that is older.
func fewPythons(old bool) map[string]string {
	chosen := map[string]string{}
	minor := func(version string) (n int) {
		_, _ = fmt.Sscanf(version, "3.%d", &n) // 0 of another
		return n
	}
	byAge := slices.SortedFunc(maps.Keys(pythons()), func(a, b string) int { return cmp.Compare(minor(a), minor(b)) })
	byAge = slices.DeleteFunc(byAge, func(v string) bool {
		if minor(v) < 6 && old {
			chosen[v] = pythons()[v]
		}
		return minor(v) < 6
	})
	for _, v := range []string{byAge[0], byAge[len(byAge)-1]} {
		chosen[v] = pythons()[v]
	}
	chosen["usual"] = "python3"
	return chosen
}

// eachPython runs a test with several.
func eachPython(t *testing.T, old bool, test func(t *testing.T, python string)) {
	t.Helper()
	if len(pythons()) == 0 {
		t.Fatal("there is no python3")
	}
	for version, path := range fewPythons(old) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, path)
		})
	}
}

// bench is where a program with the hook runs, and what it tells.
type bench struct {
	t    testing.TB
	dir  string
	hook string
	conn *net.UnixConn
	mu   sync.Mutex
	told []string
	done chan struct{}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), done: make(chan struct{})}
	b.hook = filepath.Join(b.dir, "py")
	if err := Write(b.hook); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.socket(), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.done)
		buffer := make([]byte, 64<<10)
		for {
			n, err := b.conn.Read(buffer)
			if err != nil {
				return
			}
			b.mu.Lock()
			b.told = append(b.told, strings.Split(string(buffer[:n]), "\n")...)
			b.mu.Unlock()
		}
	}()
	t.Cleanup(func() { b.conn.Close(); <-b.done })
	return b
}

func (b *bench) socket() string { return filepath.Join(b.dir, "s") }

// heard is what was told so far, in lines that begin with a word.
func (b *bench) heard(begin string) (lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.told {
		if strings.HasPrefix(line, begin) {
			lines = append(lines, line)
		}
	}
	return lines
}

// last waits for a line and returns the newest.
func (b *bench) last(begin string) string {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if lines := b.heard(begin); len(lines) > 0 {
			return lines[len(lines)-1]
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("no %q was told: %q", begin, b.heard(""))
		}
	}
}

// outcome is how a program ended.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs a program, with the hook and folders of modules, or without the hook.
func (b *bench) run(hooked bool, python string, modules []string, more []string, args ...string) outcome {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, args...)
	path := strings.Join(modules, ":")
	cmd.Env = append([]string{"HOME=" + b.dir, "PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}, more...)
	if hooked {
		path = PythonPath(b.hook, path)
		cmd.Env = append(cmd.Env, "MUSTER_SOCKET="+b.socket())
	}
	if path != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+path)
	}
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil || ctx.Err() != nil {
		b.t.Fatalf("%v %v\n%s", err, ctx.Err(), stderr.String())
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// program writes a file beside the hook's folder.
func (b *bench) program(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// torch are the folders of a stand-in for torch.
func torch(t testing.TB, version string) []string {
	t.Helper()
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(here, "torch-"+version), here}
}

// What can be seen of a program that has nothing to do with torch is the same with the hook
// as without it: its path, its modules, its threads, its traceback.
func TestAProgramRunsWithTheHookAsWithoutIt(t *testing.T) {
	const source = `
import sys, threading
print([p for p in sys.path], "sitecustomize" in sys.modules, len(threading.enumerate()))
sys.stderr.write("a word\n")
raise ValueError("its own")
`
	eachPython(t, true, func(t *testing.T, python string) {
		b := newBench(t)
		path := b.program("program.py", source)
		with, without := b.run(true, python, nil, nil, path), b.run(false, python, nil, nil, path)
		if with != without || with.status != 1 {
			t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
		}
		for _, args := range [][]string{{"-c", "import sitecustomize"}, {"-c", "import torch"}, {"-W", "error", "-c", "pass"}, {"-c", "import sys; sys.exit(3)"}} {
			with, without := b.run(true, python, nil, nil, args...), b.run(false, python, nil, nil, args...)
			if with != without {
				t.Errorf("%q: with the hook: %+v\nwithout: %+v", args, with, without)
			}
		}
	})
}

func TestASitecustomizeThatIsThereRunsAsWithoutTheHook(t *testing.T) {
	for name, text := range map[string]string{
		"well":               "import builtins\nbuiltins.there = __file__\n",
		"with an error":      "raise ValueError('of the site')\n",
		"without its module": "import not_to_be_found\n",
	} {
		t.Run(name, func(t *testing.T) {
			eachPython(t, false, func(t *testing.T, python string) {
				b := newBench(t)
				site := filepath.Dir(b.program("site/sitecustomize.py", text))
				args := []string{"-c", "import builtins, sys; print(getattr(builtins, 'there', None)); import sitecustomize; print(sitecustomize.__file__)"}
				with, without := b.run(true, python, []string{site}, nil, args...), b.run(false, python, []string{site}, nil, args...)
				if with != without {
					t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
				}
				if name == "well" && !strings.Contains(with.stdout, site) {
					t.Errorf("it did not run: %+v", with)
				}
				b.last("torch python")
			})
		})
	}
}

// That of an environment lies in its site-packages, which no PYTHONPATH names.
func TestASitecustomizeInAnEnvironmentsPackagesRuns(t *testing.T) {
	b := newBench(t)
	venv := filepath.Join(b.dir, "venv")
	if out, err := exec.Command("python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(venv, "lib/python3*/site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := os.WriteFile(filepath.Join(found[0], "sitecustomize.py"), []byte("print('of the environment')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(found[0], "usercustomize.py"), []byte("print('of the user')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(venv, "bin/python")
	with, without := b.run(true, python, nil, nil, "-c", "pass"), b.run(false, python, nil, nil, "-c", "pass")
	if with != without || !strings.Contains(with.stdout, "of the environment") {
		t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
	}
	b.last("torch python")
}

func TestPythonWithoutPathsOrSiteTellsNothingAndRuns(t *testing.T) {
	for _, flag := range []string{"-S", "-I", "-E"} {
		b := newBench(t)
		if o := b.run(true, "python3", nil, nil, flag, "-c", "print('ran')"); o.status != 0 || o.stdout != "ran\n" || o.stderr != "" {
			t.Errorf("%s: %+v", flag, o)
		}
		if told := b.heard(""); len(told) > 0 {
			t.Errorf("%s: %q", flag, told)
		}
	}
}

func TestAProgramRunsOnWhereMusterIsGone(t *testing.T) {
	eachPython(t, false, func(t *testing.T, python string) {
		b := newBench(t)
		b.conn.Close()
		os.Remove(b.socket())
		o := b.run(true, python, torch(t, "2.5"), nil, "-W", "error", "-c", "import torch; torch.cuda.allocate(1 << 20); print('ran')")
		if o.status != 0 || o.stdout != "ran\n" || o.stderr != "" {
			t.Errorf("%+v", o)
		}
	})
}

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
