//go:build linux

package endtoend

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// python is a script that has Python run a program as the worker.
func python(program string) string { return "exec python3 -c '\n" + program + "'" }

// The second rank of two fails; the first does nothing.
func TestEachKindOfFailureHasItsClass(t *testing.T) {
	bed := threeHosts(t)
	smallDisk(t, bed.Host("host-a"), "/root/small", "256k")
	for _, c := range []struct {
		name, script, class string
		status              int
		evidence            []string
	}{
		{"a crash", python("import ctypes\nctypes.string_at(0)"), "crash.segv", 139, []string{"killed by SIGSEGV"}},
		{"a crash behind a shell", "sh -c 'kill -SEGV $$'; exit $?", "crash.segv", 139, []string{"a shell"}},
		{"abort", python("import os\nos.abort()"), "crash.abort", 134, []string{"SIGABRT"}},
		{"a full disk", "cd /root/small; " + python("f = open(\"last.pt\", \"wb\", 0)\nwhile True: f.write(bytes(65536))"), "disk_full", 1, []string{"No space left on device"}},
		{"an exception that only the error file has", `printf '{"message": {"message": "ValueError: no such layer: 7", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n  File \\"/x/train.py\\", line 9, in main\\n    forward()\\nValueError: no such layer: 7\\n", "timestamp": "1700000000"}}}' >$TORCHELASTIC_ERROR_FILE; exit 1`,
			"user_error", 1, []string{"ValueError: no such layer: 7"}},
		{"wrong arguments", python("import argparse\nargparse.ArgumentParser().parse_args([\"--lr\"])"), "user_error", 2, []string{"unrecognized arguments"}},
		{"a port of its own", python("import socket\na, b = socket.socket(), socket.socket()\na.bind((\"\", 0))\na.listen()\nb.bind(a.getsockname())"),
			"port_in_use", 1, []string{"Address already in use"}},
		{"a status alone", "exit 3", "exit", 3, []string{"exit status was 3"}},
		{"a time limit", "timeout 0.1 sleep 10; exit $?", "time_limit", 124, nil},
		{"a signal of somebody", "kill -USR1 $$", "killed.unknown", 138, []string{"SIGUSR1"}},
		{"a peer's end", "echo 'RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:12345' >&2; exit 1", "gloo.remote", 1, []string{"Connection closed by peer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			r := u.runJob(job{script: "[ $RANK = 1 ] || exec sleep 1000\n" + c.script, hosts: []string{"host-z", "host-a"}, more: `stop { grace = "2s" }`}).
				exits(c.status).says("✗ rank 1 on host-a", c.class, "rank 0: stopped by muster (SIGTERM)")
			rep := u.lastReport()
			rep.isOf(t, c.class, "host-a")
			rep.evidenceHas(t, c.evidence...)
			if c.class != "oom.host" {
				r.saysNothingOf("oom.")
			}
		})
	}
}

// The file system of the evidence is that which is full.
func TestTheFullDiskIsNamed(t *testing.T) {
	bed := threeHosts(t)
	h := bed.Host("host-a")
	smallDisk(t, h, "/root/full", "256k")
	u := newUser(t, bed)
	u.runJob(job{script: python("f = open(\"last.pt\", \"wb\", 0)\nwhile True: f.write(bytes(65536))"), hosts: []string{"host-a"}, more: `workdir = "/root/full"`}).exits(1)
	rep := u.lastReport()
	rep.isOf(t, "disk_full", "host-a")
	rep.evidenceHas(t, "/root/full has 0 bytes free")
}

