//go:build linux

package coordinator

import (
	"net"
	"testing"

	"github.com/muster-dev/muster/launcher/claim"
)

// Until rank 0 of another run listens its port looks free.
func TestAPortThatAnotherRunHoldsForItsRankZeroIsLeftAlone(t *testing.T) {
	free, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	held, err := claim.Port(port)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := listenIn(port, port); err == nil {
		t.Errorf("it listens on %v", l.Addr())
		l.Close()
	}
	held.Close()
	l, err := listenIn(port, port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := claim.Port(port); err == nil {
		t.Error("another run may hold what the coordinator listens on")
	}
}
