package link

import (
	"sync"

	pb "github.com/muster-dev/muster/rendezvous/link/linkpb"
)

// mailbox is one end of a link: what is to be sent and not yet acknowledged, and
// what was taken in. It outlives connections: on a new one everything that is not
// acknowledged is sent again and the other end drops what it has.
type mailbox struct {
	mu     sync.Mutex
	unsent []*pb.Frame // not acknowledged, lowest seq first
	last   uint64      // seq of the newest message put in
	taken  uint64      // highest seq taken in from the peer
	owed   bool        // the peer has not been told of taken yet
	echo   int64       // latest `sent` of the peer
	wake   chan struct{}
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) put(payload []byte) {
	m.mu.Lock()
	m.last++
	m.unsent = append(m.unsent, &pb.Frame{Seq: m.last, Payload: payload})
	m.mu.Unlock()
	poke(m.wake)
}

// owes reports whether an acknowledgement is due.
func (m *mailbox) owes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owed
}

// after returns the frames with a seq above cursor, stamped for sending now.
func (m *mailbox) after(cursor uint64, now Instant) []*pb.Frame {
	m.mu.Lock()
	defer m.mu.Unlock()
	var frames []*pb.Frame
	for _, f := range m.unsent {
		if f.Seq > cursor {
			frames = append(frames, m.stamped(f.Seq, f.Payload, now))
		}
	}
	return frames
}

func (m *mailbox) heartbeat(now Instant) *pb.Frame {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stamped(0, nil, now)
}

func (m *mailbox) stamped(seq uint64, payload []byte, now Instant) *pb.Frame {
	m.owed = false
	return &pb.Frame{Seq: seq, Payload: payload, Ack: m.taken, Sent: int64(now), Echo: m.echo}
}

// accept notes what a frame from the peer says and hands a payload that is new to
// deliver, in order even when two connections of one peer overlap.
func (m *mailbox) accept(f *pb.Frame, deliver func(payload []byte)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.echo = max(m.echo, f.Sent)
	for len(m.unsent) > 0 && m.unsent[0].Seq <= f.Ack {
		m.unsent = m.unsent[1:]
	}
	if f.Seq != m.taken+1 {
		return // a heartbeat, or a message sent again
	}
	m.taken, m.owed = f.Seq, true
	poke(m.wake)
	deliver(f.Payload)
}

// empty reports whether the peer has taken in everything.
func (m *mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.unsent) == 0
}
