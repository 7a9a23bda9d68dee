package link

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Visit is what came of a member's visit to another: whether it was let in, and whether
// large packets arrive too.
type Visit struct {
	Reach
	// Stuck is set where the other was reached and what fills whole packets was not taken in.
	Stuck bool `json:"stuck,omitempty"`
	// Passes is the largest packet, of a few sizes that were tried, that was taken in by one
	// that is stuck, in bytes with the headers of IP and TCP; 0: none.
	Passes int `json:"passes,omitempty"`
}

const (
	loadSize   = 256 << 10       // enough for whole packets of every network
	loadLimit  = 5 * time.Second // for it, on a network of some 100 kB/s too
	tryLimit   = 3 * time.Second
	tryLoad    = 32 << 10
	headerSize = 40 // of IPv4 and TCP without options
)

// triedSizes are packet sizes that networks have: IPv6's least, tunnels', Ethernet's,
// InfiniBand's and jumbo frames'.
var triedSizes = []int{576, 1280, 1400, 1450, 1500, 2044, 4096, 8900, 9000}

// Door lets other members in, who bring a load and are told once it has arrived. Close ends
// it and waits for its goroutines.
type Door struct {
	listener net.Listener
	inside   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	visited map[net.Conn]bool // connections that stand
}

// OpenDoor serves members with these pins on a listener.
func OpenDoor(identity *Identity, pins []Pin, l net.Listener) *Door {
	known := map[Pin]bool{}
	for _, p := range pins {
		known[p] = true
	}
	d := &Door{listener: l, visited: map[net.Conn]bool{}}
	config := visitConfig(identity, func(p Pin) bool { return known[p] })
	d.inside.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed, or of no use any more: visitors are told by their time
			}
			d.inside.Go(func() {
				if d.enter(conn) {
					receive(tls.Server(conn, config))
				}
				d.leave(conn)
			})
		}
	})
	return d
}

// Port is where the door is.
func (d *Door) Port() int { return d.listener.Addr().(*net.TCPAddr).Port }

// Close closes it, and puts out who is inside.
func (d *Door) Close() {
	d.listener.Close()
	d.mu.Lock()
	d.closed = true
	for conn := range d.visited {
		conn.Close()
	}
	d.mu.Unlock()
	d.inside.Wait()
}

// enter reports whether the door is still open.
func (d *Door) enter(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visited[conn] = true
	return !d.closed
}

func (d *Door) leave(conn net.Conn) {
	conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.visited, conn)
}

// visitConfig is that of members. Keys that are exchanged are small, so that the words before
// the load fit small packets: what is large is the load.
func visitConfig(identity *Identity, known func(Pin) bool) *tls.Config {
	config := identity.tlsConfig(known)
	config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256}
	return config
}

// receive takes a load in, whose size comes first, and says so with a byte.
func receive(conn *tls.Conn) {
	_ = conn.SetDeadline(time.Now().Add(probeTimeout + loadLimit)) // a connection that is gone shows below
	var size uint32
	if binary.Read(conn, binary.BigEndian, &size) != nil || size > loadSize {
		return
	}
	if _, err := io.CopyN(io.Discard, conn, int64(size)); err == nil {
		_, _ = conn.Write([]byte{1}) // the visitor's time tells him else
	}
}

// VisitPeer visits the member with that pin at an address. It takes at most some 15 s.
func VisitPeer(ctx context.Context, identity *Identity, peer Pin, addr string) Visit {
	config := visitConfig(identity, func(p Pin) bool { return p == peer })
	v, err := carry(ctx, config, addr, loadSize, 0, loadLimit)
	if err == nil || v.Error != "" {
		return v
	}
	v.Stuck, v.Passes = true, largestThatPasses(ctx, config, addr)
	return v
}

// carry brings a load, in packets of at most that size (0: as the kernel likes). The error is
// that it did not arrive; Visit has one of its own where nobody was reached.
func carry(ctx context.Context, config *tls.Config, addr string, load, packet int, limit time.Duration) (Visit, error) {
	begun := Now()
	v := Visit{Reach: Reach{Addr: addr}}
	dialing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Control: segments(packet)}, Config: config}
	conn, err := dialer.DialContext(dialing, "tcp", addr)
	v.Took = Now().Sub(begun)
	if err != nil {
		v.Error = err.Error()
		return v, err
	}
	defer conn.Close()
	v.Local, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return v, err
	}
	words := binary.BigEndian.AppendUint32(nil, uint32(load))
	if _, err := conn.Write(words); err != nil {
		return v, err
	}
	if _, err := conn.Write(make([]byte, load)); err != nil {
		return v, err
	}
	if n, err := conn.Read(make([]byte, 1)); n != 1 {
		return v, errors.Join(err, errors.New("the load was not taken in"))
	}
	return v, nil
}

// segments keeps a connection's packets small (TCP_MAXSEG of tcp(7)).
func segments(packet int) func(network, address string, c syscall.RawConn) error {
	if packet == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, packet-headerSize)
		})
		return errors.Join(err, failed)
	}
}

// largestThatPasses tries sizes of packets, all at once.
func largestThatPasses(ctx context.Context, config *tls.Config, addr string) int {
	passes := make([]bool, len(triedSizes))
	var all sync.WaitGroup
	for i, size := range triedSizes {
		all.Go(func() {
			_, err := carry(ctx, config, addr, tryLoad, size, tryLimit)
			passes[i] = err == nil
		})
	}
	all.Wait()
	largest := 0
	for i, size := range triedSizes {
		if !passes[i] {
			break
		}
		largest = size
	}
	return largest
}
