package agent

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// portHold is a port kept for rank 0: bound, but not listening, so that nobody else
// gets it, and with SO_REUSEADDR, so that rank 0 still can (a server that does not
// set SO_REUSEADDR cannot; PyTorch's store does). A lock by name keeps it among
// muster's runs after the sockets were let go.
type portHold struct {
	port    int
	sockets []int // bound, one per address family
	lock    int   // abstract unix socket, held for the attempt
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
	return nil, fmt.Errorf("no port of %d-%d is free: %w", first, last, lastErr)
}

func holdOne(port int) (*portHold, error) {
	hold := &portHold{port: port, lock: -1}
	var err error
	if hold.lock, err = bindNew(unix.AF_UNIX, unix.SOCK_DGRAM, &unix.SockaddrUnix{Name: fmt.Sprintf("@muster-port-%d", port)}); err != nil {
		return nil, err
	}
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

// letGoOnceTaken closes the bound sockets when somebody listens on the port, and
// reports whether they are closed.
func (h *portHold) letGoOnceTaken() bool {
	if len(h.sockets) > 0 && listening(h.port) {
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
	if h.lock >= 0 {
		unix.Close(h.lock)
		h.lock = -1
	}
}

// listening looks the port up among the listening sockets of this network
// namespace (proc_net(5): state 0A is TCP_LISTEN).
func listening(port int) bool {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 4 || fields[3] != "0A" {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				return true
			}
		}
	}
	return false
}
