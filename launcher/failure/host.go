package failure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/lines"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Lines of the kernel (mm/oom_kill.c from 3.10 to 6.x, and arch/x86/mm/fault.c).
var (
	oomKillForm   = pattern.New(`((?:Memory cgroup o|O)ut of memory)[^:]{0,40}: Kill(?:ed)? process ([0-9]{1,10})(?:, UID [0-9]+,)? \(([^)]{1,40})\)`)
	oomDetailForm = pattern.New(`oom-kill:constraint=(\w{1,40})(?:[^\n]{0,800}?oom_memcg=([^,\n]{1,400}))?(?:[^\n]{0,800}?task_memcg=([^,\n]{1,400}))?[^\n]{0,400}?,pid=([0-9]{1,10})`)
	oomRSSForm    = pattern.New(`^[^\n]{0,200}?total-vm:([0-9]{1,18})kB, anon-rss:([0-9]{1,18})kB`)
	segfaultForm  = pattern.New(`\[([0-9]{1,10})\]: segfault at [^\n]{0,200}? in ([^\[\s]{1,200})\[`)
)

// kernelLogLimit is how many lines of the kernel's log are looked at, the last ones.
const kernelLogLimit = 2000

// kernelLog is a host's kernel log as one line, as collectors fold it.
type kernelLog struct {
	text string
	pids []int // of the worker
}

func (e Evidence) kernelLog() kernelLog {
	log := e.Kernel
	if len(log) > kernelLogLimit {
		log = log[len(log)-kernelLogLimit:]
	}
	text := ""
	for _, v := range lines.Read([]byte(strings.Join(log, "\n"))).Voices {
		text += v.Flat
	}
	return kernelLog{text, e.PIDs}
}

// mine is whether a pid of the kernel's is one of the worker. Where the worker's are not
// known, any may be.
func (k kernelLog) mine(pid string) bool {
	n, _ := strconv.Atoi(pid)
	return len(k.pids) == 0 || slices.Contains(k.pids, n)
}

// outOfMemory is why a kill is taken to be for want of host memory, "" where nothing says
// so; evidence and numbers go into v.
func (e Evidence) outOfMemory(v *verdict.Verdict) string {
	if e.Memory.Limit > 0 {
		v.Numbers[verdict.NumLimit] = float64(e.Memory.Limit)
	}
	if message := e.kernelLog().kill(v, e.Memory); message != "" {
		return message
	}
	m := e.Memory
	switch {
	case m.CgroupGrew():
		v.Numbers[verdict.NumCgroup] = 1
		v.AddEvidence(fmt.Sprintf("the cgroup's count of kills for want of memory (oom_kill) went %d -> %d", *m.CgroupBefore, *m.CgroupAfter))
		return "the kernel killed it as the memory limit of its cgroup was reached" + limitText(m)
	case m.HostGrew():
		v.Confidence = verdict.Likely
		v.AddEvidence(fmt.Sprintf("the host's count of kills for want of memory (oom_kill) went %d -> %d", *m.HostBefore, *m.HostAfter))
		if said := e.kernelLog().onlyCgroups(); said != "" {
			v.Numbers[verdict.NumCgroup] = 1
			delete(v.Numbers, verdict.NumLimit) // is another cgroup's
			v.AddEvidence(fmt.Sprintf("the kernel's log says %q", said))
			return "the kernel killed it as the memory limit of a cgroup was reached"
		}
		return "the kernel killed it as the host ran out of memory"
	}
	return ""
}

