package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// listener is a server that is no sshd: serve gets each connection.
func listener(t testing.TB, serve func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func TestNameNotFound(t *testing.T) {
	c := newClient(t)
	connectFails(t, c.dialer(), Target{Name: "no-such-host.invalid"}, KindResolve, "no-such-host.invalid")
}

func TestRefused(t *testing.T) {
	c := newClient(t)
	port := freePort(t)
	failed := connectFails(t, c.dialer(), Target{Name: "127.0.0.1", Port: port}, KindRefused, fmt.Sprint(port), "sshd")
	if !errors.Is(failed, syscall.ECONNREFUSED) {
		t.Fatal("cause is lost")
	}
}

func TestSilentServer(t *testing.T) {
	c := newClient(t)
	port := listener(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	d := c.dialer()
	d.Timeout = 300 * time.Millisecond
	connectFails(t, d, Target{Name: "127.0.0.1", Port: port}, KindTimeout, "said nothing for 300ms")
	c.config(t, "ConnectTimeout 1\n")
	connectFails(t, c.dialer(), Target{Name: "127.0.0.1", Port: port}, KindTimeout, "said nothing for 1s")
}

func TestServerThatStopsInTheMiddle(t *testing.T) {
	c := newClient(t)
	port := listener(t, func(conn net.Conn) {
		io.WriteString(conn, "SSH-2.0-silent\r\n")
		io.Copy(io.Discard, conn)
	})
	d := c.dialer()
	d.Timeout = 2 * time.Second
	connectFails(t, d, Target{Name: "127.0.0.1", Port: port}, KindTimeout, "not done within 2s")
}

func TestNoSSH(t *testing.T) {
	c := newClient(t)
	port := listener(t, func(conn net.Conn) {
		io.WriteString(conn, "220 mail.example.com ESMTP\r\n"+strings.Repeat("x", 1000)+"\r\n")
		io.Copy(io.Discard, conn)
	})
	connectFails(t, c.dialer(), Target{Name: "127.0.0.1", Port: port}, KindHandshake, "does not speak ssh", "ESMTP")
}

func TestBusyServerIsTriedAgain(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	drops := 2
	var mu sync.Mutex
	port := listener(t, func(conn net.Conn) {
		mu.Lock()
		drops--
		drop := drops >= 0
		mu.Unlock()
		if drop {
			return
		}
		relay(conn, s.address())
	})
	c.config(t, "HostKeyAlias busy\n")
	write(t, c.path("known_hosts"), "busy "+string(ssh.MarshalAuthorizedKey(s.keys["rsa"])))
	connect(t, c.dialer(), Target{Name: "127.0.0.1", Port: port}).Close()
	mu.Lock()
	drops = 100
	mu.Unlock()
	connectFails(t, c.dialer(), Target{Name: "127.0.0.1", Port: port}, KindHandshake, "hung up", "MaxStartups")
}

// relay carries a connection to an address.
func relay(conn net.Conn, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	var work sync.WaitGroup
	work.Go(func() {
		io.Copy(to, conn)
		to.Close()
	})
	io.Copy(conn, to)
	conn.Close()
	work.Wait()
}

func TestCanceled(t *testing.T) {
	c := newClient(t)
	heard := make(chan struct{})
	port := listener(t, func(conn net.Conn) {
		bufio.NewReader(conn).ReadString('\n')
		close(heard)
		io.Copy(io.Discard, conn)
	})
	ctx, cancel := context.WithCancel(bounded(t))
	go func() {
		<-heard
		cancel()
	}()
	_, err := c.dialer().Connect(ctx, Target{Name: "127.0.0.1", Port: port})
	var failed *ConnectError
	if !errors.As(err, &failed) || failed.Kind != KindCanceled {
		t.Fatalf("error %v", err)
	}
}

func TestAllErrorsAreReturned(t *testing.T) {
	s, c := pair(t)
	targets := []Target{{Name: "a.invalid"}, s.target(), {Name: "127.0.0.1", Port: freePort(t)}}
	d := c.dialer()
	d.Limit = 1
	hosts, errs := connectAll(bounded(t), d, targets)
	if errs[0] == nil || errs[1] != nil || errs[2] == nil || hosts[0] != nil || hosts[1] == nil || hosts[2] != nil {
		t.Fatalf("hosts %v, errors %v", hosts, errs)
	}
	must(t, hosts[1].Close())
}

// A host that stops answering is given up, whoever waits learns why.
func TestKeepAlive(t *testing.T) {
	s, c := pair(t)
	d := c.dialer()
	d.KeepAlive = 500 * time.Millisecond
	h := connect(t, d, s.target())
	p := begin(t, h, agentLaunch("sleep"))
	for _, pid := range children(t, s.cmd.Process.Pid) {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
	err := p.Wait()
	var lost *LostError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "no sign of life") {
		t.Fatalf("error %v", err)
	}
	if _, err := h.Start(bounded(t), agentLaunch()); !errors.As(err, &lost) {
		t.Fatalf("error of a later start %v", err)
	}
	if _, err := h.DialUnix(bounded(t), "/x"); !errors.As(err, &lost) {
		t.Fatalf("error of a later dial %v", err)
	}
	must(t, h.Close())
}

func TestKeepAliveLeavesAQuietHostAlone(t *testing.T) {
	s, c := pair(t)
	d := c.dialer()
	d.KeepAlive = 500 * time.Millisecond
	h := connect(t, d, s.target())
	p := begin(t, h, agentLaunch("later", "3"))
	if text := output(t, p); text != "later\n" {
		t.Fatalf("output %q", text)
	}
	must(t, p.Wait())
}

func TestServerIsKilled(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	p := begin(t, h, agentLaunch("sleep"))
	for _, pid := range children(t, s.cmd.Process.Pid) {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	var lost *LostError
	if err := p.Wait(); !errors.As(err, &lost) {
		t.Fatalf("error %v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	p := begin(t, h, agentLaunch("sleep"))
	must(t, h.Close())
	must(t, h.Close())
	var lost *LostError
	if err := p.Wait(); !errors.As(err, &lost) || !errors.Is(err, errClosed) {
		t.Fatalf("error %v", err)
	}
}
