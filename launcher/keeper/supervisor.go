//go:build linux

package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/muster-dev/muster/plugins/external"
)

// Supervisor is the agent's side of the processes that the keeper starts for it.
type Supervisor struct {
	conn *Conn
	mu   sync.Mutex
	last int             // number given
	all  map[int]*Remote // by number
	gone bool            // the keeper is
}

var _ external.Starter = (*Supervisor)(nil)

// NewSupervisor starts processes over a connection.
func NewSupervisor(c *Conn) *Supervisor { return &Supervisor{conn: c, all: map[int]*Remote{}} }

// Remote is a process that is the keeper's child.
type Remote struct {
	Ended   chan struct{} // closed when it has ended
	how     string
	number  int
	conn    *Conn
	started chan struct{}
	state   processState // of the start
}

// succeeded is how the keeper reports an end with exit status 0.
const succeeded = "exit status 0"

// Daemon starts a process that writes to a file.
func (s *Supervisor) Daemon(ctx context.Context, p Process, output *os.File) (*Remote, error) {
	return s.start(ctx, p, output, output)
}

// Start starts a plug-in.
func (s *Supervisor) Start(ctx context.Context, spec external.Spec) (external.Process, error) {
	stdout, theirStdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirStdout.Close()
	stderr, theirStderr, err := os.Pipe()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	defer theirStderr.Close()
	// The keeper has this process's environment already.
	own := os.Environ()
	env := slices.DeleteFunc(slices.Clone(spec.Env), func(entry string) bool { return slices.Contains(own, entry) })
	p, err := s.start(ctx, Process{Argv: spec.Argv, Env: env}, theirStdout, theirStderr, spec.File)
	if err != nil {
		closeAll([]*os.File{stdout, stderr})
		return nil, err
	}
	return &plugin{p, stdout, stderr}, nil
}

func (s *Supervisor) start(ctx context.Context, p Process, files ...*os.File) (*Remote, error) {
	r, err := s.add()
	if err != nil {
		return nil, err
	}
	p.Number = r.number
	if err := s.conn.Send(Message{Start: &p}, files...); err != nil {
		return nil, fmt.Errorf("ask the keeper: %w", err)
	}
	select {
	case <-r.started:
	case <-ctx.Done():
		_ = r.Kill()
		return nil, context.Cause(ctx)
	}
	if r.state.Error != "" {
		return nil, startError{r.state}
	}
	return r, nil
}

func (s *Supervisor) add() (*Remote, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, errors.New("the keeper is gone")
	}
	s.last++
	r := &Remote{number: s.last, conn: s.conn, started: make(chan struct{}), Ended: make(chan struct{})}
	s.all[r.number] = r
	return r, nil
}

type startError struct{ state processState }

func (e startError) Error() string { return e.state.Error }

// Unwrap is the kernel's reason, for errors.Is.
func (e startError) Unwrap() error {
	if e.state.Errno == 0 {
		return nil
	}
	return e.state.Errno
}

// Handle takes in what the keeper reports of a process.
func (s *Supervisor) Handle(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := *m.Process
	r := s.all[state.Number]
	switch {
	case r == nil:
	case state.Ended != "":
		r.how = state.Ended
		close(r.Ended)
		delete(s.all, state.Number)
	default:
		r.state = state
		close(r.started)
		if state.Error != "" {
			delete(s.all, state.Number)
		}
	}
}

// KeeperGone ends all waits: nothing will be received any more.
func (s *Supervisor) KeeperGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for _, r := range s.all {
		r.how = "its keeper is gone"
		select {
		case <-r.started:
		default:
			r.state.Error = "the keeper is gone"
			close(r.started)
		}
		close(r.Ended)
	}
	clear(s.all)
}

// PID names the process.
func (r *Remote) PID() int { return r.state.PID }

// How is how the process ended, once Ended is closed.
func (r *Remote) How() string { return r.how }

// Kill has the keeper kill the process and its group.
func (r *Remote) Kill() error { return r.conn.Send(Message{Kill: r.number}) }

// Wait returns when the process has ended, or with ctx. Only exit status 0 is no error.
func (r *Remote) Wait(ctx context.Context) error {
	select {
	case <-r.Ended:
		if r.how != succeeded {
			return errors.New(r.how)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type plugin struct {
	*Remote
	stdout, stderr *os.File
}

func (p *plugin) Stdout() io.ReadCloser { return p.stdout }
func (p *plugin) Stderr() io.ReadCloser { return p.stderr }
