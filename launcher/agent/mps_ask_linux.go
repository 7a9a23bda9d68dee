package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/proc"
)

// mostAnswer is how much of what a program says is read.
const mostAnswer = 256 << 10

// consult runs a program that answers and ends, and returns what it said on both outputs. It
// is killed when the context ends.
func consult(ctx context.Context, reaper *proc.Reaper, argv, env []string, input string) (mps.Answer, error) {
	in, err := filled(input)
	if err != nil {
		return mps.Answer{}, err
	}
	defer in.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return mps.Answer{}, err
	}
	defer read.Close()
	child, err := reaper.Start(proc.Spec{
		Path: argv[0], Argv: argv, Env: env, Dir: "/", Files: []*os.File{in, write, write}, Group: true, GroupDies: true, DieWithParent: true,
	})
	write.Close()
	if err != nil {
		return mps.Answer{}, err
	}
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(read, mostAnswer)) // what was said until then counts
		said <- string(text)
	}()
	select {
	case <-child.Done:
	case <-ctx.Done():
		_ = unix.Kill(-child.ID.PID, unix.SIGKILL)
		select {
		case <-child.Done:
		case <-time.After(killWait): // state D: the driver hangs
		}
		return mps.Answer{}, fmt.Errorf("%s did not answer in time (%q)", argv[0], strings.TrimSpace(input))
	}
	// Its group was killed when it had ended, so that nobody has the pipe open.
	select {
	case text := <-said:
		return mps.Answer{Text: text, Code: statusOf(child.Exit())}, nil
	case <-ctx.Done():
		return mps.Answer{}, fmt.Errorf("%s has ended and left its output open", argv[0])
	}
}

// filled is a file to read a text from.
func filled(text string) (*os.File, error) {
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

// statusOf is an exit status as shells have it.
func statusOf(e proc.Exit) int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// control talks to the daemon of MPS in a pipe directory.
func control(reaper *proc.Reaper, program, pipe string) mps.Control {
	env := append(mpsEnviron(), mps.PipeDirectory+"="+pipe)
	return mps.Control{Ask: func(ctx context.Context, commands ...string) (mps.Answer, error) {
		return consult(ctx, reaper, []string{program}, env, strings.Join(commands, "\n")+"\n")
	}}
}

// mpsEnviron is this process's environment without CUDA's variables, which would reach the
// daemon and all of its clients.
func mpsEnviron() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "CUDA_") {
			env = append(env, entry)
		}
	}
	return env
}
