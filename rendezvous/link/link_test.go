package link

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

func identity(t *testing.T) *Identity {
	t.Helper()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// startHub serves a hub on loopback and admits one member, "a".
func startHub(t *testing.T, member Pin) (*Hub, *Identity, string) {
	t.Helper()
	id := identity(t)
	hub := NewHub(id, 3*time.Second)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub.Admit("a", member)
	go hub.Serve(l)
	t.Cleanup(hub.Close)
	return hub, id, l.Addr().String()
}

func nextEvent(t *testing.T, hub *Hub, want EventKind) Event {
	t.Helper()
	for {
		select {
		case e := <-hub.Events():
			if e.Kind == want {
				return e
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no event of kind %d within 10 s", want)
		}
	}
}

func TestMessagesArriveOnceAndInOrderAcrossLostConnections(t *testing.T) {
	self := identity(t)
	hub, id, hubAddr := startHub(t, self.Pin())
	relay := newRelay(t, hubAddr)
	m, err := Join(self, id.Pin(), relay.addr(), 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(context.Background())
	const count = 300
	go func() {
		for i := range count {
			m.Send(fmt.Appendf(nil, "%d", i))
			hub.Send("a", fmt.Appendf(nil, "%d", i))
			if i%60 == 30 {
				relay.cut()
			}
		}
	}()
	for i := range count {
		if e := nextEvent(t, hub, Message); string(e.Payload) != fmt.Sprint(i) {
			t.Fatalf("hub got %s where %d was due", e.Payload, i)
		}
	}
	for i := range count {
		select {
		case got := <-m.Messages():
			if string(got) != fmt.Sprint(i) {
				t.Fatalf("member got %s where %d was due", got, i)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("member waited 10 s for message %d", i)
		}
	}
}

func TestAStrangersKeyIsRefused(t *testing.T) {
	hub, id, addr := startHub(t, identity(t).Pin())
	stranger := identity(t)
	m, err := Join(stranger, id.Pin(), addr, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	m.Send([]byte("let me in"))
	select {
	case e := <-hub.Events():
		t.Fatalf("the hub heard a stranger: %+v", e)
	case <-time.After(time.Second):
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	m.Leave(ctx)
}

func TestProbeRefusesAnotherMachineBehindTheSameAddress(t *testing.T) {
	self := identity(t)
	_, _, addr := startHub(t, self.Pin())
	wrong := identity(t).Pin()
	for r := range Probe(t.Context(), self, wrong, []string{addr, "127.0.0.1:1"}) {
		if r.Error == "" {
			t.Errorf("%s passed without the hub's key", r.Addr)
		}
	}
}

func TestProbeReportsTheOwnAddressTowardsTheHub(t *testing.T) {
	self := identity(t)
	_, id, addr := startHub(t, self.Pin())
	for r := range Probe(t.Context(), self, id.Pin(), []string{addr}) {
		if r.Error != "" || r.Local != "127.0.0.1" {
			t.Errorf("probe of %s: %+v", addr, r)
		}
	}
}

func TestTheHubsEndIsKnownFromARefusedConnection(t *testing.T) {
	self := identity(t)
	hub, id, addr := startHub(t, self.Pin())
	m, err := Join(self, id.Pin(), addr, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	nextEvent(t, hub, Joined)
	hub.server.Stop()
	deadline := time.After(10 * time.Second)
	for m.Gone() == nil {
		select {
		case <-deadline:
			t.Fatal("the member did not notice within 10 s")
		case <-time.After(5 * time.Millisecond):
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	m.Leave(ctx)
}

func TestPushedChunksWaitForASlowReader(t *testing.T) {
	self := identity(t)
	hub, id, addr := startHub(t, self.Pin())
	m, err := Join(self, id.Pin(), addr, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(context.Background())
	into := make(chan *Chunk)
	hub.Subscribe(t.Context(), "logs", into)
	p, err := m.Push(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	const count = 200
	sent := make(chan error, 1)
	go func() {
		for i := range count {
			if err := p.Send(&Chunk{Source: "rank-0", Offset: uint64(i), Data: make([]byte, 8<<10)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- p.Close()
	}()
	for i := range count {
		if c := <-into; c.Offset != uint64(i) {
			t.Fatalf("chunk %d came where %d was due", c.Offset, i)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// A host of many ranks has much to tell at once, and a message that is refused would be sent
// for ever.
func TestLargeMessagesArriveOnBothSides(t *testing.T) {
	self := identity(t)
	hub, id, addr := startHub(t, self.Pin())
	m, err := Join(self, id.Pin(), addr, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(context.Background())
	large := make([]byte, 9<<20)
	m.Send(large)
	if e := nextEvent(t, hub, Message); len(e.Payload) != len(large) {
		t.Errorf("the hub got %d bytes", len(e.Payload))
	}
	if err := hub.Send("a", large); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-m.Messages():
		if len(got) != len(large) {
			t.Errorf("the member got %d bytes", len(got))
		}
	case <-time.After(10 * time.Second):
		t.Error("the member got nothing within 10 s")
	}
}
