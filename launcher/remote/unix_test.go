package remote

import (
	"bufio"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// echoSocket is a unix socket that repeats lines.
func echoSocket(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

func echoes(t *testing.T, h Host, path string) {
	t.Helper()
	conn, err := h.DialUnix(bounded(t), path)
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "hello\n")
	must(t, err)
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

func TestDialUnix(t *testing.T) {
	for name, option := range map[string]string{
		"forwarded": "AllowStreamLocalForwarding yes", "by proxy": "AllowStreamLocalForwarding no", "forwarding disabled": "DisableForwarding yes",
	} {
		t.Run(name, func(t *testing.T) {
			s, c := pair(t, option)
			h := connect(t, c.dialer(), s.target())
			path := echoSocket(t)
			echoes(t, h, path)
			echoes(t, h, path)
			starts := strings.Count(s.log.String(), "Starting session")
			if want := map[bool]int{true: 0, false: 2}[name == "forwarded"]; starts != want {
				t.Fatalf("%d proxies were started, want %d", starts, want)
			}
			fails(t, h, filepath.Join(t.TempDir(), "absent"))
		})
	}
}

// fails checks that a missing socket is told, at the latest when it is read.
func fails(t *testing.T, h Host, path string) {
	t.Helper()
	conn, err := h.DialUnix(bounded(t), path)
	if err == nil {
		defer conn.Close()
		_, err = io.ReadAll(conn)
	}
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("error %v", err)
	}
	t.Log(err)
}

func TestDialUnixOfAMissingSocket(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	fails(t, h, filepath.Join(t.TempDir(), "absent"))
	echoes(t, h, echoSocket(t))
	if h.(*sshHost).forward.Load() != forwardWorks {
		t.Fatal("forwarding was given up for a missing socket")
	}
}
