package agent

import (
	"strings"

	"github.com/muster-dev/muster/launcher/kernellog"
)

// kernelLog is the kernel's log from when it was opened on; nil where this user may not
// read it.
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

// lines are those since the log was opened that may say why a worker died, the newest ones
// where there are many.
func (k *kernelLog) lines() []string {
	if k == nil {
		return nil
	}
	k.log.Each(func(r kernellog.Record) {
		if concerns(r.Text) {
			k.kept = append(k.kept, r.Text)
		}
	})
	k.kept = k.kept[max(0, len(k.kept)-kernelLines):]
	return append([]string(nil), k.kept...)
}

// tellingWords are of what kernels and drivers say when processes are killed or devices fail.
var tellingWords = []string{
	"oom", "out of memory", "killed process", "memory cgroup", "nvrm", "xid", "nvidia", "segfault", "traps:", "general protection",
	"i/o error", "no space", "mlx5", "infiniband", "machine check", "hardware error", "nvme", "ext4-fs error", "xfs", "nfs:", "lustre",
}

func concerns(text string) bool {
	lower := strings.ToLower(text)
	for _, word := range tellingWords {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}
