package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/remote/bootstrap"
	"github.com/muster-dev/muster/launcher/remote/sshconfig"
	"github.com/muster-dev/muster/launcher/remote/wire"
)

// Local is this machine. Its programs are run where they stand.
type Local struct {
	name     string
	commands map[string][]string
	programs Programs // where programs are found that commands lacks; nil: nowhere
	work     crew

	mu      sync.Mutex
	streams []io.Closer // of the programs that were started
}

var _ Host = (*Local)(nil)

// NewLocal returns this machine under a name. commands tells how each program is
// called: the absolute path of the file and the arguments that come first. nil
// stands for Self. Others are taken of carried, which may be nil, and installed as on any
// host.
func NewLocal(name string, commands map[string][]string, carried Programs) (*Local, error) {
	if commands == nil {
		self, err := Self()
		if err != nil {
			return nil, err
		}
		commands = self
	}
	return &Local{name: name, commands: commands, programs: carried}, nil
}

// Self is the running program in the roles of muster's programs.
func Self() (map[string][]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the running program: %w", err)
	}
	return map[string][]string{"muster": {exe}, "muster-agent": {exe, "agent"}}, nil
}

// Name is the name that was given.
func (l *Local) Name() string { return l.name }

// Start runs a program in a session of its own, so that a terminal's signals do
// not reach it, with this process's environment, in the home directory.
func (l *Local) Start(ctx context.Context, launch Launch) (*Process, error) {
	p, err := l.start(ctx, launch)
	if err != nil {
		return nil, &StartError{Host: l.name, Program: launch.Program, Kind: KindProgram, Err: err}
	}
	return p, nil
}

func (l *Local) start(ctx context.Context, launch Launch) (*Process, error) {
	argv, err := l.commandLine(launch)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = startFolder()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &localProcess{cmd: cmd, drained: make(chan struct{})}
	if err := p.begin(); err != nil {
		return nil, err
	}
	if !l.keep(p) {
		return nil, errors.Join(errClosed, p.close())
	}
	return &Process{
		Stdin: p.in, Stdout: p.out, Wait: sync.OnceValue(p.wait), Stderr: p.stderr.Text, Close: p.close,
	}, nil
}

// startFolder is the home directory, or the root where there is none.
func startFolder() string {
	home := sshconfig.HomeDir()
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return "/"
	}
	return home
}

// keep has the program's standard error read, and all its streams closed with
// the host.
func (l *Local) keep(p *localProcess) bool {
	l.mu.Lock()
	l.streams = append(l.streams, p.in, p.out, p.err)
	l.mu.Unlock()
	return l.work.start(p.drain)
}

func (l *Local) commandLine(launch Launch) ([]string, error) {
	argv := append([]string{}, l.commands[launch.Program]...)
	if len(argv) == 0 {
		return nil, fmt.Errorf("there is no program %s here", launch.Program)
	}
	for _, arg := range launch.Args {
		if name, isPlace := bootstrap.Placeholder(arg); isPlace {
			place, err := l.place(name, launch.Optional)
			if err != nil {
				return nil, fmt.Errorf("argument %s: %w", arg, err)
			}
			arg = place
		}
		argv = append(argv, arg)
	}
	return argv, nil
}

// place is the path of a program here; "" for an optional one that is lacking.
func (l *Local) place(name string, optional []Optional) (string, error) {
	at := slices.IndexFunc(optional, func(o Optional) bool { return o.Program == name })
	if at >= 0 && !isThere(optional[at].Where) {
		return "", nil
	}
	if command := l.commands[name]; len(command) > 0 {
		return command[0], nil
	}
	if l.programs != nil && slices.Contains(l.programs.Platforms(name), [2]string{runtime.GOOS, runtime.GOARCH}) {
		binary, err := l.programs.Find(name, runtime.GOOS, runtime.GOARCH)
		if err != nil {
			return "", err
		}
		return install(name, binary)
	}
	if at >= 0 {
		return "", nil
	}
	return "", errors.New("that program is not here")
}

func isThere(paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// DialUnix connects to a unix socket of this machine.
func (l *Local) DialUnix(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", path)
}

// Close gives up the streams of what was started. Programs go on.
func (l *Local) Close() error {
	l.mu.Lock()
	for _, s := range l.streams {
		s.Close() // a second close is an error of no interest
	}
	l.streams = nil
	l.mu.Unlock()
	l.work.end()
	return nil
}

// localProcess is a program and our ends of its streams.
type localProcess struct {
	cmd          *exec.Cmd
	in, out, err *os.File
	stderr       wire.Tail
	drained      chan struct{}
}

// begin starts the program. Pipes are made by hand, because those of exec are
// closed when the program ends, with what is left to be read in them.
func (p *localProcess) begin() (err error) {
	var theirs [3]*os.File
	defer func() {
		closeAll(theirs[:]...)
		if err != nil {
			closeAll(p.in, p.out, p.err)
		}
	}()
	if theirs[0], p.in, err = os.Pipe(); err != nil {
		return err
	}
	if p.out, theirs[1], err = os.Pipe(); err != nil {
		return err
	}
	if p.err, theirs[2], err = os.Pipe(); err != nil {
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return p.cmd.Start()
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func (p *localProcess) drain() {
	io.Copy(&p.stderr, p.err)
	close(p.drained)
}

func (p *localProcess) wait() error {
	err := p.cmd.Wait()
	select {
	case <-p.drained:
	case <-time.After(stderrGrace): // its children hold on to it
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return &ExitError{Status: 128 + int(status.Signal()), Signal: signalName(int(status.Signal()))}
	}
	return &ExitError{Status: exit.ExitCode()}
}

func signalName(number int) string {
	for name, n := range signalNumbers {
		if n == number {
			return name
		}
	}
	return fmt.Sprint(number)
}

func (p *localProcess) close() error {
	closeAll(p.in, p.out, p.err)
	return nil
}
