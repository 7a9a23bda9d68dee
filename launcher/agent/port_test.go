//go:build linux

package agent

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

func TestAHeldPortIsRankZerosAlone(t *testing.T) {
	hold, err := holdPort(21000, 21999, [2]int{32768, 60999})
	if err != nil {
		t.Fatal(err)
	}
	defer hold.release()
	if second, err := holdOne(hold.port); err == nil {
		second.release()
		t.Error("two runs hold one port")
	}
	if hold.closeOnceTaken() {
		t.Error("let go before anybody listens")
	}
	// Go's listener sets SO_REUSEADDR, as PyTorch's store does.
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", hold.port))
	if err != nil {
		t.Fatalf("rank 0 cannot listen: %v", err)
	}
	defer l.Close()
	if !hold.closeOnceTaken() {
		t.Error("still held though somebody listens")
	}
	if second, err := holdOne(hold.port); err == nil {
		second.release()
		t.Error("the lock among runs was let go with the sockets")
	}
}

func TestPortsOfOutgoingConnectionsAreLeftAlone(t *testing.T) {
	if _, err := holdPort(33000, 33100, [2]int{32768, 60999}); err == nil || !strings.Contains(err.Error(), "ephemeral range") {
		t.Errorf("error %v", err)
	}
	hold, err := holdPort(32760, 32800, [2]int{32768, 60999})
	if err != nil {
		t.Fatal(err)
	}
	defer hold.release()
	if hold.port >= 32768 {
		t.Errorf("port %d is ephemeral", hold.port)
	}
}

func TestABusyPinnedPortNamesItsHolder(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = holdPort(port, port, [2]int{1, 2})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Errorf("error %v", err)
	}
}
