//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fragmented is what torch says when its pool holds enough memory, but not in one piece.
const fragmented = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.15 GiB. GPU 0 has a total capacity of 39.56 GiB of which 6.80 GiB is free. " +
	"Including non-PyTorch memory, this process has 36.61 GiB memory in use. Of the allocated memory 31.66 GiB is allocated by PyTorch, and 4.11 GiB is reserved by PyTorch but unallocated."

// attemptOf is one of a report's attempts.
type attemptOf struct {
	Attempt                                   int
	Outcome, Class, Decision, Reason, Message string
	Changes                                   map[string]string
}

type restartReport struct {
	Outcome    string
	Exit       int
	FirstCause *struct {
		Class, Message, Host, Confidence string
		Evidence                         []string
		Numbers                          map[string]float64
	} `json:"first_cause"`
	Attempts []attemptOf
	Ranks    []struct{ Ends []struct{ Log string } }
}

func (u *user) lastReport() (r restartReport) {
	u.t.Helper()
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &r); err != nil {
		u.t.Fatal(err)
	}
	return r
}

// perAttempt is a script that does a thing on each attempt, the last one also on later ones.
// It takes down each attempt's environment.
func (u *user) perAttempt(things ...string) string {
	script := fmt.Sprintf("echo \"$RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT $PYTORCH_CUDA_ALLOC_CONF ${MICRO_BATCH_SIZE-} $*\" >> %s\ncase $TORCHELASTIC_RESTART_COUNT in\n", u.path("attempts-$RANK"))
	for i, thing := range things {
		pattern := fmt.Sprint(i)
		if i == len(things)-1 {
			pattern = "*"
		}
		script += pattern + ") " + thing + " ;;\n"
	}
	return script + "esac\n"
}

func (u *user) attemptLines(rank int) []string {
	return strings.Split(strings.TrimSpace(u.read(fmt.Sprintf("attempts-%d", rank))), "\n")
}

const oomOnRankOne = `if [ $RANK = 1 ]; then sleep 0.3; echo "` + fragmented + `" >&2; exit 1; fi; sleep 1000`

func TestWhatAnEarlierAttemptHasWrittenIsShown(t *testing.T) {
	u := newUser(t, lend(t))
	u.run("run", u.write(job{script: u.perAttempt("echo first; exit 3", "echo second"), hosts: []string{"host-z"}, more: "restart { attempts = 1 }"})).exits(0)
	for attempt, want := range map[string]string{"0": "host-z:0| first\n", "1": "host-z:0| second\n"} {
		if got := u.run("logs", "-", "--attempt", attempt).exits(0).stdout; got != want {
			t.Errorf("of attempt %s is shown %q", attempt, got)
		}
	}
	u.run("logs", "-", "--attempt", "2").exits(64).says("has no attempt 2: the newest is 1")
	u.run("logs", "-", "--attempt", "1", "-f").exits(64).says("--attempt")
}

func TestAnOOMOfFragmentationIsRestartedWithTheRulesRemedy(t *testing.T) {
	u := newUser(t, threeHosts(t))
	r := u.run("run", u.write(job{script: u.perAttempt(oomOnRankOne, "exit 0"), hosts: []string{"host-z", "host-a"}, more: `
  stop { grace = "2s" }
  restart {
    attempts = 2
    backoff  = "0s"
    on "oom.fragmentation" {
      allocator { max_split_size = "64MiB" }
      env  = { MICRO_BATCH_SIZE = 4 }
      args = ["--small"]
    }
  }`})).exits(0)
	r.says("attempt failed", "oom.fragmentation", "starting again")
	for rank := range 2 {
		lines := u.attemptLines(rank)
		if len(lines) != 2 {
			t.Fatalf("rank %d was started %d times: %q", rank, len(lines), lines)
		}
		first, second := strings.Fields(lines[0]), strings.Fields(lines[1])
		if first[1] != "0" || second[1] != "1" || second[2] != "2" || first[3] == second[3] {
			t.Errorf("rank %d: attempts %q", rank, lines)
		}
		if !strings.Contains(lines[1], "max_split_size_mb:64") || !strings.HasSuffix(lines[1], " 4 --small") || strings.Contains(lines[0], "max_split") {
			t.Errorf("rank %d: the remedy is in %q", rank, lines)
		}
	}
	rep := u.lastReport()
	if len(rep.Attempts) != 2 || rep.Attempts[0].Class != "oom.fragmentation" || rep.Attempts[0].Decision != "restart" || rep.Attempts[0].Changes["MICRO_BATCH_SIZE"] != "4" || rep.Outcome != "ok" {
		t.Errorf("report %+v", rep)
	}
}

