//go:build linux

package mps

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// daemon is the control daemon. mu guards what is below it.
type daemon struct {
	folder, pipes           string
	multi                   bool
	log                     *logFile
	clients, commands, logs *net.UnixListener

	mu       sync.Mutex
	defaults settings // of the next server
	servers  map[int]*served
	pending  []*newcomer
	quitting bool
}

// newcomer is a client that waits for a server.
type newcomer struct {
	hello
	conn *net.UnixConn
}

// run answers until a command has ended the daemon and what it has to tidy away.
func (d *daemon) run() {
	done := make(chan struct{}, 1)
	go d.accept(d.clients, d.newClient)
	go d.accept(d.logs, func(conn *net.UnixConn) { conn.Close() })
	go d.accept(d.commands, func(conn *net.UnixConn) { d.converse(conn, done) })
	<-done
}

// tidy takes the daemon's files away.
func (d *daemon) tidy() {
	for _, name := range []string{clientSocket, commandSocket, logSocket, pidFile} {
		_ = os.Remove(filepath.Join(d.pipes, name)) // cleaners may have been first
	}
}

// accept serves each connection, until the listener is closed.
func (d *daemon) accept(l *net.UnixListener, serve func(*net.UnixConn)) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go serve(conn)
	}
}

// newClient hears who a client is and finds it a server.
func (d *daemon) newClient(conn *net.UnixConn) {
	d.log.line("Control", "Accepting connection...")
	pid, uid, err := peer(conn)
	if err != nil {
		d.log.line("Control", "User did not send valid credentials")
		conn.Close()
		return
	}
	if f := strike(d.folder, gpus.MPSControl+" client"); f != nil {
		refuse(conn, f.Error)
		return
	}
	c := &newcomer{conn: conn}
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&c.hello); err != nil {
		conn.Close()
		return
	}
	c.PID, c.UID = pid, uid
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admit(c, true)
}

// refuse tells a client that it cannot be one.
func refuse(conn *net.UnixConn, code int) {
	if code == 0 {
		code = errConnectionFailed
	}
	_ = json.NewEncoder(conn).Encode(answer{Error: code}) // it may be gone
	conn.Close()
}

// admit hands a client to its user's server, starts one, or lets it wait: for a server
// that starts, and for another user's to go. With mu held.
func (d *daemon) admit(c *newcomer, isNew bool) {
	if d.quitting {
		c.conn.Close()
		return
	}
	s := d.serverOf(c.UID)
	if s != nil && s.state != initializing && !s.retiring {
		if isNew {
			d.log.line("Control", "NEW CLIENT %d from user %d: Server already exists", c.PID, c.UID)
		}
		s.give(c)
		return
	}
	if isNew {
		d.log.line("Control", "NEW CLIENT %d from user %d: Server is not ready, push client to pending list", c.PID, c.UID)
	}
	d.pending = append(d.pending, c)
	if s != nil {
		return
	}
	for _, other := range d.servers {
		other.retire() // the next user's is started when it has gone
	}
	if len(d.servers) == 0 {
		d.start(c.UID)
	}
}

// admitPending looks again at those who wait. With mu held.
func (d *daemon) admitPending() {
	waiting := d.pending
	d.pending = nil
	for _, c := range waiting {
		d.admit(c, false)
	}
}

// dropPending turns away a user's clients: their server did not start. With mu held.
func (d *daemon) dropPending(uid int) {
	d.pending = slices.DeleteFunc(d.pending, func(c *newcomer) bool {
		if c.UID == uid || d.multi {
			refuse(c.conn, errConnectionFailed)
			return true
		}
		return false
	})
}

// serverOf is the server of a user, nil where there is none. With mu held.
func (d *daemon) serverOf(uid int) *served {
	for _, s := range d.servers {
		if s.uid == uid || d.multi {
			return s
		}
	}
	return nil
}

// quit ends all servers and returns when they have ended: after a time by force, negative:
// never so. It tells whether all ended by themselves.
func (d *daemon) quit(after time.Duration) (clean bool) {
	d.mu.Lock()
	d.quitting = true
	d.clients.Close() // whoever comes now runs without MPS
	for _, c := range d.pending {
		c.conn.Close()
	}
	d.pending = nil
	var servers []*served
	for _, s := range d.servers {
		s.retire()
		servers = append(servers, s)
	}
	d.mu.Unlock()
	var force <-chan time.Time
	if after >= 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		force = timer.C
	}
	clean = true
	for _, s := range servers {
		select {
		case <-s.exited:
			continue
		case <-force:
			clean = false
		}
		for _, s := range servers {
			s.kill()
		}
		force = nil
		<-s.exited
	}
	return clean
}
