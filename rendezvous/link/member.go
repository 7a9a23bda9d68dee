package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	pb "github.com/muster-dev/muster/rendezvous/link/linkpb"
)

// Member is the side of an agent: a link to the hub that is made again whenever
// it breaks.
type Member struct {
	identity  *Identity
	hub       Pin
	addr      string
	heartbeat time.Duration
	box       *mailbox
	messages  *Queue[[]byte]
	cancel    context.CancelFunc
	done      chan struct{}

	conn *grpc.ClientConn
	dial dialRecord

	mu       sync.Mutex
	answered Instant // when the newest heartbeat that the hub answered was sent
	gone     error   // why there is no hub any more
}

// dialRecord keeps the error of the newest TCP dial, which gRPC wraps beyond recognition.
type dialRecord struct {
	mu  sync.Mutex
	err error
}

// Join links to the hub at addr and keeps the link until Leave. It returns at
// once; the hub's first answer shows in Answered.
func Join(identity *Identity, hub Pin, addr string, lease time.Duration) (*Member, error) {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Member{
		identity: identity, hub: hub, addr: addr, heartbeat: HeartbeatOf(lease),
		box: newMailbox(), cancel: cancel, done: make(chan struct{}), answered: Now(),
	}
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(credentials.NewTLS(identity.TLSConfig(func(p Pin) bool { return p == hub }))),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectDelay, Multiplier: 1.5, MaxDelay: time.Second},
			MinConnectTimeout: probeTimeout,
		}),
		grpc.WithContextDialer(m.dialTCP),
		grpc.WithReadBufferSize(16<<10), grpc.WithWriteBufferSize(16<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("join %s: %w", addr, err)
	}
	m.conn = conn
	m.messages = NewQueue[[]byte](ctx.Done())
	go m.run(ctx)
	return m, nil
}

func (m *Member) dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	m.dial.mu.Lock()
	m.dial.err = err
	m.dial.mu.Unlock()
	return conn, err
}

// Send queues a message to the hub.
func (m *Member) Send(payload []byte) { m.box.put(payload) }

// Messages delivers the hub's messages in order. It is closed by Leave.
func (m *Member) Messages() <-chan []byte { return m.messages.Out() }

// Answered returns when the newest heartbeat that the hub answered was sent: the
// lease counts from here.
func (m *Member) Answered() Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered
}

// Gone returns why the hub exists no more: its machine answered that nothing
// listens there. It is nil while that is not known.
func (m *Member) Gone() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

// Leave waits until everything sent was taken in, the hub is gone or ctx ends, then
// ends the link.
func (m *Member) Leave(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !m.box.empty() && m.Gone() == nil && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-m.done:
			return
		case <-ctx.Done():
		}
	}
	m.cancel()
	<-m.done
}

const reconnectDelay = 200 * time.Millisecond

func (m *Member) run(ctx context.Context) {
	defer close(m.done)
	defer m.conn.Close()
	client := pb.NewRendezvousClient(m.conn)
	for ctx.Err() == nil {
		m.connect(ctx, client)
		m.noteGone()
		select {
		case <-ctx.Done():
		case <-time.After(reconnectDelay):
			m.conn.ResetConnectBackoff()
		}
	}
}

func (m *Member) noteGone() {
	m.dial.mu.Lock()
	refused := errors.Is(m.dial.err, syscall.ECONNREFUSED)
	m.dial.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if refused {
		m.gone = fmt.Errorf("%s: its machine answers, but nothing listens there any more", m.addr)
	} else {
		m.gone = nil
	}
}

func (m *Member) connect(ctx context.Context, client pb.RendezvousClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Link(ctx)
	if err != nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = sendFrames(ctx, stream, m.box, m.heartbeat) // its error shows in Recv too
	}()
	for {
		f, err := stream.Recv()
		if err != nil {
			break
		}
		m.take(f)
	}
	cancel()
	<-sent
}

func (m *Member) take(f *pb.Frame) {
	if f.Echo != 0 {
		m.mu.Lock()
		m.answered = max(m.answered, Instant(f.Echo))
		m.mu.Unlock()
	}
	m.box.accept(f, m.messages.Put)
}

// Pusher sends bulk data to the hub under one subscription.
type Pusher struct {
	stream pb.Rendezvous_PushClient
	cancel context.CancelFunc
	name   string
}

// Push opens a bulk stream. It ends with ctx.
func (m *Member) Push(ctx context.Context, subscription string) (*Pusher, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := pb.NewRendezvousClient(m.conn).Push(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("push %s: %w", subscription, err)
	}
	return &Pusher{stream: stream, cancel: cancel, name: subscription}, nil
}

// Send waits while the reader is slow.
func (p *Pusher) Send(chunk *Chunk) error {
	chunk.Subscription, p.name = p.name, ""
	return p.stream.Send(chunk)
}

// Close ends the stream after what was sent has been taken in.
func (p *Pusher) Close() error {
	defer p.cancel()
	_, err := p.stream.CloseAndRecv()
	return err
}
