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

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
	"github.com/muster-dev/muster/launcher/remote/wire"
)

// sshHost is a host connected to by ssh. It owns the goroutines that serve the
// connection; Close ends and awaits them.
type sshHost struct {
	name     string
	conn     ssh.Conn
	wire     *wire.Conn
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
func (d *Dialer) serve(s *sshconfig.Settings, on *wire.Conn, in session, via *hop) *sshHost {
	h := &sshHost{
		name: s.Name(), conn: in.conn, wire: on, hop: via, gone: make(chan struct{}),
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
	h.work.start(func() { h.keepAlive(s.Alive, s.AliveCount, ask) })
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
	defer h.hop.release()
	if h.hop == nil {
		return h.hangUp()
	}
	done := make(chan error, 1)
	if !h.hop.host.work.start(func() { done <- h.hangUp() }) {
		return h.hangUp() // the jump host's connection is gone, and so is this one
	}
	select {
	case err := <-done:
		return err
	case <-time.After(hopGrace):
		return nil
	}
}

// hopGrace is how long a jump host has to answer that a connection through it is
// closed. What waits longer ends with the jump host's own connection.
const hopGrace = 2 * time.Second

func (h *sshHost) hangUp() error {
	err := h.conn.Close()
	h.work.end()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
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
		if !wire.AcksAtOnce && !r.WantReply {
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
		if h.wire.Quiet() < interval {
			unanswered = 0
			continue
		}
		if unanswered++; unanswered > count {
			h.because(fmt.Errorf("no sign of life for %s: network down, or host dead or suspended", h.wire.Quiet().Round(time.Second/10)))
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
	select {
	case <-h.gone:
		return h.lostError()
	case <-time.After(lossGrace):
		return err
	}
}

// lossGrace is how long it may take from the first symptom of a lost connection
// until the loss is known.
const lossGrace = time.Second

func discard(o opened) {
	if o.err == nil {
		o.channel.Close()
		ssh.DiscardRequests(o.requests)
	}
}
