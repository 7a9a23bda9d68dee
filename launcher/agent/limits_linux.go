package agent

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// mostFiles is how far the limit of open files is raised: beyond it there are programs that
// walk through all numbers up to the limit at each start of another.
const mostFiles = 1 << 20

// raiseLimits raises the soft limits of locked memory, which InfiniBand takes, and of open
// files to the hard ones, for the workers: what starts this process over SSH often has
// lower ones than an interactive login. That of the stack is left alone: an unlimited one
// changes how threads get theirs. What cannot be raised stays, and facts tell it.
func raiseLimits() {
	var memory unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &memory) == nil && memory.Cur != memory.Max {
		memory.Cur = memory.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &memory)
	}
	// By package syscall: it then passes the raised limit on to children, where it otherwise
	// gives them back what this process was started with.
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		files.Cur = max(files.Cur, min(files.Max, mostFiles))
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files)
	}
}
