package agent

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/observe/hook"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// socketVariable tells a worker where it can tell of itself.
const socketVariable = "MUSTER_SOCKET"

// Bounds of what is read of a rank. What is sent beyond that waits in the socket, which
// holds little, and then is the sender's to throw away.
const (
	burst     = 200 // datagrams
	burstTime = 100 * time.Millisecond
	lastBurst = 2000 // what may wait when a rank has ended
)

// observer listens to what the processes of a rank tell of themselves, until close.
type observer struct {
	path   string
	conn   *net.UnixConn
	raw    syscall.RawConn
	began  link.Instant
	ending chan struct{}
	ended  chan struct{} // closed by the goroutine that listens; nil before begin

	mu     sync.Mutex
	record *observe.Record
	buffer []byte
	rights []byte
	told   uint64 // changes that the coordinator knows; the agent's loop alone looks at it
}

// openObserver makes a rank's socket. A worker runs without it too.
func (a *agent) openObserver(order *message.Start, rank int) *observer {
	o, err := newObserver(filepath.Join(a.place.Sockets, rundir.ObserveSockets), order.Attempt, rank)
	if err != nil {
		a.loop.Report(message.Update{Warning: &message.Warning{Rank: rank, Message: fmt.Sprintf("the worker cannot tell of its progress (%s): %v", socketVariable, err)}})
		return nil
	}
	return o
}

func newObserver(dir string, attempt, rank int) (*observer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	o := &observer{
		path: filepath.Join(dir, fmt.Sprintf("%d-%d", attempt, rank)), ending: make(chan struct{}),
		buffer: make([]byte, observe.MaxDatagram+1), rights: make([]byte, unix.CmsgSpace(unix.SizeofUcred)),
	}
	var err error
	if o.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: o.path, Net: "unixgram"}); err != nil {
		return nil, err
	}
	if o.raw, err = o.conn.SyscallConn(); err == nil {
		if controlErr := o.raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		}); err == nil {
			err = controlErr
		}
	}
	if err != nil {
		o.conn.Close()
		return nil, err
	}
	return o, nil
}

// begin begins to listen to a worker that runs.
func (o *observer) begin(w *worker, torch bool) {
	if o == nil {
		return
	}
	o.began, o.record, o.ended = w.began, observe.NewRecord(w.child.ID.PID, torch), make(chan struct{})
	go o.listen()
}

// listen reads until close. When it has taken in as much as it may within a while, it rests
// for what is left of that.
func (o *observer) listen() {
	defer close(o.ended)
	began, taken := time.Now(), 0
	for {
		n := 0
		if err := o.raw.Read(func(fd uintptr) bool {
			n = o.drain(int(fd), burst-taken)
			return n > 0
		}); err != nil {
			return
		}
		if passed := time.Since(began); passed >= burstTime {
			began, taken = time.Now(), 0
		}
		if taken += n; taken < burst {
			continue
		}
		select {
		case <-time.After(burstTime - time.Since(began)):
		case <-o.ending:
			return
		}
	}
}

// drain takes in what waits, and returns how many datagrams that were.
func (o *observer) drain(fd, most int) (taken int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := link.Now().Sub(o.began).Seconds()
	for taken < most {
		n, rights, flags, _, err := unix.Recvmsg(fd, o.buffer, o.rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return taken
		case flags&unix.MSG_TRUNC != 0 || n > observe.MaxDatagram:
			o.record.Refuse(fmt.Sprintf("a datagram has at most %d bytes", observe.MaxDatagram))
		default:
			o.record.Take(o.buffer[:n], senderOf(o.rights[:rights]), at)
		}
		taken++
	}
	return taken
}

// senderOf is the process that has sent a datagram, as the kernel tells; 0 where its number
// means nothing here.
func senderOf(rights []byte) int {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return 0
	}
	for i := range messages {
		if credentials, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return int(credentials.Pid)
		}
	}
	return 0
}

