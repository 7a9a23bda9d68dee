package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/session"
)

// Top hands how ranks use memory and devices to show, about each second until the run is over,
// or once. A run that is over already is handed with its report and nothing else.
func (k *Known) Top(ctx context.Context, once bool, show func(event.State) error) error {
	l, err := k.Open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if l.Control == nil {
		if l.State.Report == nil {
			return session.LostRun(k.Run, l.State)
		}
		return show(l.State)
	}
	err = l.Control.WhileAlive(ctx, session.MaxSilence(k.Run.Lease), func(ctx context.Context) error {
		if once {
			l.State.Samples = samplesOf(ctx, l.Control)
			return show(l.State)
		}
		return k.followSamples(ctx, l, show)
	})
	if silent := (*session.SilentError)(nil); errors.As(err, &silent) {
		return k.explain(err)
	}
	return err
}

// followSamples shows the state that events and samples make, until the run is over.
func (k *Known) followSamples(ctx context.Context, l *session.Live, show func(event.State) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events, overviews := make(chan event.Event), make(chan *samples.Overview)
	ended := make(chan error, 2)
	go func() {
		ended <- l.Control.Watch(ctx, l.Events+1, func(e event.Event) { pass(ctx, events, e) })
	}()
	go func() {
		ended <- l.Control.Samples(ctx, true, func(o *samples.Overview) { pass(ctx, overviews, o) })
	}()
	for streams := 2; ; {
		select {
		case e := <-events:
			l.State.Take(e)
			if l.State.Report == nil {
				continue
			}
			k.remember(l.State)
			return show(l.State)
		case o := <-overviews:
			l.State.Samples = o
			if err := show(l.State); err != nil {
				return err
			}
		case err := <-ended:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if streams--; errors.Is(err, io.EOF) && streams > 0 {
				continue // the other one is about to end too, with the run
			}
			return report.Errorf(report.ExitUnreachable, "%v", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func pass[T any](ctx context.Context, to chan<- T, value T) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}

// Series hands what hosts have kept of their ranks to show, period by period and host by host,
// until that fails. Hosts that have kept nothing are named in the error.
func (k *Known) Series(ctx context.Context, show func(host string, line samples.Line) error) error {
	var without []string
	for _, h := range k.Run.Hosts {
		var enough error
		lines := 0
		err := askOnce(ctx, k.Connect, targetOfRun(h), []string{"samples", "-run", k.Run.ID}, func(text []byte) error {
			var line samples.Line
			if err := json.Unmarshal(text, &line); err != nil {
				return err
			}
			lines++
			enough = show(h.Name, line)
			return enough
		})
		switch {
		case enough != nil:
			return enough
		case err != nil:
			without = append(without, err.Error())
		case lines == 0:
			without = append(without, h.Name+" has no samples of run "+k.Run.ID)
		}
	}
	if len(without) > 0 {
		return report.Errorf(report.ExitUnreachable, "%s", strings.Join(without, "; "))
	}
	return nil
}
