package external

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Prober calls a plugin. The first call starts its process, which is kept for the next, and
// restarted after it has died. Calls may be concurrent; the plugin gets one after the other.
type Prober struct {
	program Program
	starter Starter
	ctx     context.Context // until Close
	cancel  context.CancelCauseFunc
	turn    chan struct{} // whoever put something in may use the session
	session *session      // nil: none was started
}

var (
	_ gpu.Prober       = (*Prober)(nil)
	_ gpu.EventWatcher = (*Prober)(nil)
	_ gpu.Sampler      = (*Prober)(nil)
)

// New returns a Prober of a plugin whose processes s starts. Nothing is started yet.
func New(p Program, s Starter) *Prober {
	n := &Prober{program: p.withDefaults(), starter: s, turn: make(chan struct{}, 1)}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	return n
}

// notTold is the reason for values that a plugin leaves out.
const notTold = "the plugin does not tell"

// Probe calls the plugin. ctx is how long the caller waits: the plugin itself has its limits
// regardless, and is killed when it exceeds one. The error is an *Error, or ctx's cause.
func (p *Prober) Probe(ctx context.Context) (*gpu.Inventory, error) {
	return call(ctx, p, "Probe", p.program.ProbeLimit, func(ctx context.Context, plugin pluginpb.PluginClient) (*gpu.Inventory, error) {
		reply, err := plugin.Probe(ctx, &pluginpb.ProbeRequest{})
		if err != nil {
			return nil, err
		}
		g, err := read(p.program, reply.GetGpus(), checkInventory)
		if err != nil {
			return nil, err
		}
		g.Source = cmp.Or(g.Source, p.program.Name)
		g.Explain(notTold)
		for i := range g.GPUs {
			g.GPUs[i].Explain(notTold)
		}
		return g, nil
	})
}

// Sample calls the plugin as Probe does. KindUnsupported: it has no samples.
func (p *Prober) Sample(ctx context.Context) (*gpu.Samples, error) {
	return call(ctx, p, "Sample", p.program.ProbeLimit, func(ctx context.Context, plugin pluginpb.PluginClient) (*gpu.Samples, error) {
		reply, err := plugin.Sample(ctx, &pluginpb.SampleRequest{})
		if err != nil {
			return nil, err
		}
		s, err := read(p.program, reply.GetSamples(), checkSamples)
		if err != nil {
			return nil, err
		}
		s.Source = cmp.Or(s.Source, p.program.Name)
		for i := range s.GPUs {
			s.GPUs[i].Explain(notTold)
		}
		return s, nil
	})
}

// WatchEvents asks the plugin what the driver has reported; see gpu.EventWatcher. The error is
// an *Error, of KindUnsupported where the plugin has no events, or ctx's cause. Events of a call
// that the caller has left are lost.
func (p *Prober) WatchEvents(ctx context.Context, wait time.Duration) (*gpu.Events, error) {
	limit := wait + p.program.WatchMargin
	return call(ctx, p, "Watch", limit, func(ctx context.Context, plugin pluginpb.PluginClient) (*gpu.Events, error) {
		reply, err := plugin.Watch(ctx, &pluginpb.WatchRequest{WaitMs: uint32(min(wait, maxWatch) / time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return read(p.program, reply.GetEvents(), checkEvents)
	})
}

// call calls the plugin when it is this caller's turn. The call goes on when the caller has
// left, so that a plugin that hangs is noticed.
func call[T any](ctx context.Context, p *Prober, name string, limit time.Duration,
	ask func(context.Context, pluginpb.PluginClient) (*T, error)) (*T, error) {
	select {
	case p.turn <- struct{}{}:
	case <-p.ctx.Done():
		return nil, p.program.closed()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type answer struct {
		found *T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		s, err := p.running()
		if a.err = err; err == nil {
			a.found, a.err = answerOf(s, name, limit, ask)
		}
		<-p.turn
		answers <- a
	}()
	select {
	case a := <-answers:
		return a.found, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// running returns a session that is ready, if need be a new one.
func (p *Prober) running() (*session, error) {
	if p.ctx.Err() != nil {
		return nil, p.program.closed()
	}
	if s := p.session; s != nil {
		if !s.ended && !within(s.process.done, 0) {
			return s, nil
		}
		s.end(false) // it died when nobody used it
		if !within(s.gone, 0) {
			return nil, p.program.fault(nil, "an earlier process of it (%s) was killed and is still there: the driver hangs; "+
				"no other is started", s.process.ID())
		}
	}
	p.session = newSession(p.ctx, p.program, p.starter)
	return p.session, p.session.start()
}

// answerOf makes one call.
func answerOf[T any](s *session, name string, limit time.Duration,
	ask func(context.Context, pluginpb.PluginClient) (*T, error)) (*T, error) {
	// Not a deadline: the plugin would be told it, and end the call a moment before this end
	// does, as if it refused.
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	defer time.AfterFunc(limit, func() { cancel(errHung) }).Stop()
	found, err := ask(ctx, s.plugin)
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return found, err
	case context.Cause(ctx) == errClosed:
		return nil, s.program.closed()
	case context.Cause(ctx) == errHung:
		s.end(false)
		return nil, s.fault(nil, "it did not answer within %s, and was killed%s", limit, s.leftover())
	default:
		return nil, s.callError(name, err)
	}
}

// Close ends the plugin and returns when nothing of it is left; its error says what is. A call
// that is under way returns with KindClosed.
func (p *Prober) Close() error {
	gently := true
	select {
	case p.turn <- struct{}{}:
	default:
		gently = false
		p.cancel(errClosed) // what is under way ends at once
		p.turn <- struct{}{}
	}
	defer func() { <-p.turn }()
	s := p.session
	if s != nil {
		s.end(gently)
	}
	p.cancel(errClosed)
	if s != nil && !within(s.gone, 0) {
		return s.fault(nil, "it was closed%s", s.leftover())
	}
	return nil
}
