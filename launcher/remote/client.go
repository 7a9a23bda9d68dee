package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshHost is a host connected to by ssh. It owns the goroutines that serve the
// connection; Close ends and awaits them.
type sshHost struct {
	name     string
	conn     ssh.Conn
	wire     *watchedConn
	programs Programs
	progress Progress
	bound    time.Duration // of silence in a start
	hop      *hop

	work    crew
	gone    chan struct{} // closed when the connection ended
	lost    error         // why; valid once gone
	reason  atomic.Pointer[error]
	forward atomic.Int32 // whether unix sockets are forwarded
	closing func() error
}

var _ Host = (*sshHost)(nil)

var errClosed = errors.New("closed by muster")

// serve takes over a logged-in connection.
func (d *Dialer) serve(s *settings, wire *watchedConn, in session, via *hop) *sshHost {
	h := &sshHost{
		name: s.name, conn: in.conn, wire: wire, hop: via, gone: make(chan struct{}),
		programs: d.Programs, progress: d.Progress, bound: d.StartTimeout,
	}
	if h.bound == 0 {
		h.bound = defaultStartTimeout
	}
	h.closing = sync.OnceValue(h.end)
	ask := make(chan struct{}, 1)
	h.work.start(h.await)
	h.work.start(func() { refuse(in.channels) })
	h.work.start(func() { h.answer(in.requests) })
	h.work.start(func() { h.keepAlive(s.alive, s.aliveCount, ask) })
	h.work.start(func() { h.probe(ask) })
	return h
}

// Name is the target's name.
func (h *sshHost) Name() string { return h.name }

// Address is the other end of the connection, as far as it is a direct one.
func (h *sshHost) Address() net.Addr { return h.wire.RemoteAddr() }

// Close ends the connection. Programs that were started go on.
func (h *sshHost) Close() error { return h.closing() }

func (h *sshHost) end() error {
	h.because(errClosed)
	err := h.conn.Close()
	h.work.end()
	h.hop.release()
	if errors.Is(err, net.ErrClosed) {
		return nil // the other side was first
	}
	return err
}

// because keeps the first reason for the end of the connection.
func (h *sshHost) because(err error) { h.reason.CompareAndSwap(nil, &err) }

// await learns of the end of the connection.
func (h *sshHost) await() {
	err := h.conn.Wait()
	if errors.Is(err, io.EOF) || err == nil {
		err = errors.New("the host closed it")
	}
	h.because(err)
	h.lost = *h.reason.Load()
	close(h.gone)
}

func (h *sshHost) isLost() bool {
	select {
	case <-h.gone:
		return true
	default:
		return false
	}
}

// lostError says why the connection ended; it waits for the end.
func (h *sshHost) lostError() error {
	<-h.gone
	return &LostError{Host: h.name, Err: h.lost}
}

func refuse(channels <-chan ssh.NewChannel) {
	for c := range channels {
		c.Reject(ssh.UnknownChannelType, "muster opens channels itself")
	}
}

// answer replies to requests such as the server's own keep-alive. Where the
// system delays acknowledgements, data takes them along: the server sends its
// host keys after login, and holds its next word back until they are acknowledged.
func (h *sshHost) answer(requests <-chan *ssh.Request) {
	for r := range requests {
		r.Reply(false, nil)
		if !acksAtOnce && !r.WantReply {
			h.conn.SendRequest(keepAliveRequest, false, nil)
		}
	}
}

const keepAliveRequest = "keepalive@openssh.com"

// keepAlive asks a silent host for a sign of life, and ends the connection when
// count of them stay unanswered.
func (h *sshHost) keepAlive(interval time.Duration, count int, ask chan<- struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	defer close(ask)
	for unanswered := 0; ; {
		select {
		case <-h.gone:
			return
		case <-ticker.C:
		}
		if h.wire.quiet() < interval {
			unanswered = 0
			continue
		}
		if unanswered++; unanswered > count {
			h.because(fmt.Errorf("no sign of life for %s: network down, or host dead or suspended", h.wire.quiet().Round(time.Second/10)))
			h.conn.Close()
			return
		}
		select {
		case ask <- struct{}{}:
		default: // the one before is still on its way
		}
	}
}

// probe sends keep-alives; each blocks until it is answered or the connection ends.
func (h *sshHost) probe(ask <-chan struct{}) {
	for range ask {
		h.conn.SendRequest(keepAliveRequest, true, nil)
	}
}

// opened is a channel as the library hands it over.
type opened struct {
	channel  ssh.Channel
	requests <-chan *ssh.Request
	err      error
}

// open opens a channel. The library knows no way to give up the wait: a channel
// that opens too late is closed again.
func (h *sshHost) open(ctx context.Context, kind string, payload []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	done := make(chan opened, 1)
	work := func() {
		channel, requests, err := h.conn.OpenChannel(kind, payload)
		done <- opened{channel, requests, err}
	}
	if !h.work.start(work) {
		return nil, nil, h.lostError()
	}
	select {
	case o := <-done:
		return o.channel, o.requests, h.explain(o.err)
	case <-ctx.Done():
		h.work.start(func() { discard(<-done) })
		return nil, nil, context.Cause(ctx)
	}
}

// explain prefers the reason of a lost connection to its symptom.
func (h *sshHost) explain(err error) error {
	var refused *ssh.OpenChannelError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return h.lostError()
}

func discard(o opened) {
	if o.err == nil {
		o.channel.Close()
		ssh.DiscardRequests(o.requests)
	}
}

// crew is a set of goroutines that can be closed and awaited while others still
// try to add to it.
type crew struct {
	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// start runs work in a goroutine; false: the crew is closed and it does not run.
func (c *crew) start(work func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(work)
	return true
}

// end closes the crew and waits for the goroutines.
func (c *crew) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}
