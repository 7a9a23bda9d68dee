package check

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
)

// What less of is worth a word.
const (
	fewMemlock   = 64 << 20 // bytes, below which InfiniBand's queues cannot be made
	fewFiles     = 4096     // each rank opens files and connections by the hundred
	filesPerPeer = 2        // connections, at the least, from a rank to each other
	filesBase    = 1024
	fewPIDs      = 512     // a rank; 4096 for the usual 8
	fewMemory    = 2 << 30 // bytes a rank
)

// limits are about what ranks are allowed to use.
func (h *hostJudge) limits() {
	h.memlock()
	world := h.in.Plan.WorldSize
	want := uint64(max(fewFiles, filesBase+filesPerPeer*world))
	if n := h.limit(h.Facts.Limits.NoFile); n != nil && *n < want {
		fix := "raise nofile in /etc/security/limits.conf, or `ulimit -n` in setup as far as the hard limit lets it"
		if h.in.LimitsRaised {
			fix = "raise the hard limit of nofile in /etc/security/limits.conf"
		}
		h.say(codes.NoFile, "", h.inContainer("docker: --ulimit nofile=1048576", fix),
			"a process may open only %d files (ulimit -n); %s want %d", *n, plural.Of(world, "rank"), want)
	}
	h.cgroup()
}

// limit is a limit as workers have it; nil: none.
func (h *hostJudge) limit(l facts.Limit) *uint64 {
	if h.in.LimitsRaised {
		return l.Hard
	}
	return l.Soft
}

// memlock: InfiniBand pins what it sends, so that it needs no limit at all.
func (h *hostJudge) memlock() {
	n := h.limit(h.Facts.Limits.Memlock)
	if n == nil || *n >= h.Facts.Memory && h.Facts.Memory > 0 || !h.byNetwork() || !h.hasActive("") {
		return
	}
	fix := h.inContainer("docker: --ulimit memlock=-1", "memlock = unlimited in /etc/security/limits.conf, and for ssh logins LimitMEMLOCK=infinity of sshd's unit or pam_limits")
	if l := h.Facts.Limits.Memlock; l.Hard == nil && !h.in.LimitsRaised {
		fix = "setup = \"ulimit -l unlimited\": the hard limit allows it"
	}
	certain := *n < fewMemlock && h.hasActive("InfiniBand") // RoCE ports may be there and not be used
	h.say(codes.Memlock, lowered(Fail, !certain, Warn), fix, "processes may lock %s of memory (ulimit -l): InfiniBand needs it unlimited, else \"Cannot allocate memory\" of ibv_reg_mr follows", text.Bytes(*n))
}

// hasActive reports whether there is an active port of a link layer, "" for any.
func (h *hostJudge) hasActive(layer string) bool {
	return slices.ContainsFunc(h.Facts.HCAs, func(p facts.HCA) bool { return p.State == "active" && (layer == "" || p.LinkLayer == layer) })
}

// cgroup limits kill, or keep threads from being started.
func (h *hostJudge) cgroup() {
	ranks := max(h.part.Ranks, 1)
	if m := h.Facts.Cgroup.Memory; m != nil && *m < fewMemory*uint64(ranks) {
		h.say(codes.CgroupMemory, "", h.inContainer("docker: --memory; Kubernetes: resources.limits.memory", "ask the scheduler for more (Slurm: --mem)"),
			"its cgroup may use %s of memory, %s a rank: more gets ranks killed", text.Bytes(*m), text.Bytes(*m/uint64(ranks)))
	}
	n := h.Facts.Cgroup.PIDs
	if n == nil || *n >= fewPIDs*uint64(ranks) {
		return
	}
	least := uint64(0)
	for rank := h.part.FirstRank; rank < h.part.FirstRank+h.part.Ranks; rank++ {
		least += uint64(h.in.Plan.Threads(rank))
	}
	words := ""
	if *n < least {
		words = fmt.Sprintf(", and the OpenMP threads of its ranks alone are %d", least)
	}
	h.say(codes.CgroupPIDs, lowered(Fail, *n >= least, Warn), h.inContainer("docker: --pids-limit=-1", "raise pids.max of the cgroup (systemd: TasksMax)"),
		"only %d processes and threads may run (pids.max of the cgroup)%s", *n, words)
}
