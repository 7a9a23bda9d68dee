package external

import (
	"context"
	"io"
	"os"
)

// Spec is a plugin's process to be started.
type Spec struct {
	// File is the verified program. It is started by its descriptor, so that nothing can be put
	// in its place after verification: the Starter gives the child a copy that stays open (the
	// interpreter of a script reads it), as number N, and executes /proc/self/fd/N there. The
	// caller closes File once Start has returned.
	File *os.File
	// Argv begins with the program's path, for those who look at the process.
	Argv []string
	// Env is the whole environment; an empty one stays empty.
	Env []string
}

// Process is a plugin's process, in a process group of its own, with nothing as standard input
// and / as its folder.
type Process interface {
	PID() int
	// Stdout and Stderr are the read ends of its pipes. Close ends a Read that waits.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Kill kills the process and its group, and does not wait. It may be called at any time.
	Kill() error
	// Wait returns when the process has ended and what it left of its group was killed, or with
	// ctx. Nil is exit status 0; any other end is an error such as "exit status 3".
	Wait(ctx context.Context) error
}

// Starter starts a plugin's process. A plugin does not outlive who started it.
type Starter interface {
	// Start returns once the program is executed. A program that the kernel cannot execute is
	// an error that wraps the syscall.Errno. ctx limits Start, not the process.
	Start(ctx context.Context, s Spec) (Process, error)
}