func TestTheRanksOnOneGPUAreShownWithTheirDevices(t *testing.T) {
	u := newUser(t, theMachines(t))
	// What NCCL's init.cc says, by PCI bus and by the ranks of the communicator.
	script := "[ $RANK = 1 ] || exec sleep 1000\n" +
		"echo 'l40s:41:41 [0] init.cc:1154 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000' >&2\n" +
		"echo 'torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, invalid usage, NCCL version 2.27.5' >&2; exit 1"
	r := u.run("run", u.onDevice("l40s", script, machinesOwn)).exits(1).says("duplicate_gpu", "does the script choose by LOCAL_RANK?")
	u.lastReport().isOf(t, "duplicate_gpu", "l40s")
	all := cards(t, "l40s")
	for rank := range 2 {
		found := false
		for _, line := range r.finalScreen() {
			fields := strings.Fields(line)
			found = found || len(fields) == 6 && fields[0] == fmt.Sprint(rank) && fields[1] == "l40s" && fields[5] == all[rank].UUID
		}
		if !found {
			t.Errorf("the device of rank %d is not shown:\n%s", rank, r.stderr)
		}
	}
}

func TestAnOOMThatWasSurvivedIsSaidAndIsNoFailure(t *testing.T) {
	u := newUser(t, threeHosts(t))
	r := u.runJob(job{script: "[ $RANK = 0 ] || { echo '" + fragmented + "' >&2; echo 'trying again with half the batch'; echo 'step 40/40'; }\nexit 0", hosts: three,
		more: "restart { attempts = 3 }"}).exits(0).says("ranks 1, 2: ", "CUDA out of memory", "oom.fragmentation")
	rep := u.lastReport()
	if rep.Outcome != "ok" || rep.FirstCause != nil || len(rep.Attempts) != 1 {
		t.Errorf("the report has %+v", rep)
	}
	if warnings := u.run("report", "-", "--json").exits(0).stdout; !strings.Contains(warnings, "CUDA out of memory") {
		t.Errorf("the report says nothing of it: %s", warnings)
	}
	if n := strings.Count(r.stderr, "ranks 1, 2: "); n != 1 {
		t.Errorf("it is said %d times", n)
	}
}

// What is wrong with a machine, or with the program's choice of a device, is not tried again.
func TestAFailureThatBelongsToAGPUNamesItAndIsNotTriedAgain(t *testing.T) {
	for _, c := range []struct {
		class, words, reason string
		says                 string
	}{
		{"gpu.lost", "torch.AcceleratorError: CUDA error: GPU is lost", "belongs to l40s", "GPU 1 of l40s"},
		{"gpu.ecc", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "belongs to l40s", "GPU 1 of l40s"},
		// Rank 1 has the second device, and fills the first.
		{"oom.imbalance", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 44.99 GiB of which 1.00 GiB is free. " +
			"Including non-PyTorch memory, this process has 20.00 GiB memory in use. Of the allocated memory 19.00 GiB is allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but unallocated.",
			"comes again", "GPU 0, which the plan gave to another rank"},
	} {
		t.Run(c.class, func(t *testing.T) {
			u := newUser(t, theMachines(t))
			script := "[ $RANK = 1 ] || exec sleep 1000\necho '" + c.words + "' >&2; exit 1"
			u.run("run", u.onDevice("l40s", script, machinesOwn, "restart {\n attempts = 3\n backoff = \"0s\"\n}")).
				exits(1).says(c.class, c.says).saysNothingOf("starting again")
			rep := u.lastReport()
			rep.isOf(t, c.class, "l40s")
			if len(rep.Attempts) != 1 || !strings.Contains(rep.Attempts[0].Reason, c.reason) {
				t.Errorf("attempts %+v", rep.Attempts)
			}
		})
	}
}

