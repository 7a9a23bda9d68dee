//go:build linux

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
)

// Conn connects keeper and agent: a socket pair that carries small messages, copies of files, and heartbeats. The
// other's death reads as its end.
type Conn struct {
	file *os.File
}

// Message is what keeper and agent tell each other. One field is set, or none in a heartbeat.
type Message struct {
	// From the agent.
	Output     *Output  `json:"output,omitempty"`      // the read end of a pipe comes with it
	ReleaseLog string   `json:"release_log,omitempty"` // the log at this path is complete
	KeepOpen   bool     `json:"keep_open,omitempty"`   // a file comes with it to hold until the keeper ends: a claim
	Start      *Process `json:"start,omitempty"`       // its files come with it
	Kill       int      `json:"kill,omitempty"`        // number of a process
	Done       bool     `json:"done,omitempty"`        // nothing is left; the agent ends now
	// From the keeper.
	Coordinator      *proc.ID       `json:"coordinator,omitempty"`       // its process, on the head host
	Ready            *message.Ready `json:"ready,omitempty"`             // it is up
	CoordinatorEnded string         `json:"coordinator_ended,omitempty"` // how
	Process          *processState  `json:"process,omitempty"`           // a process was started, or has ended
	DoneAck          bool           `json:"done_ack,omitempty"`
}

// Output says which log a pipe belongs to.
type Output struct {
	Path string       `json:"path"`
	Lane ranklog.Lane `json:"lane"`
}

const (
	maxMessage = 64 << 10
	// maxFiles is how many files come with a message at most.
	maxFiles = 3
	// sendWait bounds how long a message waits for room in the other's queue: a process that is stopped makes none, and
	// must not hold up the one that watches it.
	sendWait = time.Second
)

// newConn returns the keeper's end, and the agent's for a child.
func newConn() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make keeper connection: %w", err)
	}
	own, err := Open(fds[0])
	return own, os.NewFile(uintptr(fds[1]), "keeper"), err
}

// Open opens the connection at an inherited descriptor.
func Open(fd int) (*Conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("keeper connection: %w", err)
	}
	unix.CloseOnExec(fd)
	return &Conn{file: os.NewFile(uintptr(fd), "keeper")}, nil
}

// Send sends a message, and copies of files with it. It is in the other's queue when Send returns, whatever becomes of
// this process.
func (c *Conn) Send(m Message, files ...*os.File) error {
	if err := c.file.SetWriteDeadline(time.Now().Add(sendWait)); err != nil {
		return fmt.Errorf("keeper connection: %w", err)
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return err
	}
	var fds []int
	for _, file := range files {
		fd, err := descriptor(file)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	text := message.Encode(m)
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), text, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	return errors.Join(err, sendErr)
}

// descriptor returns a file's descriptor and leaves its mode as it is (File.Fd would make it block). The file must stay
// open while it is used.
func descriptor(file syscall.Conn) (int, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return -1, err
	}
	n := -1
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// Receive waits for the next message. It returns io.EOF when the other end is gone and all that it had sent was
// received.
func (c *Conn) Receive() (Message, []*os.File, error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return Message{}, nil, err
	}
	text, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxFiles))
	var n, nc int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, nc, _, _, readErr = unix.Recvmsg(int(fd), text, control, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(readErr, unix.ECONNRESET) {
			// The other end is gone and left messages of ours unread. The kernel says so once, before what the other
			// had sent, which can still be read.
			n, nc, _, _, readErr = unix.Recvmsg(int(fd), text, control, unix.MSG_CMSG_CLOEXEC)
		}
		return !errors.Is(readErr, unix.EAGAIN)
	})
	if err := errors.Join(err, readErr); err != nil {
		return Message{}, nil, err
	}
	if n == 0 {
		return Message{}, nil, io.EOF
	}
	files := filesIn(control[:nc])
	var m Message
	if err := json.Unmarshal(text[:n], &m); err != nil {
		closeAll(files)
		return Message{}, nil, fmt.Errorf("keeper connection: %w", err)
	}
	return m, files, nil
}

func filesIn(control []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil
	}
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "passed"))
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
