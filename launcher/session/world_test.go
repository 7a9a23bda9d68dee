package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// world is a run on hosts that are not there, with the launcher's session. All of it lives in
// a bubble of testing/synctest.
type world struct {
	t        *testing.T
	agents   []*agent
	link     *link // the connection in use
	next     *link // the one after it, or nil
	requests chan Request
	screen   *screen
	reach    *reach
	spec     Spec
	fleet    *fleet.Fleet
	ended    chan struct{}
	end      End
	err      error
}

var errBroken = errors.New("connection reset")

// newWorld has a run with one rank on each host.
func newWorld(t *testing.T, hosts ...string) *world {
	w := &world{t: t, requests: make(chan Request), screen: &screen{}, link: newLink(), ended: make(chan struct{})}
	w.reach = &reach{screen: w.screen, open: func() (*Live, error) { return nil, errBroken }}
	run := history.Run{ID: "job-1"}
	var invited []fleet.Invitation
	for i, name := range hosts {
		run.Hosts = append(run.Hosts, history.Host{Name: name, FirstRank: i, Ranks: 1})
		a := &agent{name: name, over: make(chan struct{})}
		w.agents = append(w.agents, a)
		in := fleet.Invitation{Name: name, Target: remote.Target{Name: name}}
		if i == 0 {
			in.Launch.Also = []string{"muster"}
		}
		invited = append(invited, in)
	}
	connect := func(_ context.Context, target remote.Target) (remote.Host, error) {
		return w.agents[slices.IndexFunc(w.agents, func(a *agent) bool { return a.name == target.Name })], nil
	}
	t.Cleanup(func() {
		for _, a := range w.agents {
			a.end(nil)
		}
	})
	var err error
	if w.fleet, err = fleet.Assemble(t.Context(), connect, invited, func(int) {}); err != nil {
		t.Fatal(err)
	}
	w.spec = Spec{Run: run, Reach: w.reach, Observer: w.screen, Requests: w.requests, Patience: fleet.EndWait}
	return w
}

// launch lets the session begin.
func (w *world) launch() {
	go func() {
		defer close(w.ended)
		w.end, w.err = Launch(w.t.Context(), w.spec, w.fleet, w.link.client(), &plan.Plan{})
	}()
}

// begin launches the session and lets all hosts join and all ranks start.
func (w *world) begin() {
	w.launch()
	for _, a := range w.agents {
		w.link.happens(event.Event{Kind: event.Linked, Host: a.name})
	}
	w.link.happens(event.Event{Kind: event.Committed})
	for i, a := range w.agents {
		w.link.happens(event.Event{Kind: event.Started, Rank: &i, Host: a.name})
	}
}

// lose breaks the connection to the head host, and with it all that is carried there.
func (w *world) lose() {
	close(w.link.broken)
	w.agents[0].end(&remote.LostError{Err: errBroken})
	if w.next != nil {
		w.link = w.next
	}
}

// returns makes the run findable over another connection.
func (w *world) returns() *link {
	next := newLink()
	next.seq = w.link.seq
	if w.next = next; w.link.isBroken() {
		w.link = next
	}
	w.reach.finds(func() (*Live, error) {
		return &Live{Host: &agent{name: "again", over: make(chan struct{})}, Control: next.client()}, nil
	})
	return next
}

// over ends the run, its output and its keepers.
func (w *world) over(r *report.Report) {
	w.link.happens(event.Event{Kind: event.Over, Report: r})
	close(w.link.events)
	close(w.link.output)
	for _, a := range w.agents {
		a.end(nil)
	}
}

// fails checks that the session has ended with an error.
func (w *world) fails(exit int, texts ...string) {
	w.t.Helper()
	<-w.ended
	var failed *report.Error
	if !errors.As(w.err, &failed) || failed.Exit != exit {
		w.t.Fatalf("ended with %+v, %v; want exit status %d", w.end, w.err, exit)
	}
	for _, text := range texts {
		if !strings.Contains(failed.Message, text) {
			w.t.Errorf("%q lacks %q", failed.Message, text)
		}
	}
}

// link is a connection to the coordinator.
type link struct {
	pb.ControlClient
	events chan *pb.WatchEvent // closed: the run is over
	output chan *pb.LogChunk
	broken chan struct{}
	mute   atomic.Bool
	seq    uint64

	mu       sync.Mutex
	stops    []*pb.StopRequest
	watched  uint64
	logs     *pb.LogsRequest
	signals  []string
	isClosed bool
}

func newLink() *link {
	return &link{events: make(chan *pb.WatchEvent, 16), output: make(chan *pb.LogChunk, 16), broken: make(chan struct{})}
}

func (l *link) client() *Client { return &Client{conn: l, client: l} }

func (l *link) isBroken() bool {
	select {
	case <-l.broken:
		return true
	default:
		return false
	}
}

func (l *link) Close() error {
	l.isClosed = true
	return nil
}

func (l *link) happens(e event.Event) {
	l.seq++
	e.Seq = l.seq
	l.events <- &pb.WatchEvent{Event: e.Encode()}
}

