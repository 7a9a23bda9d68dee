//go:build linux

package mps

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

// hello is what a process says of itself to become a client.
type hello struct {
	Name        string   `json:"name"`
	Connections int      `json:"connections"` // CUDA_DEVICE_MAX_CONNECTIONS; 2 where not set
	Settings    settings `json:"settings"`    // of its environment
	PID         int      `json:"pid"`         // filled by the daemon, from the credentials
	UID         int      `json:"uid"`
}

// request is what a client wants of its server.
type request struct {
	Do   string `json:"do"` // "context", "fault"
	UUID string `json:"uuid"`
	// Bytes of memory that the process takes along with the context.
	Bytes uint64 `json:"bytes"`
}

// answer is what a server tells a client: that it is one, that it got a context, or
// unasked that its contexts are lost.
type answer struct {
	Server     int               `json:"server,omitempty"`
	Devices    []cuda.Device     `json:"devices,omitempty"` // as the server numbers them
	Percentage float64           `json:"percentage,omitempty"`
	Limits     map[string]uint64 `json:"limits,omitempty"` // bytes, by UUID
	Booked     map[string]bool   `json:"booked,omitempty"` // by UUID: the server is who holds what clients hold
	Error      int               `json:"error,omitempty"`  // a cudaError_t
	Lost       int               `json:"lost,omitempty"`   // a cudaError_t
}

// order is what a daemon wants of a server; an order "client" comes with the client's
// connection.
type order struct {
	ID       int      `json:"id"`
	Do       string   `json:"do"` // "start", "client", "list", "retire", "terminate", "set"
	Client   hello    `json:"client"`
	Settings settings `json:"settings"`
	Files    int      `json:"files"` // RLIMIT_NOFILE, with "start"
	PID      int      `json:"pid"`
}

// notice is what a server tells its daemon: the answer to an order (ID), or its state.
type notice struct {
	ID      int         `json:"id,omitempty"`
	State   string      `json:"state,omitempty"`
	Clients []clientRow `json:"clients,omitempty"`
	Active  int         `json:"active,omitempty"`
	Found   bool        `json:"found,omitempty"`
}

// clientRow is a context of a client, or a client without one (no UUID).
type clientRow struct {
	PID       int    `json:"pid"`
	ID        int    `json:"id"`
	UUID      string `json:"uuid"`
	MIG       bool   `json:"mig"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// packets is one end of the connection between a daemon and a server: one message is one
// packet, which a file may come with.
type packets struct {
	mu   sync.Mutex // held for writing
	conn *net.UnixConn
}

const packetSize = 1 << 16

// packetPair makes both ends; the second is a file to be inherited.
func packetPair() (*packets, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	far := os.NewFile(uintptr(fds[1]), "server")
	near, err := packetsOf(os.NewFile(uintptr(fds[0]), "control"))
	if err != nil {
		far.Close()
	}
	return near, far, err
}

func packetsOf(f *os.File) (*packets, error) {
	conn, err := connOf(f)
	return &packets{conn: conn}, err
}

// connOf makes a connection of a file, which it closes.
func connOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	c, is := conn.(*net.UnixConn)
	if !is {
		conn.Close()
		return nil, fmt.Errorf("%s is no unix socket", f.Name())
	}
	return c, nil
}

func (p *packets) send(message any, file *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _, err = p.conn.WriteMsgUnix(text, rights, nil)
	return err
}

// receive reads one message, and the connection that comes with it, if any.
func (p *packets) receive(message any) (*net.UnixConn, error) {
	text, rights := make([]byte, packetSize), make([]byte, unix.CmsgSpace(4))
	n, nr, _, _, err := p.conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, net.ErrClosed // the other end is gone
	}
	var with *net.UnixConn
	if nr > 0 {
		if with, err = connIn(rights[:nr]); err != nil {
			return nil, err
		}
	}
	return with, json.Unmarshal(text[:n], message)
}

func connIn(rights []byte) (*net.UnixConn, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("control messages: %d, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("files: %d, %w", len(fds), err)
	}
	unix.CloseOnExec(fds[0])
	return connOf(os.NewFile(uintptr(fds[0]), "client"))
}

// peer is who is at the other end, as the kernel says (SO_PEERCRED).
func peer(conn *net.UnixConn) (pid, uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, 0, err
	}
	if credErr != nil {
		return 0, 0, credErr
	}
	return int(cred.Pid), int(cred.Uid), nil
}
