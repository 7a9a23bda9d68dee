//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// steps prints a step each 0.1 s, until rank 3 stops at its fifth and the others, who wait
// for it, one later.
const steps = `import os, sys, time
rank, last = int(os.environ["RANK"]), 5 if os.environ["RANK"] == "3" else 6
for step in range(1, last + 1):
    print("step", step, flush=True)
    time.sleep(0.1)
%s
time.sleep(1000)
`

func (u *user) steps(more string) []string {
	return []string{"python3", "-u", u.file("steps.py", fmt.Sprintf(steps, more))}
}

// threeSeconds are all the silence that a job allows.
const threeSeconds = `
  hang {
    silence = "3s"
    action  = "stop"
  }`

const hangStops = `
  stop { grace = "2s" }` + threeSeconds

// A rank that stops stepping and lives keeps the others waiting without an error: only that
// nothing moves tells.
func TestARankThatStopsSteppingIsNamedAndTheRunEnds(t *testing.T) {
	u := newUser(t, threeHosts(t))
	r := u.run("run", u.write(job{command: u.steps(""), hosts: []string{"host-z", "host-a"}, perHost: 2, more: hangStops})).exits(124)
	r.says("no output, no progress and no work of all 4 ranks", "rank 3 on host-a is the one to look at: it is at step 5, the others at step 6\n", "step 5")
	rep := u.lastReport()
	rep.isOf(t, "hang", "host-a")
	rep.evidenceHas(t, "rank 0 on host-z", "hrtimer_nanosleep", "pip install py-spy")
	for _, line := range rep.FirstCause.Evidence { // B03: the last line of each rank
		if last := `last line "step 6"`; strings.HasPrefix(line, "rank ") && !strings.HasSuffix(line, last) && !strings.HasPrefix(line, "rank 3 on host-a") {
			t.Errorf("%q lacks %s", line, last)
		}
	}
	if first := rep.FirstCause.Evidence[0]; !strings.HasPrefix(first, "rank 3 on host-a") || !strings.HasSuffix(first, `last line "step 5"`) {
		t.Errorf("first it says %q", first)
	}
}

func TestAHangIsExplainedByTheProgramsOwnStackHandler(t *testing.T) {
	u := newUser(t, threeHosts(t))
	handler := "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1, all_threads=True)\ndef never_comes_back():\n    time.sleep(1000)\nnever_comes_back()"
	u.run("run", u.write(job{command: u.steps(handler), hosts: []string{"host-z", "host-a"}, perHost: 2, more: hangStops})).exits(124)
	rep := u.lastReport()
	rep.evidenceHas(t, "by faulthandler in never_comes_back (", "steps.py:9)")
	// All of it lies beside the rank's output.
	for _, line := range rep.FirstCause.Evidence {
		if _, path, is := strings.Cut(line, "all of its stack: host-a:"); is {
			path, _, _ = strings.Cut(path, ";")
			home := u.bed.Host("host-a").Home
			text, err := os.ReadFile(filepath.Join(home, strings.TrimPrefix(path, "/root/")))
			if err != nil || !strings.Contains(string(text), "never_comes_back") {
				t.Errorf("%s: %v, %q", path, err, text)
			}
			return
		}
	}
	t.Errorf("no line says where the stack is: %q", rep.FirstCause.Evidence)
}

// To a program of a cluster SIGUSR1 may mean that it is to write a checkpoint and end.
func TestAProgramIsAskedForItsStackByTheSignalOfTheJobFileOnly(t *testing.T) {
	u := newUser(t, threeHosts(t))
	handler := "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR2, all_threads=True)\n" +
		"signal.signal(signal.SIGUSR1, lambda *_: open('" + u.path("asked") + "', 'w').close())"
	for name, says := range map[string]string{"SIGUSR2": "by faulthandler in <module> (", "none": `hang { signal = "none" }`} {
		more := strings.Replace(hangStops, "hang {", "hang {\n    signal = "+hclString(name), 1)
		u.run("run", u.write(job{command: u.steps(handler), hosts: []string{"host-z", "host-a"}, perHost: 2, more: more})).exits(124)
		u.lastReport().evidenceHas(t, says)
	}
	if u.exists("asked") {
		t.Error("SIGUSR1 was sent")
	}
}

// py-spy needs no help of the program.
func TestAHangIsExplainedByPySpyWhereTheHostHasIt(t *testing.T) {
	u := newUser(t, threeHosts(t))
	spy := u.file("bin/py-spy", "#!/bin/sh\n[ \"$1 $2\" = 'dump --pid' ] && grep -q python /proc/$3/comm || exit 1\n"+
		"printf 'Process %s: python\\n\\nThread %s (idle): \"MainThread\"\\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\\n    <module> (steps.py:9)\\n' $3 $3\n")
	if err := os.Chmod(spy, 0o700); err != nil {
		t.Fatal(err)
	}
	u.run("run", u.write(job{command: u.steps(""), hosts: []string{"host-z", "host-a"}, perHost: 2,
		more: fmt.Sprintf("setup = \"export PATH=%s:$PATH\"\n", filepath.Dir(spy)) + hangStops})).exits(124)
	u.lastReport().evidenceHas(t, "by py-spy in all_reduce (torch/distributed/distributed_c10d.py:2501) < <module> (steps.py:9)")
}

