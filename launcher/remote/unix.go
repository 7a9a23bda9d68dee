package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// What is known of a host's forwarding of unix sockets.
const (
	forwardUnknown = iota
	forwardWorks
	forwardRefused
)

// DialUnix connects to a unix socket of the host: by forwarding or, where the
// host forwards none or the path is too long for it, through a proxy program on
// the host. sshd says "open failed" of a refusal and of a missing socket alike,
// so that the first failure tries the proxy, which knows the reason.
func (h *sshHost) DialUnix(ctx context.Context, path string) (net.Conn, error) {
	if h.forward.Load() == forwardRefused {
		return h.dialProxy(ctx, path)
	}
	conn, err := h.dialStreamLocal(ctx, path)
	var refused *ssh.OpenChannelError
	switch {
	case err == nil:
		h.forward.Store(forwardWorks)
		return conn, nil
	case !errors.As(err, &refused):
		return nil, fmt.Errorf("connect to %s on %s: %w", path, h.name, err)
	case h.forward.Load() == forwardWorks:
		return nil, fmt.Errorf("connect to %s on %s: nobody listens there (%s)", path, h.name, refused.Message)
	}
	return h.dialProxy(ctx, path)
}

// dialProxy has muster-agent connect its standard streams to the socket.
func (h *sshHost) dialProxy(ctx context.Context, path string) (net.Conn, error) {
	p, err := h.Start(ctx, Launch{Program: "muster-agent", Args: []string{"proxy", path}})
	if err != nil {
		return nil, fmt.Errorf("connect to %s on %s: %w", path, h.name, err)
	}
	return &proxyConn{host: h, process: p, addr: &net.UnixAddr{Name: path, Net: "unix"}}, nil
}

// proxyConn is a connection through a proxy program.
type proxyConn struct {
	host    *sshHost
	process *Process
	addr    net.Addr
}

var _ net.Conn = (*proxyConn)(nil)

// Read tells a proxy that failed from a connection that ended. Once the proxy has
// brought something, it was forwarding that failed, and not the socket.
func (c *proxyConn) Read(p []byte) (int, error) {
	n, err := c.process.Stdout.Read(p)
	if n > 0 {
		c.host.forward.CompareAndSwap(forwardUnknown, forwardRefused)
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if failed := c.process.Wait(); failed != nil {
		return n, fmt.Errorf("proxy to %s: %w: %s", c.addr, failed, strings.TrimSpace(c.process.Stderr()))
	}
	return n, io.EOF
}

func (c *proxyConn) Write(p []byte) (int, error) { return c.process.Stdin.Write(p) }

// Close gives up both directions, which ends the proxy.
func (c *proxyConn) Close() error { return c.process.Close() }

// CloseWrite ends the input alone.
func (c *proxyConn) CloseWrite() error { return c.process.Stdin.Close() }

func (c *proxyConn) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "unix"} }
func (c *proxyConn) RemoteAddr() net.Addr             { return c.addr }
func (c *proxyConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *proxyConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *proxyConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
