package external

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
)

const (
	// goodbye is how long a plugin that is asked to end may take.
	goodbye = time.Second
	// lastWords is how long a killed process may take to be gone, with all that was about it.
	lastWords = 3 * time.Second
)

// Why a session or a call ends.
var (
	errSlow   = errors.New("not ready in time")
	errHung   = errors.New("no answer in time") // of a call
	errClosed = errors.New("closed")
	errEnded  = errors.New("ended")
)

// session is one life of a plugin's process.
type session struct {
	program Program
	child   *child
	client  *goplugin.Client
	dir     string // for the plugin's socket
	stderr  *tail
	ctx     context.Context // ends with the session: go-plugin's own contexts cannot be ended
	cancel  context.CancelCauseFunc
	turn    chan struct{} // whoever put something in may call

	opened    chan struct{} // go-plugin is through with starting
	openError error         // once opened
	plugin    pluginpb.PluginClient
	ready     chan struct{}
	err       error // why it did not start; once ready

	ending sync.Once
	dying  chan struct{} // it has begun to end
	ended  chan struct{} // it has ended, or cannot be
	gone   chan struct{} // nothing is left of it

	mu     sync.Mutex
	conns  []*grpc.ClientConn
	closed bool // by Close: no more calls
	active int  // calls under way, or waiting for their turn
	calls  sync.WaitGroup
}

// newSession starts a plugin. One goroutine is with it until it is gone.
func newSession(p Program, s Starter) *session {
	n := &session{
		program: p, stderr: &tail{}, turn: make(chan struct{}, 1),
		opened: make(chan struct{}), ready: make(chan struct{}),
		dying: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	n.child = &child{program: p, starter: s, ctx: n.ctx, done: make(chan struct{})}
	go n.live()
	return n
}

func (s *session) live() {
	watchdog := time.AfterFunc(s.program.StartLimit, func() { s.cancel(errSlow) })
	go func() {
		s.openError = s.open()
		close(s.opened)
	}()
	var failed bool
	select {
	case <-s.opened:
		failed = s.openError != nil || !watchdog.Stop()
	case <-s.ctx.Done():
		failed = true
	}
	if failed {
		s.end(false)
		s.err = s.unopened()
		close(s.ready)
		return
	}
	close(s.ready)
	<-s.child.done
	s.end(false)
}

// open starts the process and connects to it.
func (s *session) open() error {
	if len(s.program.SocketDir) > longestSocketDir {
		close(s.child.done)
		return s.program.fault(KindFailed, nil, "the path of the folder for its socket is longer than %d bytes: %s", longestSocketDir, s.program.SocketDir)
	}
	dir, err := os.MkdirTemp(s.program.SocketDir, "")
	if err != nil {
		close(s.child.done)
		return s.program.fault(KindFailed, err, "make a folder for its socket: %v", err)
	}
	s.dir, s.child.dir = dir, dir
	s.client = goplugin.NewClient(s.config())
	if _, err := s.client.Start(); err != nil {
		return err
	}
	protocol, err := s.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(service)
	if err != nil {
		return err
	}
	s.plugin = raw.(pluginpb.PluginClient) // it is what GRPCClient of adapter returns
	return nil
}

func (s *session) config() *goplugin.ClientConfig {
	return &goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		Plugins:          goplugin.PluginSet{service: &adapter{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		// The session's own limit comes first and tells more.
		StartTimeout: s.program.StartLimit + lastWords,
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			s.child.env = environment(s.program.Env, cmd.Env, s.dir)
			return s.child, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: s.dir},
		Stderr:           s.stderr, SyncStderr: s.stderr, SyncStdout: s.stderr,
		// Off and nothing less: go-plugin panics at a line of log in JSON whose message is not
		// a string, unless nobody wants to see it. The lines are in stderr all the same.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
			grpc.WithMaxHeaderListSize(64 << 10), // texts of errors come in headers
			grpc.WithChainStreamInterceptor(s.intercept),
		},
	}
}

