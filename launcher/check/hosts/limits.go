package hosts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
)

// limit is a limit as workers have it; nil: none.
func limit(h *rule.Host, l facts.Limit) *uint64 {
	if h.In.LimitsRaised {
		return l.Hard
	}
	return l.Soft
}

// ranksOf is how many ranks the host has.
func ranksOf(h *rule.Host) uint64 {
	if h.In.Plan == nil {
		return usualRanks
	}
	return uint64(max(h.Part.Ranks, 1))
}

// memlock: InfiniBand pins what it sends, so that it needs no limit at all.
func memlock(h *rule.Host) rule.Findings {
	l := h.Facts.Limits.Memlock
	n := limit(h, l)
	if n == nil || *n >= h.Facts.Memory && h.Facts.Memory > 0 || !h.In.ByNetwork() || !hasActive(h, "") {
		return nil
	}
	fix := h.InContainer("docker: --ulimit memlock=-1", "memlock = unlimited in /etc/security/limits.conf, and for ssh logins LimitMEMLOCK=infinity of sshd's unit or pam_limits")
	if l.Hard == nil && !h.In.LimitsRaised {
		fix = "setup = \"ulimit -l unlimited\": the hard limit allows it"
	}
	certain := *n < minMemlock && hasActive(h, "InfiniBand") // RoCE ports may be there and not be used
	return h.Find(fix, "processes may lock %s of memory (ulimit -l): InfiniBand needs it unlimited, else \"Cannot allocate memory\" of ibv_reg_mr follows",
		text.Bytes(*n)).AsIf(certain, rule.Fail)
}

// hasActive reports whether there is an active port of a link layer, "" for any.
func hasActive(h *rule.Host, layer string) bool {
	return slices.ContainsFunc(h.Facts.HCAs, func(p facts.HCA) bool { return p.State == "active" && (layer == "" || p.LinkLayer == layer) })
}

func noFile(h *rule.Host) rule.Findings {
	world := usualRanks
	if h.In.Plan != nil {
		world = h.In.Plan.WorldSize
	}
	n := limit(h, h.Facts.Limits.NoFile)
	want := uint64(max(minFiles, filesBase+filesPerPeer*world))
	if n == nil || *n >= want {
		return nil
	}
	fix := "raise nofile in /etc/security/limits.conf, or `ulimit -n` in setup as far as the hard limit lets it"
	if h.In.LimitsRaised {
		fix = "raise the hard limit of nofile in /etc/security/limits.conf"
	}
	return h.Find(h.InContainer("docker: --ulimit nofile=1048576", fix), "a process may open only %d files (ulimit -n); %s want %d", *n, plural.Of(world, "rank"), want)
}

// cgroupMemory is about limits that kill.
func cgroupMemory(h *rule.Host) rule.Findings {
	m := h.Facts.Cgroup.Memory
	if m == nil || *m >= minMemory*ranksOf(h) {
		return nil
	}
	return h.Find(h.InContainer("docker: --memory; Kubernetes: resources.limits.memory", "ask the scheduler for more (Slurm: --mem)"),
		"its cgroup may use %s of memory, %s a rank: more gets ranks killed", text.Bytes(*m), text.Bytes(*m/ranksOf(h)))
}

// cgroupPIDs is about limits that keep threads from being started.
func cgroupPIDs(h *rule.Host) rule.Findings {
	n := h.Facts.Cgroup.PIDs
	if n == nil || *n >= minPIDs*ranksOf(h) {
		return nil
	}
	least, threads := uint64(0), ""
	for rank := h.Part.FirstRank; rank < h.Part.FirstRank+h.Part.Ranks; rank++ {
		least += uint64(h.In.Plan.Threads(rank))
	}
	if *n < least {
		threads = fmt.Sprintf(", and the OpenMP threads of its ranks alone are %d", least)
	}
	return h.Find(h.InContainer("docker: --pids-limit=-1", "raise pids.max of the cgroup (systemd: TasksMax)"),
		"only %d processes and threads may run (pids.max of the cgroup)%s", *n, threads).AsIf(*n < least, rule.Fail)
}

