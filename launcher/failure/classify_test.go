package failure

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/progress"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

type row struct {
	name       string
	evidence   Evidence
	class      string
	confidence string
	restart    class.Restart
	says       string // that the message contains
	shows      string // that evidence or notes contain
}

func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			v := Classify(r.evidence)
			if v.Class != r.class || r.confidence != "" && v.Confidence != r.confidence || r.restart != "" && v.Restart != r.restart {
				t.Errorf("%s, %s, %s; want %s, %s, %s", v.Class, v.Confidence, v.Restart, r.class, r.confidence, r.restart)
			}
			if !strings.Contains(v.Message, r.says) || strings.HasSuffix(v.Message, ".") || strings.Contains(v.Message, "\n") {
				t.Errorf("it says %q, want %q", v.Message, r.says)
			}
			if all := strings.Join(append(slices.Clone(v.Evidence), v.Notes...), "\n"); !strings.Contains(all, r.shows) {
				t.Errorf("%s\nlacks %q", all, r.shows)
			}
		})
	}
}

func wrote(words string) Evidence {
	return Evidence{Code: 1, Worker: evidence.Worker{Stderr: []byte(words)}}
}

func traceback(last string) string {
	return "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 12, in <module>\n    main()\n  File \"/home/u/model.py\", line 40, in forward\n    return f(x)\n" + last + "\n"
}

func count(n uint64) *uint64 { return &n }

// B31: what is said of SIGKILL.
func TestSIGKILLIsForWantOfMemoryOnlyWhereThatIsCounted(t *testing.T) {
	killed := Evidence{Signal: "SIGKILL"}
	grew := Evidence{Signal: "SIGKILL", Worker: evidence.Worker{Memory: evidence.Memory{CgroupBefore: count(0), CgroupAfter: count(1), Limit: 32 << 30, Peak: 32 << 30}}}
	shell := grew
	shell.Signal, shell.Code = "", 137
	torchrun := wrote(readSample(t, "037-torchrun-sigkill-rank0.txt"))
	torchrun.Memory = grew.Memory
	still := evidence.Memory{CgroupBefore: count(2), CgroupAfter: count(2), HostBefore: count(7), HostAfter: count(7)}
	run(t, []row{
		{"nothing is known", killed, class.KilledUnknown, verdict.Likely, class.Maybe, "SIGKILL (9), which muster did not send", "dmesg"},
		{"the cgroup counted a kill", grew, class.OOMHost, verdict.Certain, class.No, "memory limit of its cgroup was reached (32.00 GiB; the most in use was 32.00 GiB)", "0 -> 1"},
		{"a shell says 137 for it", shell, class.OOMHost, verdict.Likely, class.No, "memory limit of its cgroup", "137"},
		{"torchrun within the worker says it", torchrun, class.OOMHost, verdict.Likely, class.No, "memory limit of its cgroup", "0 -> 1"},
		{"the host counted a kill", Evidence{Signal: "SIGKILL", Worker: evidence.Worker{Memory: evidence.Memory{HostBefore: count(3), HostAfter: count(4)}}}, class.OOMHost, verdict.Likely, class.No, "the host ran out of memory", "3 -> 4"},
		{"the host counted one for a cgroup's limit, in a container", Evidence{Signal: "SIGKILL", Worker: evidence.Worker{PIDs: []int{9}, Memory: evidence.Memory{HostBefore: count(3), HostAfter: count(4)}, Kernel: []string{"Memory cgroup out of memory: Killed process 4321 (python) total-vm:9kB, anon-rss:8kB"}}}, class.OOMHost, verdict.Likely, class.No, "limit of a cgroup", "process 4321"},
		{"of two kills one was the host's", Evidence{Signal: "SIGKILL", Worker: evidence.Worker{PIDs: []int{9}, Memory: evidence.Memory{HostBefore: count(3), HostAfter: count(5)}, Kernel: []string{"Out of memory: Killed process 77 (java)", "Memory cgroup out of memory: Killed process 4321 (python)"}}}, class.OOMHost, verdict.Likely, class.No, "the host ran out of memory", "3 -> 5"},
		{"nobody counted one", Evidence{Signal: "SIGKILL", Worker: evidence.Worker{Memory: still}}, class.KilledUnknown, verdict.Likely, class.Maybe, "the kernel counted no kill", "did not change"},
		{"a shell's 137", Evidence{Code: 137}, class.KilledUnknown, verdict.Likely, class.Maybe, "SIGKILL (9)", "137"},
		{"a wrapper's 247", Evidence{Code: 247}, class.KilledUnknown, verdict.Guess, class.Maybe, "SIGKILL", "256-9, maybe SIGKILL reported by a wrapper"},
		{"an exception that it had logged before ends nobody by SIGKILL", with(grew, func(e *Evidence) { e.Stderr = []byte(traceback("ValueError: x")) }), class.OOMHost, verdict.Certain, class.No, "cgroup", "ValueError: x"},
		{"nor does a status of -1", Evidence{Code: 255}, class.Exit, "", "", "exit status 255", ""},
		{"muster's own", Evidence{Signal: "SIGKILL", Sent: "SIGKILL"}, class.Stopped, verdict.Certain, class.Never, "stopped by muster (SIGKILL)", ""},
		{"the kernel's log has another process", Evidence{Signal: "SIGKILL", Worker: evidence.Worker{PIDs: []int{9}, Kernel: []string{"Out of memory: Killed process 123, UID 48, (httpd)"}}}, class.KilledUnknown, verdict.Likely, class.Maybe, "", ""},
		{"a data-loader process was killed and counted", with(wrote(traceback("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.")), func(e *Evidence) { e.Memory = grew.Memory }),
			class.OOMHost, verdict.Certain, class.No, "data-loader", "0 -> 1"},
		{"a data-loader process was killed and nobody counted it", with(wrote(traceback("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.")), func(e *Evidence) { e.Memory = still }),
			class.KilledUnknown, verdict.Likely, class.Maybe, "a process that it had started", "did not change"},
		{"a child was killed and the rank says nothing", Evidence{Code: 1, Worker: evidence.Worker{Memory: grew.Memory}}, class.OOMHost, "", "", "cgroup", "exit status was 1"},
	})
	if v := Classify(grew); v.Numbers[verdict.NumCgroup] != 1 || v.Numbers[verdict.NumLimit] != 32<<30 {
		t.Errorf("%v", v.Numbers)
	}
}

