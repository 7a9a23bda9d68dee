package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/rendezvous/link/linkpb"
)

// maxMessage bounds a message of either side, in bytes. One that is refused would be sent
// again for ever, and gRPC's own bound is less than a host of many ranks may have to tell.
const maxMessage = 64 << 20

// Hub is the side of the coordinator: it admits members by their pins, takes in
// their messages in order and says when one is not heard any more.
type Hub struct {
	pb.UnimplementedRendezvousServer

	server    *grpc.Server
	heartbeat time.Duration
	stop      chan struct{}
	events    *Queue[Event]

	mu      sync.Mutex
	members map[string]*hubMember
	byPin   map[Pin]*hubMember
	pushes  map[string]subscription
}

type hubMember struct {
	name   string
	box    *mailbox
	offset Offset

	mu     sync.Mutex
	heard  Instant            // when the newest frame came; 0: never
	hangup context.CancelFunc // ends the stream in use
	stream int                // counts streams; the newest speaks for the member
}

// EventKind says what happened to a member.
type EventKind int

// Kinds of events.
const (
	Joined  EventKind = iota + 1 // its link stands, for the first time or again
	Message                      // it sent a message
	Dropped                      // its connection ended or was reset
)

// Event is something that a hub learned about a member.
type Event struct {
	Kind    EventKind
	Member  string
	Payload []byte // of a Message
	Err     error  // of Dropped
}

// NewHub returns a hub that speaks with identity's key. Close ends it.
func NewHub(identity *Identity, lease time.Duration) *Hub {
	h := &Hub{
		heartbeat: HeartbeatOf(lease),
		stop:      make(chan struct{}),
		members:   map[string]*hubMember{},
		byPin:     map[Pin]*hubMember{},
		pushes:    map[string]subscription{},
	}
	h.events = NewQueue[Event](h.stop)
	h.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(identity.TLSConfig(h.knows))),
		grpc.ReadBufferSize(16<<10), grpc.WriteBufferSize(16<<10), grpc.MaxRecvMsgSize(maxMessage),
	)
	pb.RegisterRendezvousServer(h.server, h)
	return h
}

// Admit lets the member with this pin in.
func (h *Hub) Admit(name string, pin Pin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &hubMember{name: name, box: newMailbox()}
	h.members[name], h.byPin[pin] = m, m
}

func (h *Hub) knows(pin Pin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byPin[pin] != nil
}

// Serve answers on l until Close.
func (h *Hub) Serve(l net.Listener) error { return h.server.Serve(l) }

// Events delivers what happens, in order for each member. It is closed by Close.
func (h *Hub) Events() <-chan Event { return h.events.Out() }

// Send queues a message to a member; it arrives once, after those before it, as
// soon as the member is reachable.
func (h *Hub) Send(member string, payload []byte) error {
	h.mu.Lock()
	m := h.members[member]
	h.mu.Unlock()
	if m == nil {
		return fmt.Errorf("send to %q: not a member", member)
	}
	m.box.put(payload)
	return nil
}

// Heard returns when the newest frame of a member came; false if none has.
func (h *Hub) Heard(member string) (Instant, bool) {
	h.mu.Lock()
	m := h.members[member]
	h.mu.Unlock()
	if m == nil {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard, m.heard != 0
}

// Own maps an instant of a member to the hub's clock.
func (h *Hub) Own(member string, at Instant) Instant {
	h.mu.Lock()
	m := h.members[member]
	h.mu.Unlock()
	if m == nil {
		return at
	}
	own, _ := m.offset.Own(at)
	return own
}

// Close ends all links and the listener.
func (h *Hub) Close() {
	close(h.stop)
	h.server.Stop()
}

func (h *Hub) caller(ctx context.Context) (*hubMember, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil, status.Error(codes.Unauthenticated, "no key")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.byPin[pinOf(info.State.PeerCertificates[0])]
	if m == nil {
		return nil, status.Error(codes.Unauthenticated, "key is not one of this run")
	}
	return m, nil
}

// Link serves one connection of a member. A newer connection of the same member
// ends an older one.
func (h *Hub) Link(stream pb.Rendezvous_LinkServer) error {
	m, err := h.caller(stream.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	number := m.takeOver(cancel)
	h.events.Put(Event{Kind: Joined, Member: m.name})

	sent := make(chan error, 1)
	go func() { sent <- sendFrames(ctx, stream, m.box, h.heartbeat) }()
	err = h.receive(ctx, m, stream)
	cancel()
	<-sent
	if m.isNewest(number) {
		h.events.Put(Event{Kind: Dropped, Member: m.name, Err: err})
	}
	return nil
}

func (m *hubMember) takeOver(cancel context.CancelFunc) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hangup != nil {
		m.hangup()
	}
	m.hangup = cancel
	m.stream++
	return m.stream
}

func (m *hubMember) isNewest(number int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stream == number
}

func (h *Hub) receive(ctx context.Context, m *hubMember, stream frameStream) error {
	frames := make(chan *pb.Frame)
	failed := make(chan error, 1)
	go func() {
		for {
			f, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case frames <- f:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	for {
		select {
		case f := <-frames:
			h.take(m, f)
		case err := <-failed:
			return err
		case <-ctx.Done():
			if stream.Context().Err() != nil {
				return errors.New("the connection ended")
			}
			return errors.New("replaced by a newer connection")
		}
	}
}

func (h *Hub) take(m *hubMember, f *pb.Frame) {
	now := Now()
	m.offset.Observe(Instant(f.Sent), now)
	m.mu.Lock()
	m.heard = now
	m.mu.Unlock()
	m.box.accept(f, func(payload []byte) {
		h.events.Put(Event{Kind: Message, Member: m.name, Payload: payload})
	})
}
