// Package kernel finds in a host's kernel log what happened to a worker: OOM kills, crashes and
// errors (Xid) of its GPUs.
package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
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

// maxLines is how many lines are looked at, the last ones.
const maxLines = 2000

// Log is a host's kernel log as one line, as collectors fold it.
type Log struct {
	text string
	pids []int // of the worker
}

// Read takes the log that a worker's host has collected.
func Read(w *evidence.Worker) Log {
	log := w.Kernel
	if len(log) > maxLines {
		log = log[len(log)-maxLines:]
	}
	text := ""
	for _, v := range lines.Read([]byte(strings.Join(log, "\n"))).Voices {
		text += v.Flat
	}
	return Log{text, w.PIDs}
}

// mine is whether a pid of the kernel's is one of the worker. Where the worker's are not
// known, any may be.
func (k Log) mine(pid string) bool {
	n, _ := strconv.Atoi(pid)
	return len(k.pids) == 0 || slices.Contains(k.pids, n)
}

// xidForm is the driver's line: pid and name may be quoted, unknown or missing.
var (
	xidForm    = pattern.New(`NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,20})\): ([0-9]{1,5}),? ?`)
	xidPIDForm = pattern.New(`^pid='?([0-9]{1,10})`)
)

// Kill looks for the worker's kill.
func (k Log) Kill(v *verdict.Verdict, memory evidence.Memory) string {
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
			return fmt.Sprintf("the kernel killed it (%s, pid %s) as the memory limit of its cgroup was reached%s", name, pid, LimitText(memory))
		}
		return fmt.Sprintf("the kernel killed it (%s, pid %s) as the host ran out of memory", name, pid)
	}
	return ""
}

// OnlyCgroups is what the kernel's log says of the last kill, where each was for the limit of
// a cgroup: the numbers of processes there need not be those of a container.
func (k Log) OnlyCgroups() (said string) {
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
func (k Log) constraint(pid string) string {
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

// LimitText is the limit of a cgroup in brackets; "" where there is none.
func LimitText(m evidence.Memory) string {
	switch {
	case m.Limit == 0:
		return ""
	case m.Peak > 0:
		return fmt.Sprintf(" (%s; the most in use was %s)", text.Size(m.Limit, 2), text.Size(m.Peak, 2))
	}
	return fmt.Sprintf(" (%s)", text.Size(m.Limit, 2))
}

// SegfaultIn is the library that the kernel's log names for the worker's crash.
func (k Log) SegfaultIn() string {
	for _, m := range segfaultForm.FindAllStringSubmatch(k.text, 64) {
		if k.mine(m[1]) {
			return m[2]
		}
	}
	return ""
}

// Xid is an error of a GPU that the driver has logged.
type Xid struct {
	Number int
	PCI    string
	Text   string // what the driver says beside it
}

// Xids are those of the worker's own processes, and of the devices that concern it.
func (k Log) Xids(concerns func(pci string) bool) []Xid {
	var found []Xid
	for _, at := range xidForm.FindAllStringSubmatchIndex(k.text, 256) {
		pci, rest := k.text[at[2]:at[3]], k.text[at[1]:min(len(k.text), at[1]+300)]
		if next := strings.Index(rest, "NVRM:"); next >= 0 {
			rest = rest[:next]
		}
		m := xidPIDForm.FindStringSubmatch(rest)
		if own := m != nil && len(k.pids) > 0 && k.mine(m[1]); !own && !concerns(pci) {
			continue
		}
		n, _ := strconv.Atoi(k.text[at[4]:at[5]])
		found = append(found, Xid{n, pci, strings.TrimSpace(rest)})
	}
	return found
}
