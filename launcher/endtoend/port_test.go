//go:build linux

package endtoend

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// B07
func TestAPinnedPortThatIsBusyIsRefusedWithItsHolder(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-z")
	holder := listenAt(t, h, "0.0.0.0:25100")
	defer holder.Close()
	// The coordinator takes one of the range too; it is the ranks' that is busy.
	other := listenAt(t, h, "0.0.0.0:25101")
	defer other.Close()
	r := u.runJob(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "host-a"}, more: "ports = \"25100-25102\""}).exits(75)
	r.says("25100", "host-z", "no port of 25100-25102 is free")
	if !strings.Contains(r.stderr, "25100 by ") {
		t.Errorf("the holder is not named:\n%s", r.stderr)
	}
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}

func listenAt(t *testing.T, h *testbed.Host, addr string) (l net.Listener) {
	t.Helper()
	err := h.Do(func() (err error) { l, err = net.Listen("tcp4", addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// B38
func TestAPortThatIsTakenInTheGapIsTakenElsewhere(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	r := u.runJob(job{script: fmt.Sprintf(`
		cd %s
		echo $MASTER_PORT >>ports-$RANK
		trap 'exit 1' TERM
		if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
			[ $RANK = 0 ] || while :; do sleep 0.05; done
			while [ ! -s ports-1 ]; do sleep 0.02; done
			echo "The server socket has failed to listen on any local network address. port: $MASTER_PORT, EADDRINUSE" >&2
			exit 1
		fi
		echo attempt $TORCHELASTIC_RESTART_COUNT`, u.dir), hosts: []string{"host-z", "host-a"}, more: longLease}).exits(0)
	r.says("all ranks ended well")
	if n := strings.Count(r.stdout, "attempt 1"); n != 2 {
		t.Errorf("%d ranks have run to their end:\n%s\n%s", n, r.stdout, r.stderr)
	}
	ports := strings.Fields(u.read("ports-0"))
	if len(ports) != 2 || ports[0] == ports[1] || u.read("ports-1") != u.read("ports-0") {
		t.Errorf("rank 0 was given the ports %q, rank 1 %q", ports, u.read("ports-1"))
	}
}

// B38
func TestAPortThatIsTakenAgainAndAgainIsAFailure(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.runJob(job{script: `echo "port $MASTER_PORT: Address already in use" >&2; exit 98`, hosts: []string{"host-z"}}).exits(98).
		says("Address already in use")
	report := u.run("report", "-", "--json").exits(0).object("version", "run", "job", "outcome", "exit", "first_cause", "attempts", "ranks", "left", "warnings", "findings")
	if n := len(report["attempts"].([]any)); n != 4 {
		t.Errorf("the run was started %d times", n)
	}
}

// B38
func TestManyStartsBesideAProgramThatConnectsOut(t *testing.T) {
	const starts, connections = 50, 200
	bed := lend(t)
	u := newUser(t, bed).sittingAt("host-z")
	busy := connectOut(t, u.at, connections)
	defer busy()
	path := u.write(job{command: []string{"python3", u.file("rank0.py", `
import os, socket
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("::", int(os.environ["MASTER_PORT"])))
s.listen()
`)}})
	for range starts {
		u.run("run", path).exits(0).saysNothingOf("attempt 1", "Address already in use")
	}
}

// connectOut opens connections on a host to itself, as many at a time, until its end is
// called.
func connectOut(t *testing.T, h *testbed.Host, connections int) (end func()) {
	t.Helper()
	l := listenAt(t, h, "127.0.0.1:0")
	accepted, dialled := make(chan struct{}), make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go conn.Close()
		}
	}()
	go func() {
		defer close(dialled)
		_ = h.Do(func() error { dialUntil(stop, l.Addr().String(), connections); return nil })
	}()
	return func() { close(stop); <-dialled; l.Close(); <-accepted }
}

// dialUntil opens some hundred connections a second and keeps so many of them open at a
// time.
func dialUntil(stop <-chan struct{}, addr string, connections int) {
	open := make([]net.Conn, connections)
	defer func() {
		for _, conn := range open {
			if conn != nil {
				conn.Close()
			}
		}
	}()
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for i := 0; ; i = (i + 1) % connections {
		select {
		case <-stop:
			return
		case <-pace.C:
		}
		if open[i] != nil {
			open[i].Close()
		}
		open[i], _ = net.Dial("tcp", addr) // one that fails is tried again in the next round
	}
}
