package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// advised is what the user is told to change.
func advised(v verdict.Verdict) string {
	if v.Advice == nil {
		c, _ := class.Find(v.Class)
		v.Advice = c.Advice
	}
	return strings.Join(v.Advice, "\n")
}

func TestMemoryIsSuspectedOfSIGKILLAlone(t *testing.T) {
	still := evidence.Memory{HostBefore: count(7), HostAfter: count(7)}
	slurm := []byte("slurmstepd: error: *** JOB 12 ON gpu01 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n")
	for _, c := range []struct {
		evidence     Evidence
		says, advice string
		memory       bool
	}{
		{Evidence{Signal: "SIGKILL"}, "for want of memory", "for want of memory", true},
		{Evidence{Signal: "SIGKILL", Worker: evidence.Worker{Memory: still}}, "counted no kill", "ask who sent it", false},
		{Evidence{Signal: "SIGKILL", Worker: evidence.Worker{Stderr: slurm}}, "as Slurm cancelled the job", "sacct", false},
		{Evidence{Signal: "SIGTERM"}, "SIGTERM, which muster did not send", "ask who sent it", false},
		{Evidence{Code: 143}, "SIGTERM, which muster did not send", "ask who sent it", false},
		{Evidence{Code: 241}, "perhaps it was killed by SIGTERM", "ask who sent it", false},
		{Evidence{Signal: "SIGTERM", Worker: evidence.Worker{Stderr: slurm}}, "by SIGTERM as Slurm cancelled the job", "sacct", false},
		{Evidence{Signal: "SIGHUP"}, "SIGHUP, which muster did not send", "terminal or session", false},
		{Evidence{Signal: "SIGINT"}, "SIGINT, which muster did not send", "ctrl-c", false},
		{Evidence{Signal: "SIGPIPE"}, "whose reader had gone", "what reads its output", false},
		{Evidence{Signal: "SIGSYS"}, "a seccomp filter", "type=1326", false},
		{Evidence{Signal: "SIGXFSZ"}, "larger than its limit", "ulimit -f", false},
		{Evidence{Signal: "SIGUSR1"}, "SIGUSR1, which muster did not send", "ask who sent it", false},
	} {
		v := Classify(c.evidence)
		advice := advised(v)
		if v.Class != class.KilledUnknown || !strings.Contains(v.Message, c.says) || !strings.Contains(advice, c.advice) || strings.Contains(advice, "dmesg on the host") != c.memory {
			t.Errorf("%s %d: %s, %q, %q", c.evidence.Signal, c.evidence.Code, v.Class, v.Message, advice)
		}
	}
}

func TestADataLoaderThatTheKernelDidNotKillIsNotAskedOfDmesg(t *testing.T) {
	e := wrote(traceback("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed."))
	e.Memory = evidence.Memory{HostBefore: count(7), HostAfter: count(7)}
	if v := Classify(e); v.Class != class.KilledUnknown || strings.Contains(advised(v), "dmesg") {
		t.Errorf("%s: %s", v.Class, advised(v))
	}
}