func TestAHangIsRestartedAndTheNextAttemptMayEndWell(t *testing.T) {
	u := newUser(t, threeHosts(t))
	script := `if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo $NCCL_P2P_DISABLE >>` + u.path("p2p") + `; exit 0; fi; echo step 1; sleep 1000`
	u.runJob(job{script: script, hosts: []string{"host-z", "host-a"}, more: `
  stop { grace = "2s" }
  restart {
    attempts = 1
    on "hang" { env = { NCCL_P2P_DISABLE = "1" } }
  }
  hang {
    silence = "3s"
    action  = "restart"
  }`}).exits(0).says("(hang); starting again")
	if got := u.read("p2p"); got != "1\n1\n" {
		t.Errorf("the second attempt had %q", got)
	}
	// Who has not watched learns of it all the same.
	u.run("report", "-").exits(0).prints("all ranks ended well", "attempt 0 (hang): no output", "started again: restart 1 of 1", "NCCL_P2P_DISABLE = 1")
	u.run("status", "-").exits(0).prints("attempt 0 failed, ", "(hang); starting again", "NCCL_P2P_DISABLE = 1")
}

func TestAHangThatIsReportedLeavesTheRunAlone(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.runJob(job{script: "echo step 1; sleep 9; echo step 2", hosts: []string{"host-z", "host-a"}, more: `hang { silence = "3s" }`}).exits(0).
		says("finding out where they are", "is S (sleeping)", "all ranks ended well")
	for _, command := range []string{"status", "report"} { // who has not watched learns of it all the same
		u.run(command, "-").exits(0).prints("no output, no progress and no work of all 2 ranks", "[silent]", "  rank 0 on host-z: ", "is S (sleeping)")
	}
}

// A stopped worker is no riddle.
func TestAWorkerThatIsStoppedIsSaidToBe(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.runJob(job{script: "echo step 1; [ $RANK = 1 ] && kill -STOP $$; sleep 1000", hosts: []string{"host-z", "host-a"}, more: hangStops}).exits(124).
		says("is stopped (SIGSTOP or a debugger)")
}

// What is silent and works is no hang, be it for long.
func TestSilentWorkIsNoHang(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"a slow start that computes", "i=0; end=$(($(date +%s) + 9)); while [ $(date +%s) -lt $end ]; do i=$((i + 1)); done; echo done"},
		{"one that reads", "end=$(($(date +%s) + 9)); while [ $(date +%s) -lt $end ]; do head -c 2000000 /dev/zero >/dev/null; sleep 0.5; done; echo done"},
		{"bursts of output", "for i in 1 2 3 4 5; do sleep 2; echo step $i; done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			newUser(t, lend(t)).runJob(job{script: c.script, hosts: []string{"host-a"}, more: hangStops}).exits(0).saysNothingOf("no output")
		})
	}
}

// A GPU that is busy without any traffic to its memory waits in a collective; one that works
// evaluates, however silent.
func TestWhetherAGPUWorksDecidesWhetherSilenceIsAHang(t *testing.T) {
	for _, c := range []struct {
		name   string
		work   gpus.Utilization
		status int
	}{
		{"NCCL waits", gpus.Utilization{GPU: 100}, 124},
		{"at rest", gpus.Utilization{}, 124},
		{"evaluation", gpus.Utilization{GPU: 85, Memory: 30}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, theMachines(t))
			change := atWork(t, "l40s", gpus.Utilization{GPU: 90, Memory: 40}, gpus.Utilization{GPU: 90, Memory: 40})
			l := u.start("run", u.onDevice("l40s", fmt.Sprintf("touch %s/ready-$RANK; exec cudaworker -bytes 1GiB -for 14s", u.dir), threeSeconds, machinesOwn))
			u.waitReady(2)
			time.Sleep(3 * time.Second) // at work at first, or the CPUs' work would count
			change(c.work, c.work)
			r := l.wait().exits(c.status)
			if c.status == 0 {
				r.saysNothingOf("no output")
			}
		})
	}
}

// Where the way between GPUs does not work the first collective hangs, at which the CPUs spin.
func TestAFirstCollectiveThatHangsIsFoundThoughCPUsSpin(t *testing.T) {
	u := newUser(t, theMachines(t))
	atWork(t, "l40s", gpus.Utilization{GPU: 100}, gpus.Utilization{GPU: 100})
	u.run("run", u.onDevice("l40s", "cudaworker -bytes 1GiB -for 5m & while :; do :; done", threeSeconds, machinesOwn)).exits(124)
}

// An independent rank hangs alone, and is ended alone.
func TestAnIndependentRankThatHangsIsEndedAlone(t *testing.T) {
	u := newUser(t, lend(t))
	u.runJob(job{script: "echo step 1; [ $MUSTER_RANK = 1 ] && sleep 1000; for i in 1 2 3 4 5 6 7 8; do sleep 1; echo step $i; done", hosts: three, more: alone + threeSeconds}).exits(124).says("of 3 ranks: 2 ended well, 1 failed (1)", "no work of rank 1")
}

// One rank that lags while the others go on is said, and ends nothing.
func TestARankThatKeepsTheOthersWaitingIsNamedAStraggler(t *testing.T) {
	u := newUser(t, threeHosts(t))
	script := `import os, socket, time
def tell(*words, to=socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)):
    to.sendto(" ".join(map(str, words)).encode(), socket.MSG_DONTWAIT, os.environ["MUSTER_SOCKET"])
late = os.environ["RANK"] == "1"
for step in range(1, 60):
    if not late or step < 3: tell("step", step)
    time.sleep(0.2)
`
	u.run("run", u.write(job{command: []string{"python3", u.file("lag.py", script)}, hosts: []string{"host-z", "host-a"}, more: `hang { silence = "8s" }`})).exits(0).
		says("rank 1 on host-a keeps the others waiting: it is at step 2, the others at step").saysNothingOf("no output, no progress")
}
