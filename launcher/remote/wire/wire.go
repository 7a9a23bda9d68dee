// Package wire is what an ssh connection runs over: TCP with a watch on it, and the
// standard streams of a ProxyCommand. It knows nothing of ssh but its first line,
// and starts no goroutine that Close does not await.
package wire

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection that knows when it last heard something, and what
// its first words were.
type Conn struct {
	net.Conn
	heard atomic.Int64 // unix nanoseconds
	eager atomic.Bool

	mu   sync.Mutex
	head []byte
}

// Watch watches a connection. It is eager until Relax.
func Watch(conn net.Conn) *Conn {
	w := &Conn{Conn: conn}
	w.eager.Store(true)
	return w
}

// Relax ends the eager acknowledgements.
func (w *Conn) Relax() { w.eager.Store(false) }

// Complaint is what a proxy command said on its standard error.
func (w *Conn) Complaint() string {
	if c, ok := w.Conn.(*Command); ok {
		return c.Complaint()
	}
	return ""
}

// Read acknowledges at once while the connection is eager: sshd leaves Nagle's
// algorithm on, and its next small packet would wait 40 ms for a delayed one.
func (w *Conn) Read(p []byte) (int, error) {
	eager := w.eager.Load()
	if eager {
		acknowledgeAtOnce(w.Conn)
	}
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(time.Now().UnixNano())
	}
	if n > 0 && eager {
		w.note(p[:n])
	}
	return n, err
}

const headSize = 255

func (w *Conn) note(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := headSize - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, len(p))]...)
	}
}

// Silent reports whether nothing was heard yet.
func (w *Conn) Silent() bool { return w.heard.Load() == 0 }

// Quiet is how long nothing was heard.
func (w *Conn) Quiet() time.Duration { return time.Since(time.Unix(0, w.heard.Load())) }

// Greeting is the first line that was heard.
func (w *Conn) Greeting() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _, _ := strings.Cut(string(w.head), "\n")
	return strings.TrimSpace(line)
}
