//go:build linux

package worker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
	"github.com/muster-dev/muster/launcher/kernellog"
)

const maxKernelLines = 64

// kernelLog is the kernel's log from when it was opened on; nil where this user may not read it.
type kernelLog struct {
	log  *kernellog.Log
	kept []string
}

func openKernelLog(path string) *kernelLog {
	log, err := kernellog.Open(path, true)
	if err != nil {
		return nil
	}
	return &kernelLog{log: log}
}

func (k *kernelLog) close() {
	if k != nil {
		k.log.Close()
	}
}

// lines are those since the log was opened that may say why a worker died; of many, the newest.
func (k *kernelLog) lines() []string {
	if k == nil {
		return nil
	}
	k.log.Each(func(r kernellog.Record) {
		if isRelevant(r.Text) {
			k.kept = append(k.kept, r.Text)
		}
	})
	k.kept = k.kept[max(0, len(k.kept)-maxKernelLines):]
	return append([]string(nil), k.kept...)
}

// relevant are words that kernels and drivers use when processes are killed or devices fail.
var relevant = []string{
	"oom", "out of memory", "killed process", "memory cgroup", "nvrm", "xid", "nvidia", "segfault", "traps:",
	"general protection", "i/o error", "no space", "mlx5", "infiniband", "machine check", "hardware error", "nvme",
	"ext4-fs error", "xfs", "nfs:", "lustre",
}

func isRelevant(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(relevant, func(word string) bool { return strings.Contains(text, word) })
}

// oomCounters are the kernel's counters of OOM kills, and what it says of memory, in bytes.
type oomCounters struct {
	path         string  // of the cgroup
	cgroup, host *uint64 // kills
	limit, peak  uint64
	available    uint64
}

// readCounters reads /proc/vmstat (oom_kill, since Linux 4.13), /proc/meminfo, and of this process's own cgroup
// memory.events, memory.max and memory.peak (cgroup v2), or memory.oom_control, memory.limit_in_bytes and
// memory.max_usage_in_bytes (v1).
func readCounters(root hostfs.Root) oomCounters {
	c := oomCounters{host: counterIn(root.Read("/proc/vmstat"), "oom_kill")}
	if kib := counterIn(strings.ReplaceAll(root.Read("/proc/meminfo"), ":", ""), "MemAvailable"); kib != nil {
		c.available = *kib << 10
	}
	for line := range strings.Lines(root.Read("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "":
			c.readCgroup(root, parts[2], "/sys/fs/cgroup", "memory.events", "memory.max", "memory.peak")
		case parts[1] == "memory":
			c.readCgroup(root, parts[2], "/sys/fs/cgroup/memory",
				"memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes")
		}
	}
	return c
}

// unlimited is from where on a limit of cgroup v1 means none: it has the largest number of pages there.
const unlimited = 1 << 60

func (c *oomCounters) readCgroup(root hostfs.Root, path, mount, events, limit, peak string) {
	dir := mount + path + "/"
	kills := counterIn(root.Read(dir+events), "oom_kill")
	if kills == nil {
		return
	}
	c.path, c.cgroup = path, kills
	if n, err := strconv.ParseUint(root.Read(dir+limit), 10, 64); err == nil && n < unlimited {
		c.limit = n
	}
	c.peak, _ = strconv.ParseUint(root.Read(dir+peak), 10, 64)
}

func counterIn(text, name string) *uint64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return &n
		}
	}
	return nil
}
