package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/plugins/gpu"
)

func rank(n int, at float64, e Evidence) RankEvidence {
	e.At = at
	return RankEvidence{Rank: n, Host: "h" + string(rune('0'+n/4)), Evidence: e}
}

var (
	bad     = Evidence{Code: 3}
	termed  = Evidence{Signal: "SIGTERM", Sent: "SIGTERM"}
	slain   = Evidence{Signal: "SIGKILL", Sent: "SIGKILL"}
	fine    = Evidence{}
	pipe    = wrote("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nBrokenPipeError: [Errno 32] Broken pipe\n")
	remote  = wrote("torch.distributed.DistBackendError: NCCL error in: x:268, remote process exited or there was a network error, NCCL version 2.21.5")
	gloo    = wrote("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:33412")
	oom     = wrote("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.11 GiB of which 1.00 GiB is free.")
	user    = wrote("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nValueError: x\n")
	timeout = wrote("[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600077 milliseconds before timing out.")
	other   = wrote("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600077 milliseconds before timing out.")
	socket  = wrote("torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout")
)

func sent(signal string, e Evidence) Evidence {
	e.Sent = signal
	return e
}

func TestTheFirstCauseIsFound(t *testing.T) {
	lost := Event{Class: class.HostLost, Message: "no answer from h0 for 30 s", Host: "h0", Rank: NoRank, At: 2}
	for _, r := range []struct {
		name   string
		ranks  []RankEvidence
		events []Event
		rank   int
		class  string
	}{
		{"the first in time, whatever muster did then (B32)", []RankEvidence{rank(0, 31, slain), rank(1, 1, bad), rank(2, 31, slain), rank(3, 31.2, slain)}, nil, 1, class.Exit},
		{"a consequence that came before its cause", []RankEvidence{rank(0, 1, remote), rank(1, 1.2, remote), rank(3, 4, oom)}, nil, 3, class.OOMCapacity},
		{"gloo's and a pipe's too", []RankEvidence{rank(0, 1, gloo), rank(1, 1.1, pipe), rank(2, 2, user)}, nil, 2, class.UserError},
		{"a cause that muster's signal overtook", []RankEvidence{rank(0, 1, remote), rank(1, 2, sent("SIGTERM", oom)), rank(2, 2, termed)}, nil, 1, class.OOMCapacity},
		{"an exception on the way out is none", []RankEvidence{rank(0, 1, bad), rank(1, 2, sent("SIGTERM", user))}, nil, 0, class.Exit},
		{"nor is it before what muster had not stopped", []RankEvidence{rank(0, 5, remote), rank(1, 2, sent("SIGTERM", user))}, nil, 1, class.UserError},
		{"a rank that failed before a peer noticed, and got muster's signal", []RankEvidence{rank(0, 1, remote), rank(1, 2, sent("SIGTERM", user))}, nil, 1, class.UserError},
		{"a handler's exception is none", []RankEvidence{rank(0, 1, remote), rank(1, 2, sent("SIGTERM", wrote("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nRuntimeError: received SIGTERM\n")))}, nil, 0, class.NCCLRemote},
		{"a GPU that failed long before its rank ended", []RankEvidence{rank(0, 610, bad), rank(3, 640, with(slain, func(e *Evidence) { e.GPUs = []GPU{{Mine: true, Xids: []Xid{{Number: 79, At: 12}}}} }))}, nil, 3, class.GPULost},
		{"a time-out that a death explains", []RankEvidence{rank(0, 600, timeout), rank(1, 600.1, Evidence{Signal: "SIGKILL"})}, nil, 1, class.KilledUnknown},
		{"a lost host before what it led to (B40)", []RankEvidence{rank(4, 4, socket), rank(5, 4, socket)}, []Event{lost}, NoRank, class.HostLost},
		{"a lost host at the same time", []RankEvidence{rank(4, 1.98, bad)}, []Event{lost}, NoRank, class.HostLost},
		{"a failure well before a host was lost", []RankEvidence{rank(4, 1, bad)}, []Event{lost}, 4, class.Exit},
		{"a host that is lost after a peer noticed", []RankEvidence{rank(4, 1, remote)}, []Event{lost}, NoRank, class.HostLost},
		{"the surer of two at once", []RankEvidence{rank(0, 1, bad), rank(1, 1.01, oom)}, nil, 1, class.OOMCapacity},
		{"the lower rank of two alike", []RankEvidence{rank(1, 1, oom), rank(0, 1, oom)}, nil, 0, class.OOMCapacity},
		{"only consequences: the first of them", []RankEvidence{rank(0, 2, gloo), rank(1, 1, gloo)}, nil, 1, class.GlooRemote},
		{"only muster's kills", []RankEvidence{rank(0, 2, slain), rank(1, 1, termed)}, nil, 1, class.Stopped},
		{"a hang", []RankEvidence{rank(0, 60, slain), rank(1, 60, slain)}, []Event{{Class: class.Hang, Message: "rank 1 said nothing for 10m", Rank: 1, At: 20}}, 1, class.Hang},
		{"a diverged program", []RankEvidence{rank(0, 600, timeout), rank(1, 600.1, timeout), rank(3, 600.2, other)}, nil, 3, class.NCCLDesync},
	} {
		t.Run(r.name, func(t *testing.T) {
			f, ok := First(r.ranks, r.events)
			if !ok || f.Rank != r.rank || f.Verdict.Class != r.class {
				t.Fatalf("rank %d, %s: %s", f.Rank, f.Verdict.Class, f.Verdict.Message)
			}
			if len(f.Consequences) != len(r.ranks)+len(r.events)-1 {
				t.Errorf("%d consequences", len(f.Consequences))
			}
			for _, c := range f.Consequences {
				if c.Rank == f.Rank && r.events == nil {
					t.Errorf("rank %d is its own consequence", c.Rank)
				}
			}
		})
	}
}

