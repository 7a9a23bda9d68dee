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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
)

const (
	// settle is how long a process that seems to be ending may take to do so.
	settle = 500 * time.Millisecond
	// goodbye is how long a plugin that is asked to exit may take.
	goodbye = time.Second
)

// Why a session or a call ends.
var errSlow, errHung, errClosed, errEnded = errors.New("slow"), errors.New("hung"), errors.New("closed"), errors.New("ended")

// session is one life of a plugin's process. Whoever has the Prober's turn uses it.
type session struct {
	program Program
	process *process
	client  *goplugin.Client
	dir     string // for its socket
	stderr  tail
	ctx     context.Context // when it ends the process is killed
	cancel  context.CancelCauseFunc
	plugin  pluginpb.PluginClient
	ended   bool          // end was called
	gone    chan struct{} // closed when nothing is left of it

	mu    sync.Mutex
	conns []*grpc.ClientConn
}

func newSession(ctx context.Context, p Program, starter Starter) *session {
	s := &session{program: p, gone: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.process = &process{program: p, starter: starter, ctx: s.ctx, done: make(chan struct{})}
	return s
}

// start starts the process and connects to it, within the program's limit.
func (s *session) start() error {
	watchdog := time.AfterFunc(s.program.StartLimit, func() { s.cancel(errSlow) })
	err := s.open()
	if watchdog.Stop() && err == nil && s.ctx.Err() == nil {
		return nil
	}
	s.end(false)
	return s.startError(err)
}

func (s *session) open() (err error) {
	defer func() {
		if !s.process.begun {
			close(s.process.done)
		}
	}()
	dir, err := s.program.makeSocketDir()
	if err != nil {
		return err
	}
	s.dir = dir
	s.client = goplugin.NewClient(s.config())
	if _, err := s.client.Start(); err != nil {
		return err
	}
	protocol, err := s.client.Client()
	if err != nil {
		return err
	}
	plugin, err := protocol.Dispense(service)
	if err == nil {
		s.plugin = plugin.(pluginpb.PluginClient) // what GRPCClient of adapter returns
	}
	return err
}

func (s *session) config() *goplugin.ClientConfig {
	return &goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		Plugins:          goplugin.PluginSet{service: &adapter{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		// The session's own limit comes first and explains more.
		StartTimeout: s.program.StartLimit + s.program.killLimit,
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			s.process.env = environment(s.program.Env, cmd.Env, s.dir)
			return s.process, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: s.dir},
		Stderr:           &s.stderr, SyncStderr: &s.stderr, SyncStdout: &s.stderr,
		// Off and nothing less: go-plugin panics at a JSON log line whose message is not a
		// string, unless nobody wants to see it. The lines are in stderr all the same.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
			grpc.WithMaxHeaderListSize(64 << 10), // error texts come in headers
			grpc.WithChainStreamInterceptor(s.intercept),
		},
	}
}

// environment is a plugin's: its own, then go-plugin's, in which the folder for the socket
// is longer than it need be.
func environment(own, protocol []string, dir string) []string {
	env := append([]string{}, own...)
	for _, v := range protocol {
		if !strings.HasPrefix(v, goplugin.EnvUnixSocketDir+"=") {
			env = append(env, v)
		}
	}
	return append(env, goplugin.EnvUnixSocketDir+"="+dir)
}

// intercept ends the streams that go-plugin opens with the session, and remembers their
// connection: where one fails go-plugin forgets to close it.
func (s *session) intercept(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.ctx, cancel)
	return streamer(ctx, desc, conn, method, opts...)
}

// end ends the session: gently, a plugin is asked to exit and given a moment; then its process
// group is killed. It returns when nothing is left, or that takes too long.
func (s *session) end(gently bool) {
	if s.ended {
		return
	}
	s.ended = true
	go func() {
		if s.client != nil {
			s.client.Kill()
		}
		<-s.process.done
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, conn := range s.conns {
			conn.Close()
		}
		if s.dir != "" {
			_ = os.RemoveAll(s.dir)
		}
		close(s.gone)
	}()
	if gently {
		within(s.gone, goodbye)
	}
	s.cancel(errEnded)
	within(s.gone, s.program.killLimit)
}

// within reports whether a channel is closed after at most so long.
func within(closed <-chan struct{}, limit time.Duration) bool {
	select {
	case <-closed:
		return true
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// fault returns an error with the plugin's last lines.
func (s *session) fault(err error, format string, args ...any) *Error {
	e := s.program.fault(err, format, args...)
	e.Stderr = s.stderr.last()
	return e
}

// leftover says that a killed process is still there.
func (s *session) leftover() string {
	if within(s.gone, 0) {
		return ""
	}
	return ", and its process " + s.process.ID() + " does not go away when killed: the driver hangs"
}

// startError says why the plugin did not start.
func (s *session) startError(err error) error {
	line := s.process.firstLine()
	switch context.Cause(s.ctx) {
	case errClosed:
		return s.program.closed()
	case errSlow:
		printed := ""
		if line != "" {
			printed = ", though it printed " + quote(line)
		}
		return s.fault(nil, "it was not ready within %s%s, and was killed%s", s.program.StartLimit, printed, s.leftover())
	}
	if line != "" {
		if misfit := s.program.misfit(line); misfit != "" {
			return s.fault(nil, "%s", misfit)
		}
	}
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	switch {
	case within(s.gone, 0) && s.process.early:
		return s.fault(err, "it ended at once (%s) and printed nothing that a plugin prints: is it one of muster's?",
			s.process.ending())
	case line == "":
		return s.fault(err, "it is no plugin of muster: it printed an empty line, or closed its standard output")
	}
	return s.fault(err, "it does not start as a plugin does: %v", err)
}

// callError says what an error of a call means. Errors of the connection may come before the
// end of the process is seen.
func (s *session) callError(call string, err error) error {
	told := status.Convert(err)
	switch told.Code() {
	case codes.Unavailable, codes.Canceled, codes.Internal:
		died := within(s.process.done, settle)
		if !died && told.Code() != codes.Unavailable {
			break
		}
		s.end(false)
		if died {
			return s.fault(nil, "it died while it was asked (%s)", s.process.ending())
		}
		return s.fault(err, "the connection to it failed, and it was killed%s: %s", s.leftover(), cut(told.Message(), maxQuote))
	case codes.ResourceExhausted:
		return s.program.fault(err, "its answer is larger than %d MiB", maxReply>>20)
	case codes.Unimplemented:
		return s.program.error(KindUnsupported, err, "it does not implement %s", call)
	}
	return s.program.error(KindRefused, err, "it says: %s", cut(told.Message(), maxRefusal))
}
