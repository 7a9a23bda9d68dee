//go:build linux

package mps

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// served is a server as its daemon sees it; the daemon's mu guards what is below exited.
type served struct {
	d      *daemon
	pid    int
	uid    int
	cmd    *exec.Cmd
	line   *packets
	exited chan struct{} // closed when it has ended

	state    string
	retiring bool
	settings settings
	orders   int
	answers  map[int]chan notice
}

// start starts a server for a user. With mu held.
func (d *daemon) start(uid int) {
	near, far, err := packetPair()
	if err != nil {
		d.log.line("Control", "MPS server failed to start: %v", err)
		d.dropPending(uid)
		return
	}
	defer far.Close()
	s := &served{d: d, uid: uid, line: near, exited: make(chan struct{}), state: initializing, settings: d.defaults.clone(), answers: map[int]chan notice{}}
	s.cmd = exec.Command(beside(serverName))
	s.cmd.Args, s.cmd.ExtraFiles = []string{serverName}, []*os.File{far}
	if uid != os.Getuid() && !d.multi {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	files := openFiles()
	if err := s.cmd.Start(); err != nil {
		d.log.line("Control", "MPS server failed to start: %v", err)
		near.conn.Close()
		d.dropPending(uid)
		return
	}
	s.pid = s.cmd.Process.Pid
	d.servers[s.pid] = s
	d.log.line("Control", "Starting new server %d for user %d", s.pid, uid)
	go s.listen()
	go s.wait()
	_ = s.line.send(order{Do: "start", Settings: s.settings, Files: files}, nil) // its end is seen by wait
}

// beside is the path of a program that is installed where this one is.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// openFiles is the limit of open files that this process was started with. Go raises that
// of the process itself, and gives children the first one back.
func openFiles() int {
	out, err := exec.Command("/bin/sh", "-c", "ulimit -n").Output()
	n, notNumber := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || notNumber != nil { // "unlimited"
		return 1 << 20
	}
	return n
}

// listen takes what the server tells, until it has ended.
func (s *served) listen() {
	for {
		var n notice
		if _, err := s.line.receive(&n); err != nil {
			return
		}
		s.d.mu.Lock()
		switch wants := s.answers[n.ID]; {
		case n.ID != 0 && wants != nil:
			wants <- n
			delete(s.answers, n.ID)
		case n.State != "":
			first := s.state == initializing
			s.state = n.State
			if first {
				s.d.log.line("Control", "NEW SERVER %d: Ready", s.pid)
				s.d.admitPending()
			}
		}
		s.d.mu.Unlock()
	}
}

// wait is there when the server ends.
func (s *served) wait() {
	status := 0
	if err := s.cmd.Wait(); err != nil {
		status = 1
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			ws := exit.Sys().(syscall.WaitStatus)
			status = max(ws.ExitStatus(), 0)
			if ws.Signaled() {
				status = int(ws.Signal())
			}
		}
	}
	s.line.conn.Close()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if status != 0 && !s.retiring {
		s.d.log.line("Control", "Server encountered a fatal exception. Shutting down")
	}
	s.d.log.line("Control", "Server %d exited with status %d", s.pid, status)
	delete(s.d.servers, s.pid)
	close(s.exited)
	if s.state == initializing {
		s.d.dropPending(s.uid)
	}
	s.d.admitPending()
}

// give hands a client's connection over. With mu held.
func (s *served) give(c *newcomer) {
	defer c.conn.Close()
	f, err := c.conn.File()
	if err != nil {
		return
	}
	defer f.Close()
	_ = s.line.send(order{Do: "client", Client: c.hello}, f) // a dead server's client sees the end of its connection
}

// retire lets the server end when its last client has gone. With mu held.
func (s *served) retire() {
	if !s.retiring {
		s.retiring = true
		_ = s.line.send(order{Do: "retire"}, nil) // its end is seen by wait
	}
}

func (s *served) kill() { _ = s.cmd.Process.Kill() } // it may have ended

// patience is how long a server that does not answer is waited for.
const patience = 2 * time.Second

// ask gives an order and returns the answer; false: none came in time. Without mu.
func (s *served) ask(o order) (notice, bool) {
	answer := make(chan notice, 1)
	s.d.mu.Lock()
	s.orders++
	o.ID = s.orders
	s.answers[o.ID] = answer
	s.d.mu.Unlock()
	if err := s.line.send(o, nil); err != nil && !errors.Is(err, net.ErrClosed) {
		return notice{}, false
	}
	select {
	case n := <-answer:
		return n, true
	case <-s.exited:
	case <-time.After(patience):
	}
	return notice{}, false
}
