package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
)

const (
	fewShared     = 1 << 30  // bytes of /dev/shm, which NCCL and data loaders share memory by
	sharedPerRank = 10 << 20 // bytes that NCCL takes of it for one channel to one peer
	fewDisk       = 1 << 30  // bytes
	leastDisk     = 128 << 20
	fullDisk      = 95       // per cent (I fails it, M from 85), ...
	roomyDisk     = 20 << 30 // bytes ... but this much is enough for logs
	leastInodes   = 1000     // files
)

// space is about file systems that a run needs.
func (h *hostJudge) space() {
	h.sharedMemory()
	for _, s := range h.Facts.Spaces {
		if s.Path != h.Facts.SharedMemory.Path { // judged by itself
			h.disk(s)
		}
	}
}

// sharedMemory: NCCL's transport by shared memory fails without room ("Error while
// creating shared memory segment"), data loaders die of SIGBUS.
func (h *hostJudge) sharedMemory() {
	s := h.Facts.SharedMemory
	if s.Path == "" || s.Total >= fewShared && s.Free >= fewShared {
		return
	}
	least := uint64(sharedPerRank) * uint64(h.part.Ranks)
	certain := h.part.Ranks > 1 && h.in.Plan.Backend == "nccl" && s.Free < least
	severity := lowered(Fail, !certain, Warn)
	fix := h.inContainer("docker: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium Memory on /dev/shm", "mount -o remount,size=50% /dev/shm, by root")
	switch {
	case s.Total == 0:
		h.say(codes.SharedMemory, severity, fix, "there is no /dev/shm: NCCL and data loaders share memory by it")
	case s.Total < fewShared:
		h.say(codes.SharedMemory, severity, fix, "/dev/shm has only %s, for NCCL and the data loaders of %s", text.Bytes(s.Total), plural.Of(h.part.Ranks, "rank"))
	default:
		h.say(codes.SharedMemory, severity, "files of dead processes may be left there: ls -l /dev/shm (nccl-*, torch_*, sem.mp-*), and remove your own",
			"/dev/shm is nearly full: %s of %s are free", text.Bytes(s.Free), text.Bytes(s.Total))
	}
}

// disk: a home or logs without room end a run; of the folders for temporary files one is
// often small by design.
func (h *hostJudge) disk(s facts.Space) {
	const fix = "make room there, or point HF_HOME, TMPDIR, checkpoints and workdir at another file system; logs are under ~/.local/state/muster"
	vital := slices.Contains(s.Uses, facts.UseHome) || slices.Contains(s.Uses, facts.UseLogs)
	name := fmt.Sprintf("%s (%s)", s.Path, strings.Join(s.Uses, ", "))
	if s.ReadOnly {
		h.say(codes.DiskFull, lowered(Fail, !slices.Contains(s.Uses, facts.UseLogs), Warn),
			"a file system is often read-only after an error of its disk: dmesg there says; or choose another folder", "%s is read-only", name)
		return
	}
	if s.Total == 0 || !vital && s.Free > s.Total/2 {
		return // a file server that has gone, or not asked; or small and empty
	}
	percent := 100 - s.Free*100/s.Total
	if s.Free < fewDisk || percent > fullDisk && s.Free < roomyDisk {
		h.say(codes.DiskFull, lowered(Fail, s.Free >= leastDisk || !vital, Warn), fix, "the file system of %s is nearly full: %s of %s are free", name, text.Bytes(s.Free), text.Bytes(s.Total))
		return
	}
	if s.Inodes > 0 && (s.InodesFree < leastInodes || s.InodesFree*100 < s.Inodes*(100-fullDisk)) {
		h.say(codes.DiskFull, lowered(Fail, s.InodesFree >= leastInodes || !vital, Warn), "remove small files there, such as old caches: the bytes are not what is short",
			"the file system of %s can take only %d more files, of %d", name, s.InodesFree, s.Inodes)
	}
}