// kill looks for the worker's kill.
func (k kernelLog) kill(v *verdict.Verdict, memory evidence.Memory) string {
	text := k.text
	for _, at := range oomKillForm.FindAllStringSubmatchIndex(text, 64) {
		pid, name := text[at[4]:at[5]], text[at[6]:at[7]]
		if !k.mine(pid) {
			continue
		}
		if len(k.pids) == 0 {
			v.Confidence = verdict.Likely
		}
		v.AddEvidence(fmt.Sprintf("the kernel's log says %q", verdict.Excerpt(text[at[0]:min(len(text), at[1]+100)])))
		if m := oomRSSForm.FindStringSubmatch(text[at[1]:]); m != nil {
			kilobytes(v, verdict.NumTotalVM, m[1])
			kilobytes(v, verdict.NumAnonRSS, m[2])
		}
		if text[at[2]] == 'M' || k.constraint(pid) == "CONSTRAINT_MEMCG" {
			v.Numbers[verdict.NumCgroup] = 1
			return fmt.Sprintf("the kernel killed it (%s, pid %s) as the memory limit of its cgroup was reached%s", name, pid, limitText(memory))
		}
		return fmt.Sprintf("the kernel killed it (%s, pid %s) as the host ran out of memory", name, pid)
	}
	return ""
}

// onlyCgroups is what the kernel's log says of the last kill, where each was for the limit of
// a cgroup: the numbers of processes there need not be those of a container.
func (k kernelLog) onlyCgroups() (said string) {
	text := k.text
	for _, at := range oomKillForm.FindAllStringSubmatchIndex(text, 64) {
		if text[at[2]] != 'M' {
			return ""
		}
		said = verdict.Excerpt(text[at[0]:min(len(text), at[1]+100)])
	}
	return said
}

// constraint is what the kernel says of the limit that a kill was for.
func (k kernelLog) constraint(pid string) string {
	for _, m := range oomDetailForm.FindAllStringSubmatch(k.text, 64) {
		if m[4] == pid {
			return m[1]
		}
	}
	return ""
}

func kilobytes(v *verdict.Verdict, name, text string) {
	n, _ := strconv.ParseFloat(text, 64)
	v.Numbers[name] = n * 1024
}

// limitText is the limit of a cgroup in brackets; "" where there is none.
func limitText(m evidence.Memory) string {
	switch {
	case m.Limit == 0:
		return ""
	case m.Peak > 0:
		return fmt.Sprintf(" (%s; the most in use was %s)", text.Size(m.Limit, 2), text.Size(m.Peak, 2))
	}
	return fmt.Sprintf(" (%s)", text.Size(m.Limit, 2))
}

// killedInCgroup is whether a process of the job was killed for want of memory, though the
// rank ended by itself.
func killedInCgroup(e Evidence) bool {
	scratch := verdict.Of(class.OOMHost, verdict.Likely)
	return e.Memory.CgroupGrew() || len(e.PIDs) > 0 && e.kernelLog().kill(&scratch, e.Memory) != ""
}

// ofKills are phrases of phrases.go that tell of a SIGKILL, for which memory is a guess.
var ofKills = []string{"is killed by signal: Killed", "exited unexpectedly with signal 9"}

// weighHostMemory: counters make certain what a worker's words leave open.
func (e Evidence) weighHostMemory(v *verdict.Verdict) {
	killed := slices.Contains(ofKills, v.Phrase)
	checked := verdict.Of(class.OOMHost, verdict.Certain)
	if message := e.outOfMemory(&checked); message != "" {
		v.KeepNumbers(checked)
		v.Evidence = append(v.Evidence, checked.Evidence...)
		v.Confidence = checked.Confidence
		if checked.Confidence == verdict.Certain {
			v.Restart = class.No
		}
		return
	}
	if !killed {
		adviseRefused(v)
	}
	if !e.Memory.Unchanged() {
		return
	}
	const still = "the kernel's counters of kills for want of memory did not change"
	if killed {
		v.Become(class.KilledUnknown, verdict.Likely, "a process that it had started was killed by SIGKILL; the kernel counted no kill for want of memory, so a user, a scheduler or another program did it")
		v.Advice = []string{askWho}
		v.AddEvidence(still)
	} else if v.Confidence == verdict.Likely {
		v.Confidence = verdict.Guess
		v.AddEvidence(still)
	}
}

// segfaultIn is the library that the kernel's log names for the worker's crash.
func (k kernelLog) segfaultIn() string {
	for _, m := range segfaultForm.FindAllStringSubmatch(k.text, 64) {
		if k.mine(m[1]) {
			return m[2]
		}
	}
	return ""
}
