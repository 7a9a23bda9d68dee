//go:build linux

package agent

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/claim"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/rendezvous/link"
)

// heldPort is a port kept for rank 0: bound, but not listening, so that nobody else gets it, and with SO_REUSEADDR, so
// that rank 0 still can (a server that does not set SO_REUSEADDR cannot; PyTorch's store does). A lock by name keeps it
// among muster's runs after the sockets were closed.
type heldPort struct {
	port    int
	sockets []int    // bound, one per address family
	lock    *os.File // of claim.Port, held for the attempt
	since   link.Instant
	checked link.Instant
}

// holdPort takes a port for rank 0 of the next attempt.
func (a *agent) holdPort(c *message.HoldPort) {
	if a.hold != nil {
		a.hold.release()
	}
	a.peers.close()
	held := &message.PortHeld{Attempt: c.Attempt}
	hold, err := holdPort(c.First, c.Last, a.facts.EphemeralPorts)
	if err != nil {
		held.Error = err.Error()
	} else {
		a.hold, held.Port = hold, hold.port
	}
	a.loop.Report(message.Update{PortHeld: held})
}

// ports are those of a range, from a random one on.
func ports(first, last int) iter.Seq[int] {
	return func(yield func(int) bool) {
		count := last - first + 1
		offset := rand.IntN(count)
		for i := range count {
			if !yield(first + (offset+i)%count) {
				return
			}
		}
	}
}

// holdPort takes a port of the range, outside the one that the kernel uses for outgoing connections.
func holdPort(first, last int, ephemeral [2]int) (*heldPort, error) {
	var lastErr error
	for port := range ports(first, last) {
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

func listenWithin(first, last int) (net.Listener, error) {
	var failed error
	for port := range ports(first, last) {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err == nil {
			return l, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("no port of %d-%d is free: %w", first, last, failed)
}

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

func holdOne(port int) (*heldPort, error) {
	lock, err := claim.Port(port)
	if err != nil {
		return nil, err
	}
	hold := &heldPort{port: port, lock: lock, since: link.Now()}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		fd, err := bind(family, port)
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

func bind(family, port int) (int, error) {
	var addr unix.Sockaddr = &unix.SockaddrInet4{Port: port}
	if family == unix.AF_INET6 {
		addr = &unix.SockaddrInet6{Port: port}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
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

// How often the port is looked at: reading the kernel's tables of sockets takes milliseconds. A rank 0 that has not
// listened for minutes may never do it.
const (
	portPace       = 100 * time.Millisecond
	portPaceSlow   = 5 * time.Second
	portPaceOfHeld = 20 // looks in the time that has passed
)

func (h *heldPort) pace(now link.Instant) time.Duration {
	return min(portPaceSlow, max(portPace, now.Sub(h.since)/portPaceOfHeld))
}

func (h *heldPort) tick(now link.Instant) {
	if now.Sub(h.checked) >= h.pace(now) {
		h.checked = now
		h.closeOnceTaken()
	}
}

// closeOnceTaken closes the bound sockets when somebody listens on the port, and reports whether they are closed.
func (h *heldPort) closeOnceTaken() bool {
	if len(h.sockets) > 0 && proc.Listening(h.port) {
		h.closeSockets()
	}
	return len(h.sockets) == 0
}

func (h *heldPort) closeSockets() {
	for _, fd := range h.sockets {
		unix.Close(fd)
	}
	h.sockets = nil
}

func (h *heldPort) release() {
	h.closeSockets()
	if h.lock != nil {
		h.lock.Close()
		h.lock = nil
	}
}
