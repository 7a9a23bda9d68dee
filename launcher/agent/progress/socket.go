//go:build linux

// Package progress listens to what the processes of ranks report about themselves over a socket per rank, and passes it
// on to the coordinator.
package progress

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Bounds of what is read of a rank. What it sends beyond that waits in the socket, which holds little, and then the
// sender drops it.
const (
	burst     = 200 // datagrams
	burstTime = 100 * time.Millisecond
	lastBurst = 2000 // what may wait when a rank has ended
)

// Socket receives what the processes of a rank report, until Close. A worker also runs without one: all methods but
// Path may be called on nil.
type Socket struct {
	Path    string
	attempt int
	conn    *net.UnixConn
	raw     syscall.RawConn
	began   link.Instant
	ending  chan struct{}
	ended   chan struct{} // closed by the goroutine that listens; nil before Begin

	mu       sync.Mutex
	record   *observe.Record
	buffer   []byte
	rights   []byte
	reported uint64 // changes that the coordinator knows
}

func newSocket(dir string, attempt, rank int) (*Socket, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Socket{
		Path: filepath.Join(dir, fmt.Sprintf("%d-%d", attempt, rank)), attempt: attempt, ending: make(chan struct{}),
		buffer: make([]byte, observe.MaxDatagram+1), rights: make([]byte, unix.CmsgSpace(unix.SizeofUcred)),
	}
	var err error
	if s.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.Path, Net: "unixgram"}); err != nil {
		return nil, err
	}
	if s.raw, err = s.conn.SyscallConn(); err == nil {
		if controlErr := s.raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		}); err == nil {
			err = controlErr
		}
	}
	if err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// Begin listens to a worker that runs; torch is set where it has muster's hook.
func (s *Socket) Begin(leader int, began link.Instant, torch bool) {
	if s == nil {
		return
	}
	s.began, s.record, s.ended = began, observe.NewRecord(leader, torch), make(chan struct{})
	go s.listen()
}

// listen reads until Close. When it has read as much as it may within a while, it rests for the remaining time.
func (s *Socket) listen() {
	defer close(s.ended)
	began, taken := time.Now(), 0
	for {
		n := 0
		if err := s.raw.Read(func(fd uintptr) bool {
			n = s.drain(int(fd), burst-taken)
			return n > 0
		}); err != nil {
			return
		}
		if passed := time.Since(began); passed >= burstTime {
			began, taken = time.Now(), 0
		}
		if taken += n; taken < burst {
			continue
		}
		select {
		case <-time.After(burstTime - time.Since(began)):
		case <-s.ending:
			return
		}
	}
}

// drain reads what waits, at most limit datagrams, and returns how many it read.
func (s *Socket) drain(fd, limit int) (taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := link.Now().Sub(s.began).Seconds()
	for taken < limit {
		n, rights, flags, _, err := unix.Recvmsg(fd, s.buffer, s.rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return taken
		case flags&unix.MSG_TRUNC != 0 || n > observe.MaxDatagram:
			s.record.Refuse(fmt.Sprintf("a datagram has at most %d bytes", observe.MaxDatagram))
		default:
			s.record.Take(s.buffer[:n], senderIn(s.rights[:rights]), at)
		}
		taken++
	}
	return taken
}

// senderIn is the process that has sent a datagram, as the kernel says; 0 where its number means nothing here.
func senderIn(rights []byte) int {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return 0
	}
	for i := range messages {
		if credentials, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return int(credentials.Pid)
		}
	}
	return 0
}

// Close reads what is left and removes the socket. What was reported stays.
func (s *Socket) Close() {
	if s == nil {
		return
	}
	if s.ended != nil {
		close(s.ending)
		_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine; on an open socket it cannot fail
		<-s.ended
		_ = s.raw.Control(func(fd uintptr) { s.drain(int(fd), lastBurst) })
	}
	s.conn.Close()
	os.Remove(s.Path)
}

// Latest is the newest that a rank has reported; nil where it could not.
func (s *Socket) Latest() *observe.Latest {
	if s == nil || s.record == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Latest()
}

// unreported is the newest, nil where the coordinator knows it already.
func (s *Socket) unreported() *observe.Latest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Changes() == s.reported {
		return nil
	}
	s.reported = s.record.Changes()
	return s.record.Latest()
}

// hookSeen reports whether the hook runs in a rank, or none is expected.
func (s *Socket) hookSeen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Seen()
}
