// Package mtu checks whether hosts of a run reach each other with large packets too: one brings a load that the other
// confirms. It speaks TLS with the keys of the run's members.
package mtu

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

	"github.com/muster-dev/muster/rendezvous/link"
)

// Result is what came of checking the way to another host.
type Result struct {
	link.Reach
	// Stuck is set where the other was reached and what fills whole packets did not arrive.
	Stuck bool `json:"stuck,omitempty"`
	// Passes is the largest packet, of a few sizes that were tried, that arrived where large ones do not, in bytes with
	// the headers of IP and TCP; 0: none.
	Passes int `json:"passes,omitempty"`
}

const (
	dialLimit  = 5 * time.Second
	loadSize   = 256 << 10       // enough for whole packets of every network
	loadLimit  = 5 * time.Second // for it, on a network of some 100 kB/s too
	tryLimit   = 3 * time.Second
	tryLoad    = 32 << 10
	headerSize = 40 // of IPv4 and TCP without options
)

// triedSizes are packet sizes that networks have: IPv6's least, tunnels', Ethernet's, InfiniBand's and jumbo frames'.
var triedSizes = []int{576, 1280, 1400, 1450, 1500, 2044, 4096, 8900, 9000}

// Server takes loads of other members. Close ends it and waits for its goroutines.
type Server struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// Serve serves members with these pins on a listener.
func Serve(identity *link.Identity, pins []link.Pin, l net.Listener) *Server {
	known := map[link.Pin]bool{}
	for _, p := range pins {
		known[p] = true
	}
	s := &Server{listener: l, conns: map[net.Conn]bool{}}
	config := configOf(identity, func(p link.Pin) bool { return known[p] })
	s.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed, or of no use any more: others notice by their time limits
			}
			s.serving.Go(func() { s.serve(conn, config) })
		}
	})
	return s
}

// Port is where it listens.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Close closes the listener and all connections.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *Server) serve(conn net.Conn, config *tls.Config) {
	s.mu.Lock()
	s.conns[conn] = true
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		receive(tls.Server(conn, config))
	}
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// configOf is that of members. Keys that are exchanged are small, so that the handshake fits small packets: what is
// large is the load.
func configOf(identity *link.Identity, known func(link.Pin) bool) *tls.Config {
	config := identity.TLSConfig(known)
	config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256}
	return config
}

// receive takes a load, whose size comes first, and confirms it with a byte.
func receive(conn *tls.Conn) {
	_ = conn.SetDeadline(time.Now().Add(dialLimit + loadLimit)) // a connection that is gone shows below
	var size uint32
	if binary.Read(conn, binary.BigEndian, &size) != nil || size > loadSize {
		return
	}
	if _, err := io.CopyN(io.Discard, conn, int64(size)); err == nil {
		_, _ = conn.Write([]byte{1}) // else the other's time runs out
	}
}

// Check checks the way to the member with that pin at an address. It takes at most some 15 s.
func Check(ctx context.Context, identity *link.Identity, peer link.Pin, addr string) Result {
	config := configOf(identity, func(p link.Pin) bool { return p == peer })
	r, err := send(ctx, config, addr, loadSize, 0, loadLimit)
	if err != nil && r.Error == "" {
		r.Stuck, r.Passes = true, largestThatPasses(ctx, config, addr)
	}
	return r
}

// send sends a load, in packets of at most that size (0: as the kernel likes). The error is that it did not arrive; the
// result has one of its own where nobody was reached.
func send(ctx context.Context, config *tls.Config, addr string, load, packet int, limit time.Duration) (Result, error) {
	begun := link.Now()
	r := Result{Reach: link.Reach{Addr: addr}}
	dialing, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Control: segments(packet)}, Config: config}
	conn, err := dialer.DialContext(dialing, "tcp", addr)
	r.Took = link.Now().Sub(begun)
	if err != nil {
		r.Error = err.Error()
		return r, err
	}
	defer conn.Close()
	r.Local, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return r, err
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(load))); err != nil {
		return r, err
	}
	if _, err := conn.Write(make([]byte, load)); err != nil {
		return r, err
	}
	if n, err := conn.Read(make([]byte, 1)); n != 1 {
		return r, errors.Join(err, errors.New("the load was not confirmed"))
	}
	return r, nil
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
			_, err := send(ctx, config, addr, tryLoad, size, tryLimit)
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
