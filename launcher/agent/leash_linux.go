package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
)

// leash is what keeper and agent hold the two ends of: a socket pair that carries
// small messages, copies of pipes, heartbeats, and the news of the other's death
// (it reads as the end).
type leash struct {
	file *os.File
}

// tug is a message on the leash. One field is set, or none in a heartbeat.
type tug struct {
	// From the agent.
	Hold *held  `json:"hold,omitempty"` // a pipe's read end comes with it
	Let  string `json:"let,omitempty"`  // the log at this path is complete
	Done bool   `json:"done,omitempty"` // nothing is left; the agent ends now
	// Keep asks the keeper to have a file that comes with it open until it ends: a claim.
	Keep bool `json:"keep,omitempty"`
	// Lend brings, one by one, the files of a plugin's process: its program, and the write
	// ends of its output and error. Plugin then has it started, Kill ends it.
	Lend   string       `json:"lend,omitempty"`
	Plugin *pluginOrder `json:"plugin,omitempty"`
	Kill   int          `json:"kill,omitempty"` // number of a plugin
	// From the keeper.
	Beside           *proc.ID       `json:"beside,omitempty"`            // the coordinator's process
	Ready            *message.Ready `json:"ready,omitempty"`             // the coordinator is up
	Bye              bool           `json:"bye,omitempty"`               // the agent's Done is taken in
	CoordinatorEnded string         `json:"coordinator_ended,omitempty"` // how
	PluginIs         *pluginNews    `json:"plugin_is,omitempty"`         // a plugin runs, or has ended
}

// held says which log a pipe belongs to.
type held struct {
	Path string       `json:"path"`
	Lane ranklog.Lane `json:"lane"`
}

const maxTug = 64 << 10

// newLeash returns both ends. The second is meant for a child.
func newLeash() (*leash, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make leash: %w", err)
	}
	own, err := leashFrom(fds[0])
	return own, os.NewFile(uintptr(fds[1]), "leash"), err
}

func leashFrom(fd int) (*leash, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("leash: %w", err)
	}
	unix.CloseOnExec(fd)
	return &leash{file: os.NewFile(uintptr(fd), "leash")}, nil
}

// sendWait bounds how long a message may wait for room in the other's queue: one that is
// stopped makes none, and must not hold up who looks after it.
const sendWait = time.Second

// send sends a message, and a copy of a file with it. It is in the other's queue
// when send returns, whatever becomes of this process.
func (l *leash) send(m tug, file *os.File) error {
	if err := l.file.SetWriteDeadline(time.Now().Add(sendWait)); err != nil {
		return fmt.Errorf("leash: %w", err)
	}
	var rights []byte
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	if file != nil {
		fd, err := descriptor(file)
		if err != nil {
			return err
		}
		rights = unix.UnixRights(fd)
	}
	text := message.Encode(m)
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), text, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	return errors.Join(err, sendErr)
}

// descriptor returns a file's descriptor and leaves its mode as it is (File.Fd
// would make it block). The file must stay open while it is used.
func descriptor(file *os.File) (int, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return -1, err
	}
	n := -1
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// receive waits for the next message. It returns io.EOF when the other end is gone and
// everything that it had sent was received.
func (l *leash) receive() (tug, *os.File, error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return tug{}, nil, err
	}
	text, control := make([]byte, maxTug), make([]byte, unix.CmsgSpace(4))
	var n, nc int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, nc, _, _, readErr = unix.Recvmsg(int(fd), text, control, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(readErr, unix.ECONNRESET) {
			// The other end went with messages of ours unread. That is said once, ahead of
			// what it had sent, which is still to be had.
			n, nc, _, _, readErr = unix.Recvmsg(int(fd), text, control, unix.MSG_CMSG_CLOEXEC)
		}
		return !errors.Is(readErr, unix.EAGAIN)
	})
	if err := errors.Join(err, readErr); err != nil {
		return tug{}, nil, err
	}
	if n == 0 {
		return tug{}, nil, io.EOF
	}
	var m tug
	if err := json.Unmarshal(text[:n], &m); err != nil {
		return tug{}, nil, fmt.Errorf("leash: %w", err)
	}
	return m, fileIn(control[:nc]), nil
}

func fileIn(control []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "pipe")
}

func (l *leash) close() { l.file.Close() }
