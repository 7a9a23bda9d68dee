//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// theFiveLines are those that README.md gives to programs, less the example of a call.
func theFiveLines(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```python\n")
	lines, _, found := strings.Cut(after, "```\n")
	if !found || strings.Count(lines, "\n") != 5 {
		t.Fatalf("README.md has no five lines of Python: %q", lines)
	}
	return strings.TrimSuffix(lines, "tell(\"step\", 1200)\n")
}

// telling is a program of the user's that begins with the five lines.
func (u *user) telling(source string) (script string) {
	u.t.Helper()
	return u.perAttempt("exec python3 " + u.file("telling.py", theFiveLines(u.t)+"import signal, subprocess, sys, time\nattempt, rank = int(os.environ['TORCHELASTIC_RESTART_COUNT']), int(os.environ['RANK'])\n"+source))
}

const threeCrashes = `
  stop { grace = "2s" }
  restart {
    attempts = 3
    backoff  = "0s"
    on "crash" { attempts = 3 }
  }`

// dies ends a rank by a crash that is the same each time.
const dies = "os.kill(os.getpid(), signal.SIGSEGV)\n"

func TestAProgramThatTellsOfFurtherStepsIsStartedAgain(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.run("run", u.write(job{script: u.telling(`
for step in range(attempt * 10, attempt * 10 + 10):
    tell("step", step)
if attempt < 3:
    ` + dies), hosts: []string{"host-z"}, more: threeCrashes})).exits(0)
	rep := u.lastReport()
	if len(rep.Attempts) != 4 || rep.Outcome != "ok" {
		t.Errorf("report %+v", rep)
	}
}

func TestAProgramThatTellsOfNoStepIsNotStartedAgainForTheSameFailure(t *testing.T) {
	for name, source := range map[string]string{
		"nothing":                   dies,
		"the same steps each time":  "tell('step', 1); tell('step', 9)\n" + dies,
		"numbers that are no steps": "tell('value', 'loss', 9 - attempt); tell('phase', 'train')\n" + dies,
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, threeHosts(t))
			u.run("run", u.write(job{script: u.telling(source), hosts: []string{"host-z"}, more: threeCrashes})).exits(128 + int(syscall.SIGSEGV))
			rep := u.lastReport()
			if last := rep.Attempts[len(rep.Attempts)-1]; len(rep.Attempts) != 2 || !strings.Contains(last.Reason, "same") {
				t.Errorf("%d attempts, the last %+v", len(rep.Attempts), last)
			}
		})
	}
}

// Rank 0 tells for all, as most programs do, and another one dies.
func TestTheStepsOfRankZeroCountForTheOthers(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.run("run", u.write(job{script: u.telling(fmt.Sprintf(`
told = %q + "told-%%d" %% attempt
if rank == 0:
    for step in range(attempt * 10, attempt * 10 + 10):
        tell("step", step)
        time.sleep(0.15)
    open(told, "w").close()
if attempt == 2:
    sys.exit(0)
while not os.path.exists(told):
    time.sleep(0.02)
if rank == 1:
    time.sleep(1.5)
    `+dies+`
time.sleep(1000)
`, u.dir+"/")), hosts: []string{"host-z", "host-a"}, more: threeCrashes})).exits(0)
	if rep := u.lastReport(); len(rep.Attempts) != 3 || rep.Outcome != "ok" {
		t.Errorf("report %+v", rep)
	}
}

// observedOf is what a command tells as JSON of what ranks have told.
type observedOf struct {
	Progress struct{ Step, Epoch *int }
	Phase    string
	Values   map[string]any
	Refused  int
	Torch    *struct{ State, Why string }
}