// Another attempt would be on the same hosts.
func TestALostHostOrAgentIsNamedAndEndsTheRunThoughRestartsAreLeft(t *testing.T) {
	for _, c := range []struct {
		class string
		lose  func(t *testing.T, h *testbed.Host)
	}{
		{"agent.lost", func(t *testing.T, h *testbed.Host) { signalTo(t, h, inRole(t, h, agent), syscall.SIGKILL) }},
		{"host.lost", func(t *testing.T, h *testbed.Host) {
			if err := h.CutSilently(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.class, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			l := u.start("run", u.write(job{script: fmt.Sprintf(obedient, u.dir), hosts: three, more: shortLease + "restart {\n attempts = 3\n backoff = \"0s\"\n}"}))
			l.waitRunning(u, 3)
			c.lose(t, bed.Host("host-a"))
			l.wait().exits(69).says("host-a").saysNothingOf("starting again")
			rep := u.lastReport()
			rep.isOf(t, c.class, "host-a")
			if len(rep.Attempts) != 1 || rep.Attempts[0].Decision != "end" || !strings.Contains(rep.Attempts[0].Reason, "belongs to host-a") {
				t.Errorf("attempts %+v", rep.Attempts)
			}
		})
	}
}

// Hosts whose clocks began at other times. What ranks say of each other's end is ordered by
// the coordinator's.
func TestWhatCameFirstIsFoundOverClocksThatDiffer(t *testing.T) {
	bed := ownBed(t, testbed.Options{Hosts: 2, Each: func(i int, h *testbed.HostOptions) {
		h.ClockOffset = []time.Duration{0, 5 * time.Hour}[i]
	}})
	const peer = "echo 'RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:12345' >&2; exit 1\n"
	const pipe = "echo 'BrokenPipeError: [Errno 32] Broken pipe' >&2; exit 1\n"
	// The early one makes a file before its end, the late one waits for it and then so long.
	for _, c := range []struct {
		name        string
		early       int
		words, late string
		cause       int
		class       string
	}{
		{"rank 0 notices first", 0, peer, peer, 0, "gloo.remote"},
		{"rank 1 notices first", 1, peer, peer, 1, "gloo.remote"},
		{"rank 0 only notices the cause", 0, pipe, "kill -SEGV $$", 1, "crash.segv"},
		{"rank 1 only notices the cause", 1, peer, "kill -SEGV $$", 0, "crash.segv"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			hosts := []string{"node1", "node2"}
			u.runJob(job{script: fmt.Sprintf("touch %[1]s/here-$RANK; while [ ! -e %[1]s/here-0 ] || [ ! -e %[1]s/here-1 ]; do sleep 0.02; done\n"+
				"if [ $RANK = %[2]d ]; then touch %[1]s/ends; %[3]sfi\nwhile [ ! -e %[1]s/ends ]; do sleep 0.02; done\nsleep 0.4\n%[4]s", u.dir, c.early, c.words, c.late),
				hosts: hosts, more: `stop { grace = "2s" }`}).says(fmt.Sprintf("✗ rank %d on %s", c.cause, hosts[c.cause]))
			u.lastReport().isOf(t, c.class, hosts[c.cause])
		})
	}
}

// B17, B38
func TestRanksKeepTheirPlacesAndTheOldOnesAreGoneBeforeTheNextAttempt(t *testing.T) {
	u := newUser(t, threeHosts(t))
	// Rank 0 holds its port for a while after it was told to end.
	script := u.perAttempt(`if [ $RANK = 0 ]; then exec python3 -c '
import os, signal, socket, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(os.environ["MASTER_PORT"])))
s.listen()
def end(*_):
    time.sleep(1)
    open("`+u.path("released")+`", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open("`+u.path("listens")+`", "w").close()
time.sleep(1000)'
fi
while [ ! -e `+u.path("listens")+` ]; do sleep 0.02; done
[ $RANK = 1 ] && exit 7; exec sleep 1000`, "ls "+u.path("released")+" && echo at $(hostname)")
	r := u.runJob(job{script: script, hosts: three, more: "stop { grace = \"20s\" }\nrestart {\n attempts = 1\n backoff = \"0s\"\n on \"exit\" {}\n}"}).exits(0)
	for rank, host := range three {
		lines := u.attemptLines(rank)
		if len(lines) != 2 {
			t.Fatalf("rank %d was started %d times", rank, len(lines))
		}
		first, second := strings.Fields(lines[0]), strings.Fields(lines[1])
		if first[1] != "0" || second[1] != "1" || first[3] == second[3] {
			t.Errorf("rank %d: %q", rank, lines)
		}
		if got := strings.Join(r.linesOf(host, rank), "\n"); !strings.HasSuffix(got, "at "+host) {
			t.Errorf("rank %d of the second attempt said %q: it is on another host, or the first attempt's rank 0 was still there", rank, got)
		}
	}
}
