//go:build linux

package keeper

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// coordinator is the coordinator's process as its keeper watches it; nil on hosts without one.
type coordinator struct {
	child    *proc.Child
	line     *os.File
	lease    time.Duration
	received atomic.Bool   // it has sent a heartbeat since the last of ours
	silent   time.Duration // counted in own heartbeats
	ended    chan string   // gets how it has ended
}

func (k *keeper) startCoordinator(log *os.File) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make line to coordinator: %w", err)
	}
	c := &coordinator{line: os.NewFile(uintptr(fds[0]), "coordinator"), lease: k.Lease, ended: make(chan string, 1)}
	control := filepath.Join(k.sockets.Dir, rundir.ControlSocket)
	if err := os.WriteFile(filepath.Join(k.state, rundir.ControlPath), []byte(control), 0o600); err != nil {
		return fmt.Errorf("note the control socket: %w", err)
	}
	end := os.NewFile(uintptr(fds[1]), "coordinator")
	defer end.Close()
	c.child, err = k.reaper.Start(proc.Spec{
		Path: k.Coordinator, Env: os.Environ(), Dir: "/", Group: true,
		Argv: append([]string{"muster", "coordinator", "-run", k.Run, "-state", k.state, "-lease", k.Lease.String(),
			"-control", control}, k.CoordinatorArgs...),
		Files: []*os.File{nil, log, log, end},
	})
	if err != nil {
		return err
	}
	k.coordinator = c
	return k.conn.Send(Message{Coordinator: &c.child.ID})
}

// watch passes the coordinator's first line to the agent and reports how it ended.
func (c *coordinator) watch(conn *Conn) {
	go func() {
		lines := bufio.NewReader(c.line)
		line, err := lines.ReadBytes('\n')
		var ready message.Ready
		if err == nil && json.Unmarshal(line, &ready) == nil {
			_ = conn.Send(Message{Ready: &ready})
		}
		for err == nil { // a heartbeat is a byte
			c.received.Store(true)
			_, err = lines.ReadByte()
		}
	}()
	go func() {
		<-c.child.Done
		c.ended <- "ended: " + c.child.Exit().String()
	}()
}

func (c *coordinator) beat(beat time.Duration) {
	if c.received.Swap(false) {
		c.silent = 0
	}
	if c.silent += beat; c.silent > c.lease {
		_ = proc.Signal(c.child.ID, unix.SIGKILL)
	}
}

// release waits until the coordinator ends by itself, once it has reported the end of the run; one without a run has
// nothing more to wait for.
func (c *coordinator) release() {
	_, _ = c.line.Write([]byte{'.'})
	beat := link.HeartbeatOf(c.lease)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
			c.beat(beat)
		}
	}
}
