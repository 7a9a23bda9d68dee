package external

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// pipesStay is how long the pipes of a process that died or was killed are still read: others
// may hold their ends.
const pipesStay = time.Second

// process is a plugin's process in the form that go-plugin wants.
type process struct {
	program Program
	starter Starter
	env     []string
	ctx     context.Context // of the session: go-plugin's own cannot be cancelled

	mu     sync.Mutex
	child  Process // nil before it was started
	stdout *greeting
	killed bool

	begun bool          // Start was called
	done  chan struct{} // closed when there is no process, any more or at all
	exit  error         // how it ended; once done
	early bool          // it ended by itself; once done
}

var _ runner.Runner = (*process)(nil)

// Start verifies the program and starts what was verified.
func (p *process) Start(ctx context.Context) error {
	p.begun = true
	if err := p.start(ctx); err != nil {
		close(p.done)
		return err
	}
	go func() {
		exit := p.child.Wait(context.Background())
		p.mu.Lock()
		p.exit, p.early = exit, !p.killed
		p.mu.Unlock()
		close(p.done)
		p.closePipes()
	}()
	return nil
}

func (p *process) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	file, err := p.program.open()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := p.ctx.Err(); err != nil {
		return err
	}
	argv := append([]string{p.program.Path}, p.program.Args...)
	child, err := p.starter.Start(ctx, Spec{File: file, Argv: argv, Env: p.env})
	if err != nil {
		return p.program.startFailure(err)
	}
	p.mu.Lock()
	p.child, p.stdout = child, &greeting{ReadCloser: child.Stdout()}
	p.mu.Unlock()
	context.AfterFunc(p.ctx, p.kill)
	return nil
}

func (p *process) closePipes() {
	time.AfterFunc(pipesStay, func() {
		p.child.Stdout().Close()
		p.child.Stderr().Close()
	})
}

// kill kills the process and its group. Whether that worked shows in whether it ends.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.child != nil {
		_ = p.child.Kill()
		p.closePipes()
	}
}

// Kill is how go-plugin ends a process that did not start properly, or did not exit when asked.
// One that is exiting gets the time to do so.
func (p *process) Kill(context.Context) error {
	if !within(p.done, settle) {
		p.kill()
	}
	return nil
}

// Wait waits for the end.
func (p *process) Wait(context.Context) error {
	<-p.done
	return p.exit
}

// ending describes how the process ended.
func (p *process) ending() string {
	if p.exit == nil {
		return "exit status 0"
	}
	return p.exit.Error()
}

// firstLine returns the first line of the standard output.
func (p *process) firstLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdout == nil {
		return ""
	}
	return p.stdout.text()
}

func (p *process) Stdout() io.ReadCloser { return p.stdout }
func (p *process) Stderr() io.ReadCloser { return p.child.Stderr() }
func (p *process) Name() string          { return p.program.Name }

// ID is never empty: go-plugin cleans up only what has one.
func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return "pid 0"
	}
	return fmt.Sprintf("pid %d", p.child.PID())
}

// Diagnose adds nothing: the session says what is wrong.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost changes nothing.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin changes nothing.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// maxGreeting is more than any plugin's first line takes; it holds a certificate.
const maxGreeting = 8 << 10

// greeting passes on the first line of a plugin's output, keeps it, and discards the rest, which
// would stop the plugin if nobody read it: go-plugin gives up at a line that is too long.
type greeting struct {
	io.ReadCloser
	mu    sync.Mutex
	line  []byte
	whole bool
}

func (g *greeting) Read(into []byte) (int, error) {
	if g.whole {
		_, _ = io.Copy(io.Discard, g.ReadCloser)
		return 0, io.EOF
	}
	n, err := g.ReadCloser.Read(into)
	g.mu.Lock()
	defer g.mu.Unlock()
	if end := bytes.IndexByte(into[:n], '\n'); end >= 0 {
		n, g.whole = end+1, true
	} else if len(g.line)+n > maxGreeting {
		into[n-1], g.whole = '\n', true
	}
	g.line = append(g.line, into[:n]...)
	return n, err
}

func (g *greeting) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.TrimSpace(string(g.line))
}