func TestNothingIsFoundWhereNothingFailed(t *testing.T) {
	if f, ok := First([]RankEvidence{rank(0, 1, fine), rank(1, 2, fine)}, nil); ok {
		t.Errorf("%+v", f)
	}
	if _, ok := First(nil, nil); ok {
		t.Error("of no ranks one failed first")
	}
}

func TestRanksThatDidNotReportATimeoutAreSuspects(t *testing.T) {
	f, _ := First([]RankEvidence{rank(0, 600, timeout), rank(1, 601, timeout), rank(2, 610, slain), rank(3, 600.5, timeout)}, nil)
	if !strings.Contains(strings.Join(f.Verdict.Evidence, "\n"), "rank 2 did not report") {
		t.Errorf("%q", f.Verdict.Evidence)
	}
}

func TestTheSameFailureHasTheSameSignature(t *testing.T) {
	sign := func(words string) string { e := wrote(words); return Signature(Classify(e), e) }
	for _, same := range [][2]string{
		{traceback("RuntimeError: bad value 3.25 at 0x7f12ab of /tmp/run-77/x"), traceback("RuntimeError: bad value 17 at 0x7f99 of /tmp/run-78/x")},
		{traceback("ValueError: id 123e4567-e89b-12d3-a456-426614174000"), traceback("ValueError: id 99999999-e89b-12d3-a456-426614174001")},
		{"x torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free.",
			"y torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which 0.50 GiB is free."},
		{"noise 1\n" + readSample(t, "032-nccl-cuda-failure-999.txt"), readSample(t, "032-nccl-cuda-failure-999.txt") + "other noise"},
	} {
		if a, b := sign(same[0]), sign(same[1]); a != b {
			t.Errorf("%s\n%s", a, b)
		}
	}
	different := []string{traceback("ValueError: x"), traceback("ValueError: y"), traceback("KeyError: x"), strings.Replace(traceback("ValueError: x"), "line 40", "line 41", 1), readSample(t, "089-oom-then-peers-nccl-remote.txt"), "nothing"}
	seen := map[string]string{}
	for _, words := range different {
		s := sign(words)
		if seen[s] != "" {
			t.Errorf("%q and %q are both %s", words, seen[s], s)
		}
		seen[s] = words
	}
	for _, two := range [][2]Evidence{{{Code: 1}, {Code: 2}}, {{Signal: "SIGKILL"}, {Signal: "SIGSEGV"}}} {
		if Signature(Classify(two[0]), two[0]) == Signature(Classify(two[1]), two[1]) {
			t.Errorf("%+v and %+v are the same", two[0], two[1])
		}
	}
}

// Ranks that share a GPU share what the driver reports of it: who ended by itself came first.
func TestOfRanksThatShareAFaultTheOneThatEndedByItselfIsFirst(t *testing.T) {
	xid := []GPU{{ID: gpu.ID{Index: 1, UUID: "GPU-1"}, Mine: true, Xids: []Xid{{Number: 31, At: 2}}}}
	found, ok := First([]RankEvidence{
		{Rank: 0, Host: "a", Evidence: Evidence{Signal: "SIGKILL", Sent: "SIGKILL", At: 2.4, GPUs: xid}},
		{Rank: 1, Host: "a", Evidence: Evidence{Code: 1, At: 2.3, GPUs: xid, Worker: evidence.Worker{Stderr: []byte("torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n")}}},
		{Rank: 2, Host: "a", Evidence: Evidence{Signal: "SIGKILL", Sent: "SIGKILL", At: 2.4, GPUs: xid}},
	}, nil)
	if !ok || found.Rank != 1 {
		t.Errorf("rank %d was the first: %+v", found.Rank, found.Verdict)
	}
}