// close takes in what is left and removes the socket. What was told stays.
func (o *observer) close() {
	if o == nil {
		return
	}
	if o.ended != nil {
		close(o.ending)
		_ = o.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine; of an open socket it cannot fail
		<-o.ended
		_ = o.raw.Control(func(fd uintptr) { o.drain(int(fd), lastBurst) })
	}
	o.conn.Close()
	os.Remove(o.path)
}

// latest is the newest that a rank has told; nil where it could not.
func (o *observer) latest() *observe.Latest {
	if o == nil || o.record == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.Latest()
}

// news is the newest, nil where the coordinator knows it already.
func (o *observer) news() *observe.Latest {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.record.Changes() == o.told {
		return nil
	}
	o.told = o.record.Changes()
	return o.record.Latest()
}

// observed is what the agent's loop keeps of what ranks tell.
type observed struct {
	told       link.Instant // when the coordinator was told last
	unseenSaid bool         // that ranks of the attempt run without the hook
	hook       sync.Once    // it is written once: Python may be reading it
	hooked     bool         // it was written
}

func (o *observed) newAttempt() { o.told, o.unseenSaid = 0, false }

// observePace is how often the coordinator is told what is new.
const observePace = time.Second

// tellObserved tells the coordinator what ranks have told since.
func (a *agent) tellObserved(now link.Instant) {
	if now.Sub(a.observed.told) < observePace || len(a.workers) == 0 {
		return
	}
	a.observed.told = now
	news := message.Observed{Ranks: map[int]message.RankObserved{}}
	for rank, w := range a.workers {
		if latest := w.observer.news(); latest != nil {
			news.Ranks[rank] = message.RankObserved{Attempt: w.attempt, Latest: latest}
		}
	}
	if len(news.Ranks) > 0 {
		a.loop.Report(message.Update{Observed: &news})
	}
	a.warnOfUnseen(now)
}

// unseenAfter is by when a worker has started its Python.
const unseenAfter = 30 * time.Second

// warnOfUnseen tells once of ranks that were to tell of torch and run without the hook.
func (a *agent) warnOfUnseen(now link.Instant) {
	if a.observed.unseenSaid {
		return
	}
	var unseen []string
	for _, rank := range slices.Sorted(maps.Keys(a.workers)) {
		if w := a.workers[rank]; now.Sub(w.began) > unseenAfter && !w.observer.seen() {
			unseen = append(unseen, fmt.Sprint(rank))
		}
	}
	if len(unseen) == 0 {
		return
	}
	a.observed.unseenSaid = true
	a.loop.Report(message.Update{Warning: &message.Warning{Rank: -1, Message: fmt.Sprintf(
		"observe { torch = true } shows nothing of rank %s: no Python with muster's hook has started there; python -S, -I and -E leave it out, and so does a PYTHONPATH that the command sets anew",
		strings.Join(unseen, ", "))}})
}

// seen is whether the hook runs in a rank, or none is waited for.
func (o *observer) seen() bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.Seen()
}

// observeBy puts into a worker's own variables by what it tells of itself.
func (a *agent) observeBy(own map[string]string, order *message.Start, r message.RankStart, o *observer) {
	if o == nil {
		return
	}
	own[socketVariable] = o.path
	if !order.Observe.Torch || !a.writeHook() {
		return
	}
	before := ""
	for _, layer := range []map[string]string{r.Defaults, a.base, r.Env} {
		if path, set := layer["PYTHONPATH"]; set {
			before = path
		}
	}
	own["PYTHONPATH"] = hook.PythonPath(filepath.Join(a.place.Sockets, rundir.Hook), before)
	if order.Observe.Snapshot {
		own[hook.SnapshotVariable] = filepath.Join(a.place.State, fmt.Sprintf("attempt-%d", order.Attempt), fmt.Sprintf("rank-%d", r.Rank))
	}
}

// writeHook puts the hook where workers find it; a run goes on without it.
func (a *agent) writeHook() bool {
	a.observed.hook.Do(func() {
		err := hook.Write(filepath.Join(a.place.Sockets, rundir.Hook))
		if a.observed.hooked = err == nil; err != nil {
			a.loop.Warn(loop.Host, "observe { torch = true } has no effect: %v", err)
		}
	})
	return a.observed.hooked
}
