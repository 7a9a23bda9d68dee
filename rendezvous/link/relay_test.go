package link

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay passes TCP connections on and can cut those that stand.
type relay struct {
	l  net.Listener
	mu sync.Mutex
	cs []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{l: l}
	t.Cleanup(func() { l.Close(); r.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.cs = append(r.cs, in, out)
			r.mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return r
}

func (r *relay) addr() string { return r.l.Addr().String() }

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cs {
		c.Close()
	}
	r.cs = nil
}
