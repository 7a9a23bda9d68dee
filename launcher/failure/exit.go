package failure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/kernel"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// signals by their numbers on Linux (signal(7)), as far as shells and wrappers turn them
// into statuses.
var signals = map[int]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2",
	13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}

// killer is the signal that ended the worker, and how that is known: by the kernel, by a
// shell's status (128 + N), or by what a wrapper may have made of -N (256 - N).
func (e Evidence) killer() (signal, how, confidence string) {
	if e.Signal != "" {
		return e.Signal, "it was killed by " + e.Signal, verdict.Certain
	}
	if s := signals[e.Code-128]; s != "" {
		return s, fmt.Sprintf("its exit status was %d, a shell's word for %s", e.Code, s), verdict.Likely
	}
	if n := 256 - e.Code; slices.Contains([]int{4, 6, 7, 8, 9, 11, 15}, n) { // 255 is rather somebody's -1
		return signals[n], fmt.Sprintf("its exit status was %d (= 256-%d, maybe %s reported by a wrapper)", e.Code, n, signals[n]), verdict.Guess
	}
	return "", "", ""
}

// killed is the verdict where a signal was the end and the worker's words do not explain it.
func (e Evidence) killed(words output.Said, found bool) (verdict.Verdict, bool) {
	signal, how, confidence := e.killer()
	nested := found && words.Verdict.Class == class.KilledUnknown
	if nested {
		signal, how, confidence = "SIGKILL", "its own launcher says "+fmt.Sprintf("%q", words.Verdict.Said), verdict.Likely
	}
	if signal == "" || found && !nested && words.Kind != output.Vague && !(fromOutside(signal) && confidence != verdict.Guess && words.Verdict.Class != class.TimeLimit) {
		return verdict.Verdict{}, false
	}
	if e.Sent != "" && (e.Signal == "" || signal == e.Sent) {
		return stopped(e), true
	}
	v := e.signalled(signal, confidence)
	if nested {
		v.KeepNumbers(words.Verdict)
		v.Message = strings.Replace(v.Message, "it was killed", "a worker of its own launcher was killed", 1)
	}
	v.AddEvidence(how)
	if found && !nested {
		v.AddNote(fmt.Sprintf("it had said %q (%s)", words.Verdict.Said, words.Verdict.Class))
	}
	return v, true
}

// fromOutside is whether a signal is none that a program ends itself by: no exception and
// no failed call leads to it, so that what was written before says little.
func fromOutside(signal string) bool {
	return !slices.Contains([]string{"SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS", "SIGTRAP", "SIGPIPE"}, signal)
}

// signalled is the verdict on a signal that nothing else explains.
func (e Evidence) signalled(signal, confidence string) verdict.Verdict {
	switch signal {
	case "SIGKILL":
		return e.sigkill(confidence)
	case "SIGBUS":
		return busError(e, confidence)
	case "SIGSEGV":
		return segfault(e, confidence)
	case "SIGABRT":
		return crash(class.CrashAbort, confidence, "the program ended itself by abort() without a word that is known")
	case "SIGILL":
		return crash(class.CrashIllegal, confidence, "the processor did not know an instruction of the program (SIGILL)")
	case "SIGFPE":
		return crash(class.CrashFPE, confidence, "the program divided an integer by zero (SIGFPE)")
	case "SIGXCPU":
		return crash(class.TimeLimit, confidence, "the limit of CPU time ended it (SIGXCPU)")
	}
	return sentSignal(e, signal, confidence)
}

func crash(name, confidence, message string) verdict.Verdict {
	v := verdict.Of(name, confidence)
	v.Message = message
	if confidence == verdict.Guess {
		v.Message = "perhaps " + message
	}
	return v
}

// sigkill: SIGKILL is for want of memory only where somebody counted that.
func (e Evidence) sigkill(confidence string) verdict.Verdict {
	v := verdict.Of(class.OOMHost, verdict.Certain)
	if v.Message = e.outOfMemory(&v); v.Message != "" {
		v.Confidence = verdict.Worst(v.Confidence, confidence)
		return v
	}
	v = verdict.Of(class.KilledUnknown, verdict.Worst(confidence, verdict.Likely))
	v.Said = "SIGKILL"
	v.Message = "it was killed by SIGKILL (9), which muster did not send: somebody did, or the kernel for want of memory"
	if bySlurm(e, &v, "SIGKILL"); v.Advice != nil {
		return v
	}
	if e.Memory.Unchanged() {
		v.Message = "it was killed by SIGKILL (9), which muster did not send; the kernel counted no kill for want of memory, so a user, a scheduler or another program did it"
		v.Advice = []string{askWho}
		v.AddEvidence("the kernel's counters of kills for want of memory did not change")
	} else {
		v.AddNote("dmesg on the host tells whether the kernel did it for want of memory")
	}
	return v
}