func TestStatusShowsWhatRanksTellWhileTheyRunAndTheReportAtTheEnd(t *testing.T) {
	u := newUser(t, threeHosts(t))
	l := u.start("run", u.write(job{script: u.telling(fmt.Sprintf(`
tell("epoch", 2); tell("step", 40 + rank); tell("phase", "eval"); tell("value", "loss", 0.5); tell("value", "grad", "nan"); tell("rubbish")
subprocess.check_call([sys.executable, "-c", "import socket, os; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'value child 1', os.environ['MUSTER_SOCKET'])"])
open(%q + str(rank), "w").close()
while not os.path.exists(%q):
    time.sleep(0.02)
tell("step", 99)
sys.exit(3)
`, u.path("ready-"), u.path("go"))), hosts: []string{"host-z", "host-a"}}))
	u.waitReady(2)
	var status struct {
		Ranks []struct{ Observed *observedOf }
	}
	eventually(t, "both ranks' words are in muster status", func() bool {
		if err := json.Unmarshal([]byte(u.run("status", "-", "--json").exits(0).stdout), &status); err != nil {
			t.Fatal(err)
		}
		return status.Ranks[0].Observed != nil && status.Ranks[1].Observed != nil
	})
	for rank, r := range status.Ranks {
		o := r.Observed
		if *o.Progress.Epoch != 2 || *o.Progress.Step != 40+rank || o.Phase != "eval" || o.Values["loss"] != 0.5 || o.Values["grad"] != "nan" || o.Values["child"] != 1.0 || o.Refused != 1 || o.Torch != nil {
			t.Errorf("rank %d: %+v", rank, o)
		}
	}
	if shown := u.run("status", "-").exits(0).stdout; !strings.Contains(shown, "TELLS") || !strings.Contains(shown, "epoch 2, step 41, eval") {
		t.Errorf("muster status shows %s", shown)
	}
	u.file("go", "")
	l.wait().exits(3).says("it had come to epoch 2, step 99, in phase eval")
	var rep struct {
		Ranks []struct {
			Ends []struct{ Observed *observedOf }
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	for rank, r := range rep.Ranks {
		if o := r.Ends[0].Observed; o == nil || o.Phase != "eval" {
			t.Errorf("rank %d: %+v", rank, o)
		}
	}
	if shown := u.run("status", "-").exits(0).stdout; !strings.Contains(shown, "epoch 2, step 99") {
		t.Errorf("muster status shows %s", shown)
	}
}

// A program that tells all the time, and one whose muster does not read, run at their own pace.
func TestAProgramIsNeverHeldUpByWhatItTells(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.run("run", u.write(job{script: u.telling(`
agent = os.getppid()
os.kill(agent, signal.SIGSTOP)
try:
    began = time.monotonic()
    for i in range(100000):
        tell("value", "i", i)
    took = time.monotonic() - began
finally:
    os.kill(agent, signal.SIGCONT)
print("took", took)
sys.exit(0 if took < 20 else 1)
`), hosts: []string{"host-z"}, more: longLease})).exits(0)
}

func TestTorchsNumbersAreMissedWithTheReason(t *testing.T) {
	u := newUser(t, threeHosts(t))
	for _, c := range []struct{ name, command, state, why string }{
		{"no Python", "exec sleep 0.2", "not_seen", "-S, -I or -E"},
		{"Python without its site", "exec python3 -S -c pass", "not_seen", "-S, -I or -E"},
		{"Python without torch", "exec python3 -c pass", "waiting", "torch is not imported"},
	} {
		u.run("run", u.write(job{script: c.command, hosts: []string{"host-z"}, more: "observe { torch = true }"})).exits(0)
		var rep struct {
			Ranks []struct {
				Ends []struct{ Observed *observedOf }
			}
		}
		if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
			t.Fatal(err)
		}
		o := rep.Ranks[0].Ends[0].Observed
		if o == nil || o.Torch == nil || o.Torch.State != c.state || !strings.Contains(o.Torch.Why, c.why) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// standIn copies the stand-in for torch 2.5 to where all hosts see it.
func (u *user) standIn() (pythonPath string) {
	u.t.Helper()
	if err := os.CopyFS(u.path("standin"), os.DirFS(filepath.Join(tree, "launcher/observe/hook/testdata"))); err != nil {
		u.t.Fatal(err)
	}
	return u.path("standin/torch-2.5") + ":" + u.path("standin")
}

// The text of the error has no numbers; what torch had told before stands on the screen, and
// its snapshot beside the output. A sitecustomize of the user's runs all the same.
func TestAnOutOfMemoryWithoutNumbersShowsWhatTorchHadTold(t *testing.T) {
	u := newUser(t, threeHosts(t))
	site := filepath.Dir(u.file("site/sitecustomize.py", "print('the site is customized')\n"))
	path := u.standIn() + ":" + site
	r := u.run("run", u.write(job{script: "exec python3 " + u.file("oom.py", `
import torch
torch.cuda.allocate(3 << 30)
torch.cuda.allocate(1 << 30)
torch.cuda.free(1 << 30)
try:
    torch.cuda.allocate(9 << 30)
except torch.cuda.OutOfMemoryError:
    raise RuntimeError("CUDA error: out of memory")
`), hosts: []string{"host-z"}, more: fmt.Sprintf("env = { PYTHONPATH = %q }\nobserve {\n torch = true\n snapshot = true\n}", path)})).exits(1)
	r.says("oom.", "torch itself told", "memory: 9.00 GiB asked for, 3.00 GiB in tensors, 4.00 GiB held by torch, 1.00 GiB of that unused", "6.00 GiB free", "10.00 GiB in all")
	if !strings.Contains(r.stdout, "the site is customized") {
		t.Errorf("the user's sitecustomize has not run: %s", r.stdout)
	}
	var rep struct {
		Ranks []struct {
			Ends []struct {
				Log      string
				Observed struct {
					Torch struct {
						State, Version, Trouble string
						Devices                 []struct{ Device, Allocated, Reserved, OOMs int }
						Snapshots               []string
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	end := rep.Ranks[0].Ends[0]
	told := end.Observed.Torch
	if told.State != "reporting" || told.Trouble != "" || len(told.Devices) != 1 || told.Devices[0].Allocated != 3<<30 || told.Devices[0].Reserved != 4<<30 || told.Devices[0].OOMs != 1 {
		t.Errorf("%+v", told)
	}
	if len(told.Snapshots) != 1 || filepath.Dir(told.Snapshots[0]) != filepath.Dir(end.Log) || len(onHost(u.bed.Host("host-z"), told.Snapshots[0])) != 1 {
		t.Errorf("snapshots %q beside %s", told.Snapshots, end.Log)
	}
}

func TestIndependentRanksTellEachForItself(t *testing.T) {
	u := newUser(t, threeHosts(t))
	program := u.file("telling.py", theFiveLines(t)+`
import signal, time
rank, attempt = int(os.environ["MUSTER_RANK"]), int(os.environ["MUSTER_ATTEMPT"])
tell("phase", "of rank %d" % rank)
for step in range(attempt * 10, attempt * 10 + 5):
    if rank == 0: tell("step", step)
if rank == 1 or attempt < 3:
    `+dies)
	u.run("run", u.write(job{command: []string{"python3", program}, hosts: []string{"host-z", "host-a"}, more: "\n  mode = \"independent\"" + threeCrashes})).exits(128 + int(syscall.SIGSEGV))
	var rep struct {
		Ranks []struct {
			Ends []struct {
				Decision, Reason string
				Observed         *observedOf
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	if first, second := len(rep.Ranks[0].Ends), len(rep.Ranks[1].Ends); first != 4 || second != 2 {
		t.Errorf("rank 0, which tells of further steps, was started %d times, and rank 1, which tells of none, %d times: %+v", first, second, rep.Ranks)
	}
	for rank, r := range rep.Ranks {
		for attempt, end := range r.Ends {
			o := end.Observed
			if o == nil || o.Phase != fmt.Sprintf("of rank %d", rank) || rank == 0 && *o.Progress.Step != attempt*10+4 || rank == 1 && o.Progress.Step != nil {
				t.Errorf("rank %d, attempt %d: %+v", rank, attempt, o)
			}
		}
	}
}

// What NVML sees and what torch tells of the same device stand side by side, while the run
// goes on and in its peaks.
func TestTorchsNumbersStandBesideNVMLs(t *testing.T) {
	u := newUser(t, theMachines(t))
	program := u.file("training.py", fmt.Sprintf(`
import os, time
import torch
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.allocate((2 + rank) << 30, device=rank)
torch.cuda.allocate(1 << 30, device=rank)
torch.cuda.free(1 << 30, device=rank)
while not os.path.exists(%q):
    time.sleep(0.05)
`, u.path("end")))
	script := fmt.Sprintf("cudaworker -bytes 5GiB -until %s &\nexec python3 %s", u.path("end"), program)
	run := u.start("run", u.onDevice("l40s", script, machinesOwn, fmt.Sprintf("env = { PYTHONPATH = %q }\nobserve {\n torch = true\n}", u.standIn())))
	eventually(t, "status tells what torch holds", func() bool {
		s := u.sampledNow()
		return s.now(0, "allocated") == 2*gib && s.now(0, "reserved") == 3*gib && s.now(0, "largest_free") == gib && s.now(0, "process") == 5*gib &&
			s.now(1, "allocated") == 3*gib && s.now(1, "reserved") == 4*gib && s.now(1, "device_used") >= 5*gib
	})
	u.run("status", "-").exits(0).prints("TENSORS", "RESERVED", "2.0 GiB", "TELLS")
	u.file("end", "")
	run.wait().exits(0)
}