func with(e Evidence, change func(*Evidence)) Evidence {
	change(&e)
	return e
}

func readSample(t *testing.T, name string) string {
	t.Helper()
	for _, s := range samples(t) {
		if s.Name == name {
			return s.text
		}
	}
	t.Fatal(name)
	return ""
}

// B72: signals are named, and SIGBUS comes with /dev/shm.
func TestCrashesAreNamed(t *testing.T) {
	small := &evidence.Space{Path: "/dev/shm", Total: 64 << 20, Free: 1 << 20}
	large := &evidence.Space{Path: "/dev/shm", Total: 64 << 30, Free: 60 << 30}
	run(t, []row{
		{"a full /dev/shm", Evidence{Signal: "SIGBUS", Worker: evidence.Worker{Shm: small}}, class.OOMShm, verdict.Likely, class.WithConfig, "/dev/shm has 1 MiB free of 64 MiB", "1 MiB free"},
		{"room in /dev/shm", Evidence{Signal: "SIGBUS", Worker: evidence.Worker{Shm: large}}, class.CrashBus, verdict.Certain, class.Maybe, "SIGBUS", "60.00 GiB free"},
		{"nothing is known of it", Evidence{Signal: "SIGBUS"}, class.CrashBus, "", "", "SIGBUS", ""},
		{"a shell's 135", Evidence{Code: 135, Worker: evidence.Worker{Shm: small}}, class.OOMShm, verdict.Likely, "", "", "135"},
		{"a wrapper's 249", Evidence{Code: 249}, class.CrashBus, verdict.Guess, "", "perhaps", "exit status was 249 (= 256-7, maybe SIGBUS reported by a wrapper)"},
		{"a wrapper's 245", Evidence{Code: 245}, class.CrashSegv, verdict.Guess, "", "perhaps", "256-11, maybe SIGSEGV"},
		{"SIGSEGV", Evidence{Signal: "SIGSEGV"}, class.CrashSegv, verdict.Certain, class.Maybe, "SIGSEGV", ""},
		{"SIGABRT", Evidence{Signal: "SIGABRT"}, class.CrashAbort, "", "", "abort()", ""},
		{"SIGABRT after a watchdog", with(wrote(readSample(t, "047-nccl-timeout-pt1x.txt")), func(e *Evidence) { e.Signal = "SIGABRT" }), class.NCCLTimeout, "", class.Yes, "", ""},
		{"SIGABRT after bad_alloc", with(wrote("terminate called after throwing an instance of 'std::bad_alloc'\n"), func(e *Evidence) { e.Signal = "SIGABRT" }), class.OOMHost, verdict.Likely, "", "", ""},
		{"SIGILL", Evidence{Signal: "SIGILL"}, class.CrashIllegal, "", class.No, "", ""},
		{"somebody's SIGTERM", Evidence{Signal: "SIGTERM"}, class.KilledUnknown, "", class.Maybe, "SIGTERM, which muster did not send", ""},
		{"muster's SIGTERM", Evidence{Signal: "SIGTERM", Sent: "SIGTERM"}, class.Stopped, "", class.Never, "", ""},
		{"muster's SIGTERM as a status", Evidence{Code: 143, Sent: "SIGTERM"}, class.Stopped, "", "", "", ""},
		{"a handler of muster's SIGTERM exits 1", Evidence{Code: 1, Sent: "SIGTERM"}, class.Stopped, "", "", "", ""},
		{"the scheduler's time limit", with(wrote("slurmstepd: error: *** JOB 12 ON gpu01 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"), func(e *Evidence) { e.Signal = "SIGTERM" }), class.TimeLimit, "", class.Never, "scheduler", ""},
		{"a time limit", Evidence{Code: 124}, class.TimeLimit, "", class.Never, "timeout(1)", ""},
	})
}

