package mtu

import (
	"net"
	"testing"
	"time"

	"github.com/muster-dev/muster/rendezvous/link"
)

func identityFor(t *testing.T) *link.Identity {
	t.Helper()
	id, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func doorFor(t *testing.T, id *link.Identity, pins ...link.Pin) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Serve(id, pins, l)
}

func TestAMemberBringsItsLoadToAnother(t *testing.T) {
	host, guest := identityFor(t), identityFor(t)
	d := doorFor(t, host, guest.Pin())
	defer d.Close()
	addr := d.listener.Addr().String()
	if v := Check(t.Context(), guest, host.Pin(), addr); v.Error != "" || v.Stuck || v.Local != "127.0.0.1" {
		t.Errorf("%+v", v)
	}
	// Somebody else at the address is not who was to be visited.
	if v := Check(t.Context(), guest, guest.Pin(), addr); v.Error == "" {
		t.Errorf("another host was taken for the one: %+v", v)
	}
}

func TestADoorIsForMembersOnly(t *testing.T) {
	host, guest := identityFor(t), identityFor(t)
	d := doorFor(t, host)
	defer d.Close()
	// TLS 1.3 tells a client after the handshake that it is not wanted.
	v := Check(t.Context(), guest, host.Pin(), d.listener.Addr().String())
	if v.Error == "" && !v.Stuck || v.Passes != 0 {
		t.Errorf("a stranger was let in: %+v", v)
	}
}

// A guest that stands in the door does not keep it open.
func TestADoorClosesBehindAGuestWhoSaysNothing(t *testing.T) {
	d := doorFor(t, identityFor(t))
	conn, err := net.Dial("tcp", d.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := make(chan struct{})
	go func() { d.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
		t.Error("it is still open")
	}
}