func (l *link) writes(rank int32, offset uint64, text string) {
	l.output <- &pb.LogChunk{Rank: rank, Offset: offset, Data: []byte(text)}
}

func (l *link) Watch(ctx context.Context, in *pb.WatchRequest, _ ...grpc.CallOption) (pb.Control_WatchClient, error) {
	l.watched = in.From
	return &stream[pb.WatchEvent]{ctx: ctx, messages: l.events, broken: l.broken}, nil
}

func (l *link) Logs(ctx context.Context, in *pb.LogsRequest, _ ...grpc.CallOption) (pb.Control_LogsClient, error) {
	l.logs = in
	return &stream[pb.LogChunk]{ctx: ctx, messages: l.output, broken: l.broken}, nil
}

func (l *link) Beat(ctx context.Context, _ *pb.BeatRequest, _ ...grpc.CallOption) (*pb.BeatReply, error) {
	if l.mute.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.BeatReply{}, nil
}

func (l *link) Stop(_ context.Context, in *pb.StopRequest, _ ...grpc.CallOption) (*pb.StopReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stops = append(l.stops, in)
	return &pb.StopReply{}, nil
}

func (l *link) Signal(_ context.Context, in *pb.SignalRequest, _ ...grpc.CallOption) (*pb.SignalReply, error) {
	l.signals = append(l.signals, in.Name)
	return &pb.SignalReply{}, nil
}

func (l *link) HostEmpty(context.Context, *pb.HostEmptyRequest, ...grpc.CallOption) (*pb.HostEmptyReply, error) {
	return &pb.HostEmptyReply{}, nil
}

type stream[T any] struct {
	grpc.ClientStream
	ctx      context.Context
	messages chan *T
	broken   chan struct{}
}

func (s *stream[T]) Header() (metadata.MD, error) { return nil, nil }

func (s *stream[T]) Recv() (*T, error) {
	select {
	case m, open := <-s.messages:
		if !open {
			return nil, io.EOF
		}
		return m, nil
	case <-s.broken:
		return nil, errBroken
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// agent is a host with the keeper and the agent on it.
type agent struct {
	remote.Host
	name     string
	says     *io.PipeWriter
	over     chan struct{} // closed with the keeper's end, which is err
	err      error
	isClosed bool
}

func (a *agent) Close() error {
	a.isClosed = true
	return nil
}

func (a *agent) end(err error) {
	select {
	case <-a.over:
	default:
		a.err = err
		close(a.over)
		a.says.Close()
	}
}

func (a *agent) say(m message.FromAgent) { _, _ = a.says.Write(append(message.Encode(m), '\n')) }

func (a *agent) Start(_ context.Context, launch remote.Launch) (*remote.Process, error) {
	out, says := io.Pipe()
	in, stdin := io.Pipe()
	a.says = says
	go func() { _, _ = io.Copy(io.Discard, in) }()
	go func() {
		a.say(message.FromAgent{Hello: &message.Hello{}})
		if len(launch.Also) > 0 {
			a.say(message.FromAgent{Coordinator: &message.Ready{}})
		}
	}()
	return &remote.Process{
		Stdin: stdin, Stdout: out, Stderr: func() string { return "" },
		Wait: func() error {
			<-a.over
			in.Close()
			return a.err
		},
	}, nil
}

// reach finds the run again as a test has it.
type reach struct {
	screen *screen

	mu     sync.Mutex
	opens  int
	open   func() (*Live, error)
	state  event.State
	pieces map[string][]string
}

// finds changes what is found while a session may be looking.
func (r *reach) finds(open func() (*Live, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = open
}

func (r *reach) Open(context.Context) (*Live, error) {
	r.mu.Lock()
	r.opens++
	open := r.open
	r.mu.Unlock()
	return open()
}

func (r *reach) State(context.Context) (event.State, error) { return r.state, nil }

func (r *reach) ReadOutput(_ context.Context, pieces map[history.Host][]string) fleet.HostErrors {
	r.pieces = map[string][]string{}
	for host, of := range pieces {
		r.pieces[host.Name] = of
	}
	return nil
}

// screen is what the user sees.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.text, format, args...)
}

func (s *screen) shows(t *testing.T, texts ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range texts {
		if n := strings.Count(s.text.String(), text); n != 1 {
			t.Errorf("%q is shown %d times:\n%s", text, n, s.text.String())
		}
	}
}

func (s *screen) Phase(text string)                    { s.add("phase: %s\n", text) }
func (s *screen) Watching(run string)                  { s.add("watching: %s\n", run) }
func (s *screen) Event(e event.Event)                  { s.add("%d %s\n", e.Seq, e.Kind) }
func (s *screen) State(_ history.Run, now event.State) { s.add("state: %s\n", now.Name) }
func (s *screen) Say(text string)                      { s.add("%s\n", text) }
func (s *screen) Output(host string, rank int, _ bool, data []byte, _ bool) {
	s.add("%s:%d| %s\n", host, rank, data)
}

func (s *screen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(s.text.String(), "\n")
}