func TestTheProgramsOwnErrorsAreTold(t *testing.T) {
	run(t, []row{
		{"an exception", wrote(traceback("ValueError: no such layer: attention.7")), class.UserError, verdict.Certain, class.No, "at model.py:40 in forward: ValueError: no such layer: attention.7", ""},
		{"an exception of a library's frame", wrote("Traceback (most recent call last):\n  File \"/home/u/train.py\", line 3, in main\n    x()\n  File \"/usr/lib/python3.11/site-packages/torch/nn.py\", line 9, in f\n    y()\nKeyError: 'w'\n"),
			class.UserError, "", "", "train.py:3 in main: KeyError: 'w'", ""},
		{"an import", wrote(traceback("ModuleNotFoundError: No module named 'torch'")), class.UserError, "", "", "could not import", ""},
		{"a file that cannot be parsed", wrote("  File \"train.py\", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n"), class.UserError, "", "", "cannot be parsed at train.py:3", ""},
		{"wrong arguments", Evidence{Code: 2, Worker: evidence.Worker{Stderr: []byte("usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 3\n")}}, class.UserError, "", "", "train.py: error: unrecognized arguments: --lrr 3", ""},
		{"a script that is not there", Evidence{Code: 2, Worker: evidence.Worker{Stderr: []byte("python: can't open file '/x/train.py': [Errno 2] No such file or directory\n")}}, class.UserError, "", "", "can't open file", ""},
		{"a module that is not there", Evidence{Code: 1, Worker: evidence.Worker{Stderr: []byte("/usr/bin/python3: No module named trainer\n")}}, class.UserError, "", "", "No module named trainer", ""},
		{"a command that is not there", Evidence{Code: 127, Worker: evidence.Worker{Stderr: []byte("bash: line 1: trian: command not found\n")}}, class.UserError, "", "", "command not found", ""},
		{"a library that is not there", Evidence{Code: 127, Worker: evidence.Worker{Stderr: []byte("./a: error while loading shared libraries: libcudart.so.12: cannot open shared object file\n")}}, class.UserError, "", "", "libcudart", ""},
		{"could not be started", Evidence{Start: "exec: \"pyhton\": not found"}, class.Start, verdict.Certain, class.No, "pyhton", ""},
		{"a status alone", Evidence{Code: 7}, class.Exit, "", class.Maybe, "exit status 7", ""},
		{"a chain", wrote(traceback("KeyError: 'a'") + "\nThe above exception was the direct cause of the following exception:\n\n" + traceback("RuntimeError: bad config")), class.UserError, "", "", "RuntimeError: bad config", "KeyError: 'a'"},
		{"a chain that begins with memory", wrote(traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free.") +
			"\nDuring handling of the above exception, another exception occurred:\n\n" + traceback("KeyError: 'x'")), class.OOMCapacity, "", "", "", ""},
		{"only the error file says it", Evidence{Code: 1, Worker: evidence.Worker{ErrorFile: []byte(`{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"/a/t.py\", line 2, in f\nValueError: x\n", "timestamp": "1"}}}`)}},
			class.UserError, "", "", "t.py:2 in f: ValueError: x", "its error file"},
		{"an error file with a message only", Evidence{Code: 1, Worker: evidence.Worker{ErrorFile: []byte(`{"message": "RuntimeError: CUDA error: invalid device ordinal"}`)}}, class.BadOrdinal, "", "", "", ""},
		{"a broken error file", Evidence{Code: 1, Worker: evidence.Worker{ErrorFile: []byte(`{"mess`)}}, class.Exit, "", "", "", ""},
		{"host memory", wrote(traceback("MemoryError")), class.OOMHost, verdict.Likely, "", "", ""},
		{"host memory by torch", wrote(traceback("RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096000000 bytes. Error code 12 (Cannot allocate memory)")),
			class.OOMHost, verdict.Certain, "", "3.81 GiB", ""},
		{"a download", wrote(traceback("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded")), class.Network, "", class.Yes, "", ""},
		{"a full disk", with(wrote(traceback("OSError: [Errno 28] No space left on device: '/data/ckpt.pt'")), func(e *Evidence) { e.Disk = &evidence.Space{Path: "/data", Total: 1 << 40} }), class.DiskFull, "", class.No, "", "/data has 0 bytes free"},
		{"a full /dev/shm by its path", wrote(traceback("OSError: [Errno 28] No space left on device: '/dev/shm/x'")), class.OOMShm, "", "", "", ""},
		{"a broken pipe", wrote(traceback("BrokenPipeError: [Errno 32] Broken pipe")), class.PeerLost, "", class.Yes, "", ""},
		{"gloo's peer", wrote(traceback("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:33412")), class.GlooRemote, "", class.Yes, "", ""},
		{"gloo's time-out", wrote(traceback("RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete")), class.GlooTimeout, "", class.Yes, "1800 s", ""},
		{"a port of the program's own", wrote(traceback("OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8080): address already in use")), class.PortInUse, "", class.Yes, "port 8080", ""},
		{"a device-side assert", wrote(traceback("RuntimeError: CUDA error: device-side assert triggered")), class.UserError, verdict.Certain, class.No, "index or label", ""},
		{"two ranks on a GPU, or on its MIG devices", wrote("vm7:81:81 [0] init.cc:1141 NCCL WARN Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.\n" + traceback("torch.distributed.DistBackendError: NCCL error, ncclInvalidUsage")),
			class.DuplicateGPU, "", class.No, "MIG devices of one", ""},
		{"no driver", wrote(traceback("RuntimeError: Found no NVIDIA driver on your system.")), class.GPUInit, "", class.OtherHost, "", ""},
	})
}

