package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dialTCP opens the connection that carries ssh.
func dialTCP(ctx context.Context, s *settings) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	return dialer.DialContext(ctx, s.family, s.address())
}

// dialError explains why no connection came about.
func dialError(ctx context.Context, s *settings, err error) error {
	var inner *ConnectError
	if errors.As(err, &inner) {
		return err
	}
	out := &ConnectError{Host: s.name, Kind: KindUnreachable, Err: err}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		out.Kind = KindResolve
		out.Err = fmt.Errorf("the name %s was not found: %w", s.host, err)
		out.Hint = "is it spelled right? names that only ssh knows stand in ~/.ssh/config"
	case errors.Is(err, syscall.ECONNREFUSED):
		out.Kind = KindRefused
		out.Err = fmt.Errorf("nothing listens at %s: %w", s.address(), syscall.ECONNREFUSED)
		out.Hint = "is sshd running there, and is that its port?"
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTooSlow):
		out.Kind, out.Err = KindCanceled, context.Cause(ctx)
	case ctx.Err() != nil || timedOut(err):
		out.Kind = KindTimeout
		out.Err = fmt.Errorf("no answer from %s within %s", s.address(), s.timeout)
		out.Hint = "is the host up, and does a firewall or VPN stand between?"
	default:
		out.Err = fmt.Errorf("cannot reach %s: %w", s.address(), err)
	}
	return out
}

func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// watchedConn is a connection that knows when it last heard something, and what
// its first words were.
type watchedConn struct {
	net.Conn
	heard atomic.Int64 // unix nanoseconds
	eager atomic.Bool  // acknowledge at once

	mu   sync.Mutex
	head []byte
}

func watch(conn net.Conn) *watchedConn {
	w := &watchedConn{Conn: conn}
	w.eager.Store(true)
	return w
}

// complaint is what a proxy command said on its standard error.
func (w *watchedConn) complaint() string {
	if c, ok := w.Conn.(*commandConn); ok {
		return c.complaint()
	}
	return ""
}

// Read acknowledges at once while a start is under way: sshd leaves Nagle's
// algorithm on, and its next small packet would wait 40 ms for a delayed one.
func (w *watchedConn) Read(p []byte) (int, error) {
	eager := w.eager.Load()
	if eager {
		acknowledgeAtOnce(w.Conn)
	}
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(time.Now().UnixNano())
	}
	if n > 0 && eager {
		w.note(p[:n])
	}
	return n, err
}

const headSize = 255

func (w *watchedConn) note(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := headSize - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, len(p))]...)
	}
}

func (w *watchedConn) silent() bool { return w.heard.Load() == 0 }

// quiet is how long nothing was heard.
func (w *watchedConn) quiet() time.Duration { return time.Since(time.Unix(0, w.heard.Load())) }

// greeting is the first line that was heard.
func (w *watchedConn) greeting() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _, _ := strings.Cut(string(w.head), "\n")
	return strings.TrimSpace(line)
}
