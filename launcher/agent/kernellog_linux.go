package agent

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLog is the kernel's log from when it was opened on; nil where this user may not
// read it.
type kernelLog struct {
	fd   int
	kept []string
}

// openKernelLog opens /dev/kmsg (Documentation/ABI/testing/dev-kmsg) at its end.
func openKernelLog(path string) *kernelLog {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		unix.Close(fd)
		return nil
	}
	return &kernelLog{fd: fd}
}

func (k *kernelLog) close() {
	if k != nil {
		unix.Close(k.fd)
	}
}

// maxRecord is more than the kernel gives in one read.
const maxRecord = 8 << 10

// lines are those since the log was opened that may say why a worker died, the newest ones
// where there are many.
func (k *kernelLog) lines() []string {
	if k == nil {
		return nil
	}
	record := make([]byte, maxRecord)
	for range 100_000 { // more than the kernel keeps
		n, err := unix.Read(k.fd, record)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR) {
			continue // records were overwritten before they were read
		}
		if err != nil || n == 0 {
			break
		}
		if text := recordText(string(record[:n])); concerns(text) {
			k.kept = append(k.kept, text)
		}
	}
	k.kept = k.kept[max(0, len(k.kept)-kernelLines):]
	return append([]string(nil), k.kept...)
}

// recordText is what a record says: its prefix ends with a semicolon, and lines with
// properties follow, which begin with a space.
func recordText(record string) string {
	_, text, is := strings.Cut(record, ";")
	if !is {
		text = record
	}
	text, _, _ = strings.Cut(text, "\n")
	return text
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