// environment is a plugin's: its own, then go-plugin's, in which the folder for the socket
// is longer than need be.
func environment(own, protocol []string, dir string) []string {
	env := append([]string{}, own...)
	for _, v := range protocol {
		if !strings.HasPrefix(v, goplugin.EnvUnixSocketDir+"=") {
			env = append(env, v)
		}
	}
	return append(env, goplugin.EnvUnixSocketDir+"="+dir)
}

// intercept lets the streams that go-plugin opens end with the session, and remembers
// their connection: where one fails go-plugin forgets to close it.
func (s *session) intercept(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.ctx, cancel)
	return streamer(ctx, desc, conn, method, opts...)
}

// end ends the session: gently, a plugin that is well is asked to and given a moment;
// then its process group is killed. It returns when nothing is left, or that takes too
// long. The first caller decides how; the others wait.
func (s *session) end(gently bool) {
	s.ending.Do(func() {
		close(s.dying)
		go s.dismantle()
		if gently && s.isReady() {
			s.isGone(goodbye)
		}
		s.cancel(errEnded)
		s.child.kill()
		s.isGone(lastWords)
		close(s.ended)
	})
}

// dismantle closes in this order: the plugin (by go-plugin's request, or because it is
// killed meanwhile), connections, the folder of its socket.
func (s *session) dismantle() {
	if !s.isReady() {
		<-s.opened
	}
	if s.client != nil {
		s.client.Kill()
	}
	<-s.child.done
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		conn.Close()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	s.cancel(errEnded)
	close(s.gone)
}

// isReady says whether the plugin has started well.
func (s *session) isReady() bool {
	select {
	case <-s.ready:
		return s.err == nil
	default:
		return false
	}
}

// isGone says whether nothing is left after at most so long.
func (s *session) isGone(limit time.Duration) bool {
	select {
	case <-s.gone:
		return true
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.gone:
		return true
	case <-timer.C:
		return false
	}
}

// fault is an error with the plugin's last lines.
func (s *session) fault(kind Kind, err error, format string, args ...any) *Error {
	e := s.program.fault(kind, err, format, args...)
	e.Stderr = s.stderr.last()
	return e
}

// leftover says that a killed process is still there.
func (s *session) leftover() string {
	if s.isGone(0) {
		return ""
	}
	return ", and its process " + s.child.ID() + " does not go away when killed: the driver hangs"
}

// unopened says why the plugin did not start.
func (s *session) unopened() error {
	switch context.Cause(s.ctx) {
	case errClosed:
		return s.program.closed()
	case errSlow:
		said := ""
		if line := s.child.said(); line != "" {
			said = ", though it printed " + quote(line)
		}
		return s.fault(KindSlow, nil, "it was not ready within %s%s, and was killed%s", s.program.StartLimit, said, s.leftover())
	}
	select {
	case <-s.opened:
	default:
		return s.fault(KindStuck, nil, "it does not start%s", s.leftover())
	}
	if line := s.child.said(); line != "" {
		if misfit := s.program.misfit(line); misfit != nil {
			misfit.Stderr = s.stderr.last()
			return misfit
		}
	}
	var known *Error
	if errors.As(s.openError, &known) {
		return known
	}
	return s.exited()
}

// exited says why the process of a plugin ended before it was one.
func (s *session) exited() error {
	if line := loaderLine(s.stderr.last()); line != "" {
		return s.program.fault(KindLoader, s.openError, "it cannot be loaded on this host, whose libraries are older than it was built for or are missing: %s", quote(line))
	}
	if s.isGone(0) && s.child.early {
		return s.fault(KindExited, s.openError, "it ended at once (%s) and printed nothing that a plugin prints: is it one of muster's?", s.child.ending())
	}
	if s.child.said() == "" {
		return s.fault(KindNotPlugin, s.openError, "it is no plugin of muster: it printed an empty line, or closed its standard output")
	}
	return s.fault(KindFailed, s.openError, "it does not start as a plugin does: %v", s.openError)
}
