package external

import (
	"context"
	"io"
	"os"
)

// Spec is a plugin's process to be started.
type Spec struct {
	// File is the program that was checked. It is started by its descriptor, so nothing can
	// be put in its place between check and start: the Starter gives the child a copy of it
	// that stays open (a script is read through it by its interpreter), as number N, and
	// executes /proc/self/fd/N there. The caller closes File once Start has returned.
	File *os.File
	// Argv begins with the program's path, for those who look at the process.
	Argv []string
	// Env is the whole environment; an empty one stays empty.
	Env []string
}

// Process is a plugin's process, at the head of or in a process group of its own, with
// nothing as standard input and / as its folder.
type Process interface {
	// PID names it in texts.
	PID() int
	// Stdout and Stderr are the read ends of its pipes. Close ends a Read that waits.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Kill kills the process and its group, and does not wait. It may be called at any time
	// and again; one that is gone is no error.
	Kill() error
	// Wait returns when the process has ended and what it left of its group was killed, or
	// with ctx. Nil is exit status 0; any other end is an error whose text tells it, such as
	// "exit status 3". It is called once.
	Wait(ctx context.Context) error
}

// Starter starts a plugin's process; whoever implements it is its parent, or knows it. A
// plugin does not outlive who started it.
type Starter interface {
	// Start returns once the program is executed. What the kernel says of a program that
	// cannot be is to be found in the error by errors.Is, as a syscall.Errno. ctx bounds
	// Start and not the process.
	Start(ctx context.Context, s Spec) (Process, error)
}