// smallShm is what container runtimes give by default; batches of images fill it at once.
const smallShm = 64 << 20

func busError(e Evidence, confidence string) verdict.Verdict {
	if e.Shm.Full() || e.Shm != nil && e.Shm.Total > 0 && e.Shm.Total <= smallShm {
		v := verdict.Of(class.OOMShm, verdict.Worst(confidence, verdict.Likely))
		v.Message = fmt.Sprintf("/dev/shm on its host is too small or full (SIGBUS): %s", spaceText(e.Shm))
		v.AddEvidence(spaceText(e.Shm))
		return v
	}
	v := crash(class.CrashBus, confidence, "memory behind an address was not there (SIGBUS)")
	v.AddEvidence(spaceText(e.Shm))
	return v
}

func segfault(e Evidence, confidence string) verdict.Verdict {
	v := crash(class.CrashSegv, confidence, "the program touched memory that is not there (SIGSEGV)")
	if library := kernel.Read(&e.Worker).SegfaultIn(); library != "" {
		v.Confidence = verdict.Certain
		v.Message = fmt.Sprintf("it crashed in %s (SIGSEGV)", library)
		v.Said = "segfault in " + library
	}
	return v
}

// Lines by which programs, shells and the loader say that they could not even begin.
var (
	// argparse, click, getopt and Python itself, of wrong arguments.
	wrongArguments = pattern.New(`^\S+: error: |^(?:Error: )?(?:No such option|Invalid value|Missing (?:option|argument))|: unrecognized option|can't open file|: No module named `)
	usageLine      = pattern.New(`^[Uu]sage:? `)
)

// status is the verdict where there is only an exit status.
func (e Evidence) status() verdict.Verdict {
	switch {
	case e.Code == 124:
		v := verdict.Of(class.TimeLimit, verdict.Likely)
		v.Message = "a time limit ended it: status 124 is that of timeout(1)"
		v.AddEvidence("its exit status was 124")
		return v
	case e.Code == 1 || e.Code == 2 || e.Code == 64:
		if line := output.Line(&e.Worker, wrongArguments); line != "" && !unreadable.MatchString(line) {
			return notBegun(e, "the program does not take these arguments, or is not there", line)
		}
		if line := output.Line(&e.Worker, usageLine); line != "" && e.Code != 1 {
			return notBegun(e, "the program does not take these arguments", line)
		}
	}
	if v, ok := e.notBegunBy(); ok {
		return v
	}
	if v := verdict.Of(class.OOMHost, verdict.Likely); killedInCgroup(e) {
		v.Message = e.outOfMemory(&v)
		v.AddEvidence(fmt.Sprintf("its own exit status was %d: a process that it had started was killed", e.Code))
		return v
	}
	return statusAlone(e)
}

// statusAlone is the verdict where nothing that is known says why. What the program said
// last is most often its reason: then it needs no advice to give one.
func statusAlone(e Evidence) verdict.Verdict {
	v := verdict.Of(class.Exit, verdict.Likely)
	v.Said = fmt.Sprintf("exit %d", e.Code)
	last := output.LastLine(e.Stderr)
	if last == "" {
		v.Message = fmt.Sprintf("it ended with exit status %d, and nothing it wrote says why", e.Code)
		v.AddEvidence(fmt.Sprintf("its exit status was %d", e.Code))
		return v
	}
	v.Message = fmt.Sprintf("it ended with exit status %d, and said last: %q", e.Code, last)
	v.AddEvidence(fmt.Sprintf("its exit status was %d, and the last that it said is %q", e.Code, last))
	v.Advice = []string{}
	return v
}

// notBegun is a program that ended before its work; the line that says so is quoted.
func notBegun(e Evidence, what, line string) verdict.Verdict {
	v := verdict.Of(class.UserError, verdict.Certain)
	v.Said = verdict.Excerpt(line)
	v.Message = what + ": " + v.Said
	v.AddEvidence(fmt.Sprintf("its exit status was %d, and it says %q", e.Code, v.Said))
	return v
}
