package external

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

const (
	// settle is how long a process that seems to have ended may take to do so.
	settle = 500 * time.Millisecond
	// openAfterDeath is how long others may hold a dead plugin's pipes.
	openAfterDeath = time.Second
)

// child is a plugin's process as go-plugin wants it.
type child struct {
	program Program
	starter Starter
	env     []string
	dir     string          // where its socket must be
	ctx     context.Context // that of the session: go-plugin's own cannot be ended

	mu      sync.Mutex
	process Process
	stdout  *greeting
	stderr  *pipe
	killed  bool

	done  chan struct{} // closed when there is no process, any more or at all
	how   error         // it ended; once done
	early bool          // it ended by itself; once done
}

var _ runner.Runner = (*child)(nil)

// Start checks the program and starts what was checked.
func (c *child) Start(ctx context.Context) error {
	if err := c.start(ctx); err != nil {
		close(c.done)
		return err
	}
	go c.wait()
	return nil
}

func (c *child) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	file, err := c.program.open()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := c.ctx.Err(); err != nil {
		return err
	}
	argv := append([]string{c.program.Path}, c.program.Args...)
	process, err := c.starter.Start(ctx, Spec{File: file, Argv: argv, Env: c.env})
	if err != nil {
		return c.program.unstarted(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = process
	c.stdout = &greeting{pipe: newPipe(process.Stdout())}
	c.stderr = newPipe(process.Stderr())
	if c.killed {
		_ = process.Kill()
	}
	return nil
}

// wait waits for the process, and ends reading of its pipes where others hold them.
func (c *child) wait() {
	how := c.process.Wait(context.Background())
	c.mu.Lock()
	c.how, c.early = how, !c.killed
	c.mu.Unlock()
	close(c.done)
	defer c.stderr.Close()
	defer c.stdout.Close()
	late := time.After(openAfterDeath)
	for _, p := range []*pipe{c.stdout.pipe, c.stderr} {
		select {
		case <-p.ended:
		case <-late:
			return
		}
	}
}

// kill kills the process and its group, now or as soon as it is there.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.process != nil {
		_ = c.process.Kill() // whether it worked is seen by whether it ends
	}
}

// Kill is how go-plugin ends a process that does not start as it should, or did not when
// it was asked to. One that is ending gets the time to tell how.
func (c *child) Kill(context.Context) error {
	select {
	case <-c.done:
	case <-time.After(settle):
		c.kill()
	}
	return nil
}

// Wait waits for the end.
func (c *child) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.how
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endsWithin says whether the process is gone after at most so long.
func (c *child) endsWithin(limit time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// ending tells how the process ended.
func (c *child) ending() string {
	if c.how == nil {
		return "exit status 0"
	}
	return c.how.Error()
}

// pid is 0 before there is a process.
func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.PID()
}

// said returns the first line of the standard output.
func (c *child) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stdout == nil {
		return ""
	}
	return c.stdout.text()
}

func (c *child) Stdout() io.ReadCloser { return c.stdout }
func (c *child) Stderr() io.ReadCloser { return c.stderr }
func (c *child) Name() string          { return c.program.Name }

// ID is never empty: go-plugin clears up only after what has one.
func (c *child) ID() string { return fmt.Sprintf("pid %d", c.pid()) }

// Diagnose adds nothing: the session tells what is wrong.
func (c *child) Diagnose(context.Context) string { return "" }

// PluginToHost lets a plugin's socket be in the plugin's own folder only.
func (c *child) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || !strings.HasPrefix(filepath.Clean(address), c.dir+"/") {
		return "", "", c.program.fault(KindNotPlugin, nil, "it listens on %s %s: a plugin makes its unix socket in the folder $PLUGIN_UNIX_SOCKET_DIR",
			quote(network), quote(address))
	}
	return network, address, nil
}

// HostToPlugin changes nothing.
func (c *child) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// pipe tells when nothing more comes from it.
type pipe struct {
	io.ReadCloser
	once  sync.Once
	ended chan struct{}
}

func newPipe(r io.ReadCloser) *pipe { return &pipe{ReadCloser: r, ended: make(chan struct{})} }

func (p *pipe) Read(into []byte) (int, error) {
	n, err := p.ReadCloser.Read(into)
	if err != nil {
		p.once.Do(func() { close(p.ended) })
		err = io.EOF // a pipe that was closed under the reader has ended, too
	}
	return n, err
}

// longestGreeting is more than any plugin's first line takes; it holds a certificate.
const longestGreeting = 8 << 10

// greeting passes the first line of a plugin on, keeps it, and swallows the rest: what
// go-plugin does not read would stop the plugin, and its lines have a limit.
type greeting struct {
	*pipe
	mu    sync.Mutex
	line  []byte
	whole bool
}

func (g *greeting) Read(into []byte) (int, error) {
	for {
		n, err := g.pipe.Read(into)
		if n = g.take(into[:n]); n > 0 || err != nil {
			return n, err
		}
	}
}

// take returns how much of the data belongs to the first line, and ends one that is too
// long.
func (g *greeting) take(data []byte) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.whole || len(data) == 0 {
		return 0
	}
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		data, g.whole = data[:end+1], true
	}
	if room := longestGreeting - len(g.line); len(data) > room {
		data, g.whole = data[:max(room, 1)], true
		data[len(data)-1] = '\n'
	}
	g.line = append(g.line, data...)
	return len(data)
}

func (g *greeting) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.TrimSpace(string(g.line))
}