// sharedMemory: NCCL's transport by shared memory fails without room ("Error while creating shared memory segment"),
// data loaders die of SIGBUS.
func sharedMemory(h *rule.Host) (found rule.Findings) {
	s, users := h.Facts.SharedMemory, "NCCL and data loaders"
	if s.Path == "" || s.Total >= minShared && s.Free >= minShared {
		return nil
	}
	if h.In.Plan != nil {
		users = "NCCL and the data loaders of " + plural.Of(h.Part.Ranks, "rank")
	}
	fix := h.InContainer("docker: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium Memory on /dev/shm", "mount -o remount,size=50% /dev/shm, by root")
	switch {
	case s.Total == 0:
		found = h.Find(fix, "there is no /dev/shm: NCCL and data loaders share memory by it")
	case s.Total < minShared:
		found = h.Find(fix, "/dev/shm has only %s, for %s", text.Bytes(s.Total), users)
	default:
		found = h.Find("files of dead processes may be left there: ls -l /dev/shm (nccl-*, torch_*, sem.mp-*), and remove your own",
			"/dev/shm is nearly full: %s of %s are free", text.Bytes(s.Free), text.Bytes(s.Total))
	}
	certain := h.Part.Ranks > 1 && h.In.Plan.Backend == "nccl" && s.Free < sharedPerRank*uint64(h.Part.Ranks)
	return found.AsIf(certain, rule.Fail)
}

// diskFull is about file systems but /dev/shm, which is judged by itself.
func diskFull(h *rule.Host) (found rule.Findings) {
	for _, s := range h.Facts.Spaces {
		if s.Path != h.Facts.SharedMemory.Path {
			found = append(found, disk(h, s)...)
		}
	}
	return found
}

// disk: a home or logs without room end a run; of the folders for temporary files one is often small by design.
func disk(h *rule.Host, s facts.Space) rule.Findings {
	vital := slices.Contains(s.Uses, facts.UseHome) || slices.Contains(s.Uses, facts.UseLogs)
	name := fmt.Sprintf("%s (%s)", s.Path, strings.Join(s.Uses, ", "))
	full := func() bool { return s.Free < minDisk || 100-s.Free*100/s.Total > fullDisk && s.Free < roomyDisk }
	switch {
	case s.ReadOnly:
		return h.Find("a file system is often read-only after an error of its disk: dmesg there says; or choose another folder", "%s is read-only", name).
			AsIf(slices.Contains(s.Uses, facts.UseLogs), rule.Fail)
	case s.Total == 0, !vital && s.Free > s.Total/2: // a file server that has gone, or not asked; or small and empty
		return nil
	case full():
		return h.Find("make room there, or point HF_HOME, TMPDIR, checkpoints and workdir at another file system; logs are under ~/.local/state/muster",
			"the file system of %s is nearly full: %s of %s are free", name, text.Bytes(s.Free), text.Bytes(s.Total)).AsIf(vital && s.Free < leastDisk, rule.Fail)
	case s.Inodes > 0 && (s.InodesFree < leastInodes || s.InodesFree*100 < s.Inodes*(100-fullDisk)):
		return h.Find("remove small files there, such as old caches: the bytes are not what is short",
			"the file system of %s can take only %d more files, of %d", name, s.InodesFree, s.Inodes).AsIf(vital && s.InodesFree < leastInodes, rule.Fail)
	}
	return nil
}

// clocks compares the hosts' clocks with each other: with the one in the middle of three or more, else with the head
// host's; without a plan, with this machine's.
func clocks(in *rule.Input) (found rule.Findings) {
	told := slices.DeleteFunc(slices.Clone(in.Hosts), func(h rule.Host) bool { return h.ClockOffset == nil })
	middle, against := 0.0, "this machine's"
	sorted := slices.Clone(told)
	slices.SortFunc(sorted, func(a, b rule.Host) int { return cmp.Compare(*a.ClockOffset, *b.ClockOffset) })
	switch {
	case in.Plan == nil:
	case len(told) < 2:
		return nil
	case len(told) == 2:
		middle, against = *told[0].ClockOffset, told[0].Name+"'s"
	default:
		middle, against = *sorted[len(sorted)/2].ClockOffset, "those of the others"
	}
	for _, h := range told {
		apart := *h.ClockOffset - middle
		if math.Abs(apart)-h.ClockError <= clocksApart {
			continue
		}
		way, means := "ahead of", "their logs cannot be compared by time"
		if apart < 0 {
			way = "behind"
		}
		if math.Abs(apart) > clocksFar {
			means += ", and stores and services may refuse its signatures and tokens"
		}
		found = append(found, h.Find("have its clock synchronised: timedatectl, chronyc tracking", "its clock is %.1f s %s %s: %s", math.Abs(apart), way, against, means)...)
	}
	return found
}
