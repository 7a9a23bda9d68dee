//go:build linux

package agent

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
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// listening is an observer of a rank whose leader is this test.
func listening(t *testing.T) *observer {
	t.Helper()
	o, err := newObserver(filepath.Join(t.TempDir(), "o"), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{child: &proc.Child{ID: proc.ID{PID: os.Getpid()}}, began: link.Now()}
	o.begin(w, true)
	return o
}

// sender sends without blocking, as programs are told to.
type sender struct {
	fd int
	to unix.SockaddrUnix
}

func newSender(t *testing.T, o *observer) *sender {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &sender{fd, unix.SockaddrUnix{Name: o.path}}
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
	eventually(t, "both lines are taken in", func() bool { return o.latest().Torch.State == observe.TorchReporting })
	l := o.latest()
	if d := l.Torch.Devices[0]; l.Progress.Step != 12 || d.PID != os.Getpid() || d.Child {
		t.Errorf("%+v", l)
	}
	if o.news() == nil || o.news() != nil {
		t.Error("news are told never, or twice")
	}
	o.close()
	if _, err := os.Stat(o.path); !errors.Is(err, os.ErrNotExist) {
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
		o.close()
		if got := o.latest().Furthest.Step; got != 7 {
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
	o.close()
	// Ten bursts a second, one at each end, and what the socket holds.
	if most := 12*burst + lastBurst; sent > most {
		t.Errorf("%d lines were taken in within a second, at most %d are to be", sent, most)
	}
	if o.latest().Furthest.Step != sent-1 {
		t.Errorf("%v of %d", o.latest().Furthest, sent)
	}
	if longest > 300*time.Millisecond { // a busy machine's doing; a blocked sender waits for a whole rest and more
		t.Logf("the longest send took %v", longest)
	}
}

func TestASenderWhoseReaderIsGoneGoesOn(t *testing.T) {
	o := listening(t)
	s := newSender(t, o)
	o.close()
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
	eventually(t, "it is refused", func() bool { return o.latest().Refused > 0 })
	o.close()
	if l := o.latest(); l.Progress.Known() || !strings.Contains(l.RefusedWhy, "at most") {
		t.Errorf("%+v", l)
	}
}

func TestOnlyTheUserReachesTheSocket(t *testing.T) {
	o := listening(t)
	defer o.close()
	info, err := os.Stat(filepath.Dir(o.path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestASocketThatCannotBeMadeIsAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 110))
	if _, err := newObserver(dir, 0, 0); err == nil {
		t.Error("a path that is too long for a socket is taken")
	}
	var none *observer // the worker runs without it
	none.begin(nil, false)
	none.close()
	if none.latest() != nil || none.news() != nil || !none.seen() {
		t.Error("no observer tells something")
	}
	if !none.latest().Empty() {
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
		o.close()
		a := &agent{loop: loop.New(), workers: map[int]*worker{3: {observer: o, began: now.Add(-c.age)}}}
		a.warnOfUnseen(now)
		if a.observed.unseenSaid != c.warns {
			t.Errorf("%s: told is %v", name, a.observed.unseenSaid)
		}
	}
}

func TestTheHookStandsFirstInThePathThatTheWorkerWouldHave(t *testing.T) {
	dir := t.TempDir()
	a := &agent{loop: loop.New(), place: rundir.Place{Sockets: dir, State: "/state"}, base: map[string]string{"PYTHONPATH": "/of/setup"}}
	o := &observer{path: dir + "/o/0-3"}
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"setup's":      {nil, dir + "/py:/of/setup"},
		"the job's":    {map[string]string{"PYTHONPATH": "/of/job"}, dir + "/py:/of/job"},
		"set to empty": {map[string]string{"PYTHONPATH": ""}, dir + "/py"},
	} {
		own := map[string]string{}
		a.observeBy(own, &message.Start{Attempt: 2, Observe: message.Observe{Torch: true, Snapshot: true}}, message.RankStart{Rank: 3, Env: c.env}, o)
		if own["PYTHONPATH"] != c.want || own["MUSTER_SOCKET"] != o.path || own["MUSTER_TORCH_SNAPSHOT"] != "/state/attempt-2/rank-3" {
			t.Errorf("%s: %v", name, own)
		}
	}
	own := map[string]string{}
	a.observeBy(own, &message.Start{}, message.RankStart{}, o)
	if len(own) != 1 || own["MUSTER_SOCKET"] != o.path {
		t.Errorf("without observe: %v", own)
	}
}
