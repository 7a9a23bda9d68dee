package failure

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/kernel"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// outOfMemory is why a kill is taken to be for want of host memory, "" where nothing says
// so; evidence and numbers go into v.
func (e Evidence) outOfMemory(v *verdict.Verdict) string {
	if e.Memory.Limit > 0 {
		v.Numbers[verdict.NumLimit] = float64(e.Memory.Limit)
	}
	if message := kernel.Read(&e.Worker).Kill(v, e.Memory); message != "" {
		return message
	}
	m := e.Memory
	switch {
	case m.CgroupGrew():
		v.Numbers[verdict.NumCgroup] = 1
		v.AddEvidence(fmt.Sprintf("the cgroup's count of kills for want of memory (oom_kill) went %d -> %d", *m.CgroupBefore, *m.CgroupAfter))
		return "the kernel killed it as the memory limit of its cgroup was reached" + kernel.LimitText(m)
	case m.HostGrew():
		v.Confidence = verdict.Likely
		v.AddEvidence(fmt.Sprintf("the host's count of kills for want of memory (oom_kill) went %d -> %d", *m.HostBefore, *m.HostAfter))
		if said := kernel.Read(&e.Worker).OnlyCgroups(); said != "" {
			v.Numbers[verdict.NumCgroup] = 1
			delete(v.Numbers, verdict.NumLimit) // is another cgroup's
			v.AddEvidence(fmt.Sprintf("the kernel's log says %q", said))
			return "the kernel killed it as the memory limit of a cgroup was reached"
		}
		return "the kernel killed it as the host ran out of memory"
	}
	return ""
}

// killedInCgroup is whether a process of the job was killed for want of memory, though the
// rank ended by itself.
func killedInCgroup(e Evidence) bool {
	scratch := verdict.Of(class.OOMHost, verdict.Likely)
	return e.Memory.CgroupGrew() || len(e.PIDs) > 0 && kernel.Read(&e.Worker).Kill(&scratch, e.Memory) != ""
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