func TestTheSameFailureUnderTheSameConditionsIsNotRestartedAgain(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.run("run", u.write(job{script: u.perAttempt("kill -SEGV $$"), hosts: []string{"host-z"}, more: `
  restart {
    attempts = 5
    backoff  = "0s"
    on "crash" {}
  }`})).exits(128 + int(syscall.SIGSEGV))
	lines := u.attemptLines(0)
	rep := u.lastReport()
	last := rep.Attempts[len(rep.Attempts)-1]
	if len(lines) > 3 || last.Decision != "end" || !strings.Contains(last.Reason, "same") {
		t.Errorf("%d attempts, the last: %+v", len(lines), last)
	}
}

func TestAMistakeOfTheProgramIsNotRestarted(t *testing.T) {
	u := newUser(t, threeHosts(t))
	r := u.run("run", u.write(job{script: u.perAttempt("printf 'Traceback (most recent call last):\\n  File \"train.py\", line 3, in <module>\\n    import trochvision\\nModuleNotFoundError: No module named \"trochvision\"\\n' >&2; exit 1"),
		hosts: []string{"host-z"}, more: "\n  restart {\n    attempts = 5\n    backoff  = \"0s\"\n  }"})).exits(1)
	r.says("ModuleNotFoundError", "user_error")
	if lines := u.attemptLines(0); len(lines) != 1 {
		t.Errorf("started %d times", len(lines))
	}
	if rep := u.lastReport(); rep.FirstCause == nil || rep.FirstCause.Class != "user_error" {
		t.Errorf("report %+v", rep)
	}
}

func TestWithoutARestartBlockThereIsOneAttempt(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.run("run", u.write(job{script: u.perAttempt(oomOnRankOne), hosts: []string{"host-z", "host-a"}, more: `stop { grace = "2s" }`})).exits(1).
		says("oom.fragmentation", "memory: 3.15 GiB asked for", "4.11 GiB of that unused", "what you can change")
	if lines := u.attemptLines(1); len(lines) != 1 {
		t.Errorf("started %d times", len(lines))
	}
	if rep := u.lastReport(); rep.FirstCause.Numbers["requested"] == 0 || rep.Attempts[0].Reason != "the job file has no restart block" {
		t.Errorf("report %+v", rep)
	}
}

// The rank that failed first is named, not those that noticed.
func TestAConsequenceIsNotTakenForTheCause(t *testing.T) {
	u := newUser(t, threeHosts(t))
	script := fmt.Sprintf("if [ $RANK = 1 ]; then touch %[1]s; sleep 0.4; echo '%[2]s' >&2; exit 1; fi\nwhile [ ! -e %[1]s ]; do sleep 0.02; done\n"+
		"echo 'RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:12345' >&2; exit 1\n", u.path("failing"), fragmented)
	u.run("run", u.write(job{script: script, hosts: []string{"host-z", "host-a"}, more: `stop { grace = "5s" }`})).exits(1).says("rank 1 on host-a ended with exit status 1")
}

func TestCtrlCDuringTheWaitForARestartEndsTheRun(t *testing.T) {
	u := newUser(t, threeHosts(t))
	l := u.start("run", u.write(job{script: u.perAttempt(oomOnRankOne), hosts: []string{"host-z", "host-a"}, more: `
  stop { grace = "1s" }
  restart {
    attempts = 9
    backoff  = "1h"
    on "oom" {
      env = { MICRO_BATCH_SIZE = 1 }
    }
    on "oom" {
      env = { MICRO_BATCH_SIZE = 2 }
    }
  }`}))
	l.waitToSay("starting again in 1h")
	began := time.Now()
	l.signal(syscall.SIGINT)
	l.wait().exits(130)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the end took %v", took)
	}
}
