package failure

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// askWho is for signals that somebody sends. The kernel's own kills for want of memory are
// SIGKILL alone, so that dmesg says nothing of others.
const askWho = "ask who sent it: a scheduler (preemption, time limits), a user (kill, pkill), or the host as it shut down (journalctl -b -1)"

// sentSignals are signals other than SIGKILL and those of crashes: what each says by itself,
// and where to look.
var sentSignals = map[string]struct {
	says   string // in place of who may have sent it
	advice string
}{
	"SIGHUP":  {"", "look what closed its terminal or session: an ssh connection or tmux of its own, or logind (KillUserProcesses); setsid before the command keeps it apart"},
	"SIGINT":  {"", "ask who interrupted it: ctrl-c in a terminal of its host, kill -INT, or a scheduler that warns in this way"},
	"SIGPIPE": {"it wrote to a pipe or connection whose reader had gone (SIGPIPE)", "look at what reads its output (| head, | tee, a logger) and whether that ended first"},
	"SIGSYS":  {"it made a system call that it is not allowed (SIGSYS: a seccomp filter)", "the audit log names the call (dmesg, type=1326): allow it in the seccomp profile of the container or service"},
	"SIGXFSZ": {"it wrote a file larger than its limit allows (SIGXFSZ)", "a larger limit of file sizes: ulimit -f"},
	"SIGALRM": {"an alarm that a program had set ended it (SIGALRM)", "look who sets it: alarm(2), signal.alarm() or a wrapper with a time limit"},
}

// sentSignal is the verdict on such a signal.
func sentSignal(e Evidence, signal, confidence string) verdict.Verdict {
	v := verdict.Of(class.KilledUnknown, verdict.Worst(confidence, verdict.Likely))
	v.Said = signal
	v.Advice = []string{askWho}
	known := sentSignals[signal]
	if known.advice != "" {
		v.Advice = []string{known.advice}
	}
	if v.Message = known.says; v.Message == "" {
		v.Message = fmt.Sprintf("it was killed by %s, which muster did not send: a user, a scheduler or the program itself did", signal)
		bySlurm(e, &v, signal)
	}
	if confidence == verdict.Guess {
		v.Message = "perhaps " + v.Message
	}
	return v
}

// cancelled is what Slurm writes to the standard error of a job that it ends.
var cancelled = pattern.New(`slurmstepd: error: \*\*\* .{1,200} CANCELLED AT `)

// bySlurm says that it was Slurm, where it has said so itself.
func bySlurm(e Evidence, v *verdict.Verdict, signal string) {
	line := output.Line(&e.Worker, cancelled)
	if line == "" {
		return
	}
	v.Message = fmt.Sprintf("it was killed by %s as Slurm cancelled the job", signal)
	v.AddEvidence(fmt.Sprintf("it says %q", verdict.Excerpt(line)))
	v.Advice = []string{"ask Slurm why: sacct -j JOB, and whoever ran scancel"}
}
