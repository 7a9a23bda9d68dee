package remote

import (
	"context"
	"net"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
)

// channelConn is an ssh channel as a connection. It has no deadlines: those who
// need an end in time close it.
type channelConn struct {
	ssh.Channel
	remote net.Addr
}

var _ net.Conn = (*channelConn)(nil)

func (c *channelConn) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "unix"} }
func (c *channelConn) RemoteAddr() net.Addr             { return c.remote }
func (c *channelConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *channelConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *channelConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// openConn opens a channel that carries bytes and nothing else.
func (h *sshHost) openConn(ctx context.Context, kind string, payload []byte, remote net.Addr) (net.Conn, error) {
	channel, requests, err := h.open(ctx, kind, payload)
	if err != nil {
		return nil, err
	}
	h.work.start(func() { ssh.DiscardRequests(requests) })
	return &channelConn{channel, remote}, nil
}

// directTCP is the payload of a direct-tcpip channel (RFC 4254, 7.2).
type directTCP struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}

func (h *sshHost) dialTCP(ctx context.Context, host string, port int) (net.Conn, error) {
	payload := ssh.Marshal(&directTCP{host, uint32(port), "127.0.0.1", 0})
	return h.openConn(ctx, "direct-tcpip", payload, &net.TCPAddr{Port: port})
}

// directUnix is the payload of a direct-streamlocal channel (OpenSSH's PROTOCOL, 2.4).
type directUnix struct {
	Path      string
	Reserved0 string
	Reserved1 uint32
}

func (h *sshHost) dialStreamLocal(ctx context.Context, path string) (net.Conn, error) {
	payload := ssh.Marshal(&directUnix{Path: path})
	return h.openConn(ctx, "direct-streamlocal@openssh.com", payload, &net.UnixAddr{Name: path, Net: "unix"})
}
