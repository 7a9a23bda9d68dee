package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/claim"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/rendezvous/link"
)

// portHold is a port kept for rank 0: bound, but not listening, so that nobody else
// gets it, and with SO_REUSEADDR, so that rank 0 still can (a server that does not
// set SO_REUSEADDR cannot; PyTorch's store does). A lock by name keeps it among
// muster's runs after the sockets were let go.
type portHold struct {
	port    int
	sockets []int    // bound, one per address family
	lock    *os.File // of claim.Port, held for the attempt
	since   link.Instant
}

// holdPort takes a port of the range, outside the one that the kernel uses for
// outgoing connections.
func holdPort(first, last int, ephemeral [2]int) (*portHold, error) {
	count := last - first + 1
	offset := rand.IntN(count)
	var lastErr error
	for i := range count {
		port := first + (offset+i)%count
		if ephemeral[0] <= port && port <= ephemeral[1] {
			continue
		}
		hold, err := holdOne(port)
		if err == nil {
			return hold, nil
		}
		lastErr = err
	}
	if lastErr == nil {
		return nil, fmt.Errorf("ports %d-%d all lie in this host's ephemeral range %d-%d; choose others with ports = \"...\"",
			first, last, ephemeral[0], ephemeral[1])
	}
	return nil, fmt.Errorf("no port of %d-%d is free: %w%s", first, last, lastErr, holdersOf(first, last))
}

// holdersOf names who holds the ports of a small range.
func holdersOf(first, last int) string {
	const small = 8
	if last-first >= small {
		return ""
	}
	var names []string
	for port := first; port <= last; port++ {
		if holder := proc.Listener(port); holder != "" {
			names = append(names, fmt.Sprintf("%d by %s", port, holder))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; held: " + strings.Join(names, ", ")
}

func holdOne(port int) (*portHold, error) {
	lock, err := claim.Port(port)
	if err != nil {
		return nil, err
	}
	hold := &portHold{port: port, lock: lock, since: link.Now()}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var addr unix.Sockaddr = &unix.SockaddrInet4{Port: port}
		if family == unix.AF_INET6 {
			addr = &unix.SockaddrInet6{Port: port}
		}
		fd, err := bindNew(family, unix.SOCK_STREAM, addr)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a host without IPv6
		}
		if err != nil {
			hold.release()
			return nil, err
		}
		hold.sockets = append(hold.sockets, fd)
	}
	return hold, nil
}

func bindNew(family, kind int, addr unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if family != unix.AF_UNIX {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil && family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// How often it is looked whether rank 0 listens: reading the kernel's tables of sockets takes
// milliseconds. Who has not done so for minutes may never do it.
const (
	portPace       = 100 * time.Millisecond
	portPaceSlow   = 5 * time.Second
	portPaceOfHeld = 20 // looks in the time that has passed
)

// pace is how long to wait between two looks.
func (h *portHold) pace(now link.Instant) time.Duration {
	return min(portPaceSlow, max(portPace, now.Sub(h.since)/portPaceOfHeld))
}

// letGoOnceTaken closes the bound sockets when somebody listens on the port, and
// reports whether they are closed.
func (h *portHold) letGoOnceTaken() bool {
	if len(h.sockets) > 0 && proc.Listening(h.port) {
		h.closeSockets()
	}
	return len(h.sockets) == 0
}

func (h *portHold) closeSockets() {
	for _, fd := range h.sockets {
		unix.Close(fd)
	}
	h.sockets = nil
}

func (h *portHold) release() {
	h.closeSockets()
	if h.lock != nil {
		h.lock.Close()
		h.lock = nil
	}
}
