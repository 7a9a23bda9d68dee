package external

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Prober asks a plugin. Its process is started by the first Probe, kept for the next, and
// started anew after it has died. Probes may be made at the same time; the plugin sees
// one after the other.
type Prober struct {
	program Program
	starter Starter

	mu     sync.Mutex
	last   *session
	closed bool
}

var (
	_ gpu.Prober       = (*Prober)(nil)
	_ gpu.EventWatcher = (*Prober)(nil)
	_ gpu.Sampler      = (*Prober)(nil)
)

// New returns a Prober of a plugin whose processes s starts. Nothing is started yet.
func New(p Program, s Starter) *Prober {
	return &Prober{program: p.withDefaults(), starter: s}
}

// Probe asks the plugin. ctx is how long the caller waits: the plugin itself has its
// limits whoever waits, and is killed when it passes one. What is wrong is an *Error, or
// ctx's cause.
func (p *Prober) Probe(ctx context.Context) (*gpu.Inventory, error) {
	return answerTo(ctx, p, question[*gpu.Inventory]{"Probe", p.program.ProbeLimit, func(ctx context.Context, plugin pluginpb.PluginClient) (*gpu.Inventory, error) {
		reply, err := plugin.Probe(ctx, &pluginpb.ProbeRequest{})
		if err != nil {
			return nil, err
		}
		return p.program.read(reply.GetGpus())
	}})
}

// watchMargin is how much longer than it was to wait a plugin may take for an answer.
const watchMargin = 10 * time.Second

// WatchEvents asks the plugin what the driver has reported; see gpu.EventWatcher. What
// is wrong is an *Error, of KindUnsupported where the plugin cannot tell, or ctx's cause.
// Somebody who has left without an answer has lost what it would have told.
func (p *Prober) WatchEvents(ctx context.Context, wait time.Duration) (*gpu.Events, error) {
	return answerTo(ctx, p, question[*gpu.Events]{"Watch", wait + watchMargin, func(ctx context.Context, plugin pluginpb.PluginClient) (*gpu.Events, error) {
		reply, err := plugin.Watch(ctx, &pluginpb.WatchRequest{WaitMs: uint32(min(wait, longestWatch) / time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return p.program.readEvents(reply.GetEvents())
	}})
}

// question is one call of a plugin.
type question[T any] struct {
	call  string
	limit time.Duration // for the answer
	ask   func(ctx context.Context, plugin pluginpb.PluginClient) (T, error)
}

// answerTo has a plugin answer a question, by a new process where the last one died before.
func answerTo[T any](ctx context.Context, p *Prober, q question[T]) (none T, err error) {
	for {
		s, err := p.session(ctx)
		if err != nil {
			return none, err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
		if s.err != nil {
			return none, s.err
		}
		found, err := inTurn(ctx, s, q)
		if err != errAgain {
			return found, err
		}
	}
}

// session returns the one there is, or a new one.
func (p *Prober) session(ctx context.Context) (*session, error) {
	for {
		s, err := p.current()
		if err != nil {
			return nil, err
		}
		select {
		case <-s.dying:
		default:
			return s, nil
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !s.isGone(0) {
			return nil, s.program.fault(KindStuck, nil, "an earlier process of it (%s) was killed and is still there: the driver hangs; no other is started", s.child.ID())
		}
	}
}

func (p *Prober) current() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, p.program.closed()
	}
	if p.last == nil || p.last.isGone(0) {
		p.last = newSession(p.program, p.starter)
	}
	return p.last, nil
}

// Close ends the plugin and returns when nothing of it is left. Its error says what is. A
// Probe that is under way returns with KindClosed.
func (p *Prober) Close() error {
	p.mu.Lock()
	s := p.last
	p.closed = true
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	if s.noMoreCalls() || !s.isReady() {
		s.cancel(errClosed) // what is under way ends at once
	}
	s.end(true)
	if !s.isGone(0) {
		return s.program.fault(KindStuck, nil, "it was closed%s", s.leftover())
	}
	<-s.ready
	s.calls.Wait()
	return nil
}

// noMoreCalls says whether there is one now.
func (s *session) noMoreCalls() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.active > 0
}

// answer is what came of one call.
type answer[T any] struct {
	found T
	err   error
}

// errAgain says that the session ended before it was this caller's turn.
var errAgain = errors.New("again")

// inTurn calls the plugin when it is this caller's turn. The call goes on when the caller
// has left, so that a plugin that hangs is noticed.
func inTurn[T any](ctx context.Context, s *session, q question[T]) (none T, err error) {
	if !s.begin() {
		return none, s.program.closed()
	}
	select {
	case s.turn <- struct{}{}:
	case <-s.dying:
		s.finish()
		return none, errAgain
	case <-ctx.Done():
		s.finish()
		return none, context.Cause(ctx)
	}
	answers := make(chan answer[T], 1)
	go func() {
		defer s.finish()
		found, err := call(s, q)
		<-s.turn
		answers <- answer[T]{found, err}
	}()
	select {
	case a := <-answers:
		return a.found, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.active++
		s.calls.Add(1)
	}
	return !s.closed
}

func (s *session) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.calls.Done()
}

func call[T any](s *session, q question[T]) (none T, err error) {
	select {
	case <-s.dying: // since before it was asked
		return none, errAgain
	default:
	}
	// Not a deadline: the plugin would be told it, and end the call a moment before this end
	// does, as if it refused.
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	defer time.AfterFunc(q.limit, func() { cancel(errHung) }).Stop()
	found, err := q.ask(ctx, s.plugin)
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return found, err
	case context.Cause(s.ctx) == errClosed:
		return none, s.program.closed()
	case context.Cause(ctx) == errHung:
		s.end(false)
		return none, s.fault(KindHung, nil, "it did not answer within %s, and was killed%s", q.limit, s.leftover())
	default:
		return none, s.failed(q.call, err)
	}
}

// failed says what an error of a call means. Errors of the connection may come before the
// end of the process is seen.
func (s *session) failed(call string, err error) error {
	told := status.Convert(err)
	switch told.Code() {
	case codes.Unavailable, codes.Canceled, codes.Internal:
		if s.child.endsWithin(settle) {
			return s.died()
		}
		if told.Code() != codes.Unavailable {
			break
		}
		s.end(false)
		return s.fault(KindFailed, err, "the connection to it failed, and it was killed%s: %s", s.leftover(), cut(told.Message(), longestQuote))
	case codes.ResourceExhausted:
		return s.program.fault(KindAnswer, err, "its answer is larger than %d MiB", maxReply>>20)
	case codes.Unimplemented:
		if call != "Probe" {
			return s.program.fault(KindUnsupported, err, "it does not implement %s", call)
		}
		return s.program.fault(KindNotPlugin, err, "it does not implement Probe")
	}
	return s.program.fault(KindRefused, err, "it says: %s", cut(told.Message(), longestRefusal))
}

// died says how the process ended while somebody waited for it.
func (s *session) died() error {
	s.end(false)
	switch {
	case context.Cause(s.ctx) == errClosed:
		return s.program.closed()
	case !s.isGone(0):
		return s.fault(KindStuck, nil, "it was killed%s", s.leftover())
	default:
		return s.fault(KindCrashed, nil, "it died while it was asked (%s)", s.child.ending())
	}
}
