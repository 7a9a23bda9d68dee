//go:build linux

package progress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// listening is an observer of a rank whose leader is this test.
func listening(t *testing.T) *Socket {
	t.Helper()
	o, err := newSocket(filepath.Join(t.TempDir(), "o"), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	o.Begin(os.Getpid(), link.Now(), true)
	return o
}

// sender sends without blocking, as programs are told to.
type sender struct {
	fd int
	to unix.SockaddrUnix
}

func newSender(t *testing.T, o *Socket) *sender {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &sender{fd, unix.SockaddrUnix{Name: o.Path}}
}

func (s *sender) send(line string) error {
	return unix.Sendto(s.fd, []byte(line), unix.MSG_DONTWAIT, &s.to)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s: " + what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAWorkerTellsAndTheSenderIsKnown(t *testing.T) {
	o := listening(t)
	s := newSender(t, o)
	for _, line := range []string{"step 12", "torch device 0 allocated=5 reserved=9"} {
		if err := s.send(line); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both lines are taken in", func() bool { return o.Latest().Torch.State == observe.TorchReporting })
	l := o.Latest()
	if d := l.Torch.Devices[0]; l.Progress.Step != 12 || d.PID != os.Getpid() || d.Child {
		t.Errorf("%+v", l)
	}
	if o.unreported() == nil || o.unreported() != nil {
		t.Error("news are told never, or twice")
	}
	o.Close()
	if _, err := os.Stat(o.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// What was sent right before the end counts: it says how far the worker was.
func TestTheLastWordBeforeTheEndIsTakenIn(t *testing.T) {
	for range 50 {
		o := listening(t)
		if err := newSender(t, o).send("step 7"); err != nil {
			t.Fatal(err)
		}
		o.Close()
		if got := o.Latest().Furthest.Step; got != 7 {
			t.Fatalf("step %d", got)
		}
	}
}

func TestAProgramThatTellsTooMuchIsNeitherHeldUpNorReadWithoutEnd(t *testing.T) {
	o := listening(t)
	s := newSender(t, o)
	began, sent, longest := time.Now(), 0, time.Duration(0)
	for time.Since(began) < time.Second {
		at := time.Now()
		err := s.send(fmt.Sprintf("step %d", sent))
		longest = max(longest, time.Since(at))
		switch {
		case err == nil:
			sent++
		case errors.Is(err, unix.EAGAIN): // it is full, and what was not taken is lost
		default:
			t.Fatal(err)
		}
	}
	o.Close()
	// Ten bursts a second, one at each end, and what the socket holds.
	if most := 12*burst + lastBurst; sent > most {
		t.Errorf("%d lines were taken in within a second, at most %d are to be", sent, most)
	}
	if o.Latest().Furthest.Step != sent-1 {
		t.Errorf("%v of %d", o.Latest().Furthest, sent)
	}
	if longest > 300*time.Millisecond { // a busy machine's doing; a blocked sender waits for a whole rest and more
		t.Logf("the longest send took %v", longest)
	}
}

func TestASenderWhoseReaderIsGoneGoesOn(t *testing.T) {
	o := listening(t)
	s := newSender(t, o)
	o.Close()
	if err := s.send("step 1"); !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

func TestADatagramThatIsTooLongIsRefusedWhole(t *testing.T) {
	o := listening(t)
	s := newSender(t, o)
	if err := s.send("step 5\nphase " + strings.Repeat("x", observe.MaxDatagram)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is refused", func() bool { return o.Latest().Refused > 0 })
	o.Close()
	if l := o.Latest(); l.Progress.Known() || !strings.Contains(l.RefusedWhy, "at most") {
		t.Errorf("%+v", l)
	}
}

func TestOnlyTheUserReachesTheSocket(t *testing.T) {
	o := listening(t)
	defer o.Close()
	info, err := os.Stat(filepath.Dir(o.Path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestASocketThatCannotBeMadeIsAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 110))
	if _, err := newSocket(dir, 0, 0); err == nil {
		t.Error("a path that is too long for a socket is taken")
	}
	var none *Socket // the worker runs without it
	none.Begin(0, 0, false)
	none.Close()
	if none.Latest() != nil {
		t.Error("no observer tells something")
	}
	if !none.Latest().Empty() {
		t.Error("nothing is not empty")
	}
}

func TestARankWithoutTheHookIsToldOfOnceAndInTime(t *testing.T) {
	now := link.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		age   time.Duration
		told  string
		warns bool
	}{
		"just begun":    {time.Second, "", false},
		"no Python":     {time.Minute, "", true},
		"steps only":    {time.Minute, "step 1", true},
		"with the hook": {time.Minute, "torch python 3.11.7", false},
	} {
		o := listening(t)
		if c.told != "" {
			if err := newSender(t, o).send(c.told); err != nil {
				t.Fatal(err)
			}
		}
		o.Close()
		o.began = now.Add(-c.age)
		r := New(rundir.Place{}, loop.New())
		r.Follow(3, o)
		r.warnOfUnseen(now)
		if r.unseenWarned != c.warns {
			t.Errorf("%s: warned is %v", name, r.unseenWarned)
		}
	}
}

func TestTheHookStandsFirstInThePathThatTheWorkerWouldHave(t *testing.T) {
	dir := t.TempDir()
	r := New(rundir.Place{Sockets: dir, State: "/state"}, loop.New())
	base := map[string]string{"PYTHONPATH": "/of/setup"}
	o := &Socket{Path: dir + "/o/0-3"}
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"setup's":      {nil, dir + "/py:/of/setup"},
		"the job's":    {map[string]string{"PYTHONPATH": "/of/job"}, dir + "/py:/of/job"},
		"set to empty": {map[string]string{"PYTHONPATH": ""}, dir + "/py"},
	} {
		own := map[string]string{}
		r.Environ(own, &message.Start{Attempt: 2, Observe: message.Observe{Torch: true, Snapshot: true}}, message.RankStart{Rank: 3, Env: c.env}, base, o)
		if own["PYTHONPATH"] != c.want || own["MUSTER_SOCKET"] != o.Path || own["MUSTER_TORCH_SNAPSHOT"] != "/state/attempt-2/rank-3" {
			t.Errorf("%s: %v", name, own)
		}
	}
	own := map[string]string{}
	r.Environ(own, &message.Start{}, message.RankStart{}, base, o)
	if len(own) != 1 || own["MUSTER_SOCKET"] != o.Path {
		t.Errorf("without observe: %v", own)
	}
}
