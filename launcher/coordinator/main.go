//go:build linux

package coordinator

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/muster-dev/muster/launcher/claim"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/rendezvous/link"
)

// fdKeeper is the line to the keeper that started this process.
const fdKeeper = 3

// Main is the command "muster coordinator", which a keeper starts. It returns the
// exit status.
func Main(args []string) int {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE) // taken and thrown away
	unix.CloseOnExec(fdKeeper)
	keeper := os.NewFile(fdKeeper, "keeper")
	if err := serve(keeper, args); err != nil {
		_, _ = keeper.Write(append(message.Encode(message.Ready{Error: err.Error()}), '\n'))
		fmt.Fprintln(os.Stderr, "muster coordinator:", err)
		return 70
	}
	return 0
}

func serve(keeper *os.File, args []string) error {
	flags := flag.NewFlagSet("coordinator", flag.ContinueOnError)
	_ = flags.String("run", "", "id of the run")
	stateDir := flags.String("state", "", "folder of what lasts")
	socket := flags.String("control", "", "path of the control socket")
	lease := flags.Duration("lease", 30*time.Second, "how long a part of the run may be silent")
	first := flags.Int("first-port", 0, "first port to listen on; 0: any")
	last := flags.Int("last-port", 0, "last port to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	identity, err := link.NewIdentity()
	if err != nil {
		return err
	}
	members, err := listenIn(*first, *last)
	if err != nil {
		return err
	}
	launchers, err := listenControl(*socket)
	if err != nil {
		return err
	}
	hub := link.NewHub(identity, *lease)
	c, err := newCoordinator(*stateDir, *lease, hub)
	if err != nil {
		return err
	}
	c.live.dir = filepath.Dir(*socket)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(submission.MaxMessage))
	pb.RegisterControlServer(server, control{c: c})
	go func() { _ = hub.Serve(members) }()
	go func() { _ = server.Serve(launchers) }()
	ready := message.Ready{Pin: identity.Pin(), Port: members.Addr().(*net.TCPAddr).Port, Control: *socket}
	if _, err := keeper.Write(append(message.Encode(ready), '\n')); err != nil {
		return fmt.Errorf("tell keeper: %w", err)
	}
	go c.listenToKeeper(keeper)
	go c.beat(keeper)
	c.run()
	endGently(server)
	hub.Close()
	c.finishWriting(keeper)
	return nil
}

// lateWrites bounds how long this process stays for a file system that hangs at the end: one
// that comes back then has all that happened, and the report.
const lateWrites = 10 * time.Minute

// finishWriting waits until the disk has taken everything. Meanwhile the keeper is told that
// this process lives, or it would end it.
func (c *Coordinator) finishWriting(keeper io.Writer) {
	for end := time.Now().Add(lateWrites); !c.disk.settle(link.HeartbeatOf(c.lease)) && time.Now().Before(end); {
		_, _ = keeper.Write([]byte{'.'})
	}
}

// beat gives the keeper a sign of life, from the loop that decides.
func (c *Coordinator) beat(keeper io.Writer) {
	ticker := time.NewTicker(link.HeartbeatOf(c.lease))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.post(func() { _, _ = keeper.Write([]byte{'.'}) })
		case <-c.ended:
			return
		}
	}
}

// endGently lets answers that are on their way arrive.
func endGently(server *grpc.Server) {
	timer := time.AfterFunc(time.Second, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}

// listenToKeeper ends the run when the keeper has died, and this process when there is no
// run. A word of the keeper says that nothing is left on this host but this process.
func (c *Coordinator) listenToKeeper(keeper io.Reader) {
	buf := make([]byte, 1)
	for {
		n, _ := keeper.Read(buf)
		empty := n == 1
		c.post(func() {
			c.orphan = !empty
			switch {
			case c.machine == nil:
				c.quit = true
			case empty:
				c.next(run.Empty{Host: 0})
			default:
				c.next(run.KeeperDied{})
			}
		})
		if !empty {
			return
		}
	}
}

// listenIn listens on a port of a range, on all addresses. It is claimed as long as this
// process lives: another run may hold it for its rank 0, which does not listen yet.
func listenIn(first, last int) (net.Listener, error) {
	if first == 0 {
		return net.Listen("tcp", ":0")
	}
	var lastErr error
	for port := first; port <= last; port++ {
		l, err := listenOn(port)
		if err == nil {
			return l, nil
		}
		lastErr = err
	}
	return nil, fmt.Errorf("no port of %d-%d is free for the coordinator: %w", first, last, lastErr)
}

// claimed is a listener on a port that is claimed.
type claimed struct {
	net.Listener
	lock *os.File // closed with the process
}

func listenOn(port int) (net.Listener, error) {
	lock, err := claim.Port(port)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		lock.Close()
		return nil, err
	}
	return claimed{l, lock}, nil
}

// ownerOnly is a unix listener that takes connections of its own user and root alone.
// The folder's mode says so already; this holds where that is not honoured.
type ownerOnly struct{ *net.UnixListener }

func listenControl(path string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on control socket: %w", err)
	}
	return ownerOnly{l.(*net.UnixListener)}, nil
}

func (l ownerOnly) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if isOwner(conn) {
			return conn, nil
		}
		conn.Close()
	}
}

func isOwner(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	owner := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		owner = err == nil && (int(cred.Uid) == os.Getuid() || cred.Uid == 0)
	})
	return owner
}