const tooBig = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free."

func TestAnOOMThatWasSurvivedIsANote(t *testing.T) {
	run(t, []row{
		{"the program made further steps", wrote("step 1\nstep 2\n" + tooBig + "\nskipping\nstep 3\nstep 4\n" + traceback("ValueError: x")), class.UserError, "", "", "ValueError: x", "the program went on after it"},
		{"another exception ended it", wrote("OOM, halving: " + tooBig + "\nloss 1\nloss 2\n" + traceback("ValueError: x")), class.UserError, "", "", "ValueError: x", "ended with another exception"},
		{"it was said on the other stream", with(wrote(traceback("ValueError: x")), func(e *Evidence) { e.Stdout = []byte("retry after " + tooBig + "\n") }), class.UserError, "", "", "ValueError: x", "another exception"},
		{"nothing else says why it ended", wrote("step 1\n" + tooBig + "\nstep 2\nstep 3\n"), class.OOMCapacity, verdict.Guess, "", "too small", "further steps"},
		{"it ended with 0", with(wrote(tooBig), func(e *Evidence) { e.Code = 0 }), class.None, "", class.Never, "ended well", "although it had said"},
	})
}

func TestWordsOfMemoryInOtherTextsAreNoOOM(t *testing.T) {
	for _, words := range []string{
		"out of memory slots", "If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation",
		"we ran out of memory yesterday", "CUDA OUT OF MEMORY handling is on", "oom_score_adj=0", "Killed process tree of the old run", "NCCL WARN Call to bind failed: Address already in use",
	} {
		if v := Classify(wrote(words)); v.Class != class.Exit {
			t.Errorf("%q is %s", words, v.Class)
		}
	}
}

func TestTheStepIsToldWithTheFailure(t *testing.T) {
	e := wrote(traceback("ValueError: x"))
	e.Steps = &Steps{Furthest: progress.Mark{Epoch: 1, Step: 12}}
	if v := Classify(e); !strings.Contains(fmt.Sprint(v.Notes), "epoch 1, step 12") {
		t.Errorf("%q", v.Notes)
	}
}

func TestEveryClassIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range class.Classes {
		if seen[c.Name] || c.Meaning == "" || c.Owner == "" || c.Restart == "" {
			t.Errorf("%+v", c)
		}
		if len(c.Advice) == 0 && c.Owner != class.Nobody {
			t.Errorf("%s: nothing is advised", c.Name)
		}
		seen[c.Name] = true
	}
}
