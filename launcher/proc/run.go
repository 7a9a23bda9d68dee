//go:build linux

package proc

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxAnswer is how much of a program's output Run reads.
	maxAnswer = 256 << 10
	// KillWait is how long processes may take to die of SIGKILL before they count as left over (state D).
	KillWait = 5 * time.Second
)

// Run runs a program that answers and ends, and returns what it wrote to both outputs. It is killed when ctx ends.
func (r *Reaper) Run(ctx context.Context, argv, env []string, input string) (text string, exit Exit, err error) {
	in, err := fileWith(input)
	if err != nil {
		return "", Exit{}, err
	}
	defer in.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return "", Exit{}, err
	}
	defer read.Close()
	child, err := r.Start(Spec{
		Path: argv[0], Argv: argv, Env: env, Dir: "/", Files: []*os.File{in, write, write},
		Group: true, GroupDies: true, DieWithParent: true,
	})
	write.Close()
	if err != nil {
		return "", Exit{}, err
	}
	output := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(read, maxAnswer)) // what was read until an error counts
		output <- string(text)
	}()
	select {
	case <-child.Done:
	case <-ctx.Done():
		_ = unix.Kill(-child.ID.PID, unix.SIGKILL)
		select {
		case <-child.Done:
		case <-time.After(KillWait): // state D: the driver hangs
		}
		return "", Exit{}, fmt.Errorf("%s did not answer in time (%q)", argv[0], strings.TrimSpace(input))
	}
	// Its group was killed when it had ended, so nobody has the pipe open.
	select {
	case text := <-output:
		return text, child.Exit(), nil
	case <-ctx.Done():
		return "", Exit{}, fmt.Errorf("%s has ended and left its output open", argv[0])
	}
}

// fileWith returns a file to read a text from.
func fileWith(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err = f.WriteString(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Status is the exit status as shells have it.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// HasEnded reports whether a child was reaped.
func (c *Child) HasEnded() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}
