//go:build linux

package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

// openLogs is how many outputs this process has open.
func openLogs(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && filepath.Ext(to) == ".log" {
			n++
		}
	}
	return n
}

// A terminal that is stopped reads nothing while thousands of tasks end.
func TestASlowReaderHasFewOutputsOpenAndGetsAllInTheEnd(t *testing.T) {
	hubKey, key := newKey(t), newKey(t)
	hub := link.NewHub(hubKey, 3*time.Second)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub.Admit("a", key.Pin())
	go func() { _ = hub.Serve(l) }()
	defer hub.Close()
	member, err := link.Join(key, hubKey.Pin(), l.Addr().String(), 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Leave(context.Background())
	events := loop.New()
	events.Join(member)
	f := newFollowers(events, t.TempDir())
	defer f.cancel()
	f.pushes["r"] = make(chan struct{}, 2)
	const tasks = 9
	o := &message.Follow{Subscription: "r", Ranks: map[int]int64{}}
	for rank := range tasks {
		log, err := ranklog.Create(ranklog.Path(f.state, 0, rank))
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		o.Ranks[rank] = 0
	}
	chunks := make(chan *link.Chunk)
	hub.Subscribe(t.Context(), "r", chunks)
	for rank := range o.Ranks {
		f.follow(o, rank, nil)
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n := openLogs(t); n > 2 {
			t.Fatalf("%d outputs are open", n)
		}
	}
	for range tasks {
		select {
		case c := <-chunks:
			if !c.End {
				t.Errorf("%+v", c)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("nothing came within 10 s")
		}
	}
}

func newKey(t *testing.T) *link.Identity {
	t.Helper()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return key
}
