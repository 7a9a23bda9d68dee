package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

// Top hands how ranks use memory and devices to show, about each second until the run is
// over, or once. A run that is over already is handed with its report and nothing else.
func (k *Known) Top(ctx context.Context, once bool, show func(event.State) error) error {
	l, err := k.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	if l.control == nil {
		if l.state.Report == nil {
			return failure(report.ExitUnreachable, "run %s is lost: %s", k.Page.ID, l.state.Message)
		}
		return show(l.state)
	}
	err = l.control.whileAlive(ctx, silenceIn(k.Page.Lease), func(ctx context.Context) error {
		if once {
			l.state.Samples = samplesOf(ctx, l.control)
			return show(l.state)
		}
		return k.follow(ctx, l, show)
	})
	if silent := (*silentError)(nil); errors.As(err, &silent) {
		return k.explained(err)
	}
	return err
}

// follow shows what the run's events and samples tell until it is over.
func (k *Known) follow(ctx context.Context, l *live, show func(event.State) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events, news := make(chan event.Event), make(chan *samples.Overview)
	ended := make(chan error, 2)
	go func() {
		ended <- l.control.watch(ctx, l.seen+1, func(e event.Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
	}()
	go func() {
		ended <- l.control.samples(ctx, true, func(o *samples.Overview) {
			select {
			case news <- o:
			case <-ctx.Done():
			}
		})
	}()
	for streams := 2; ; {
		select {
		case e := <-events:
			l.state.Take(e)
			if l.state.Report == nil {
				continue
			}
			k.note(l.state)
			return show(l.state)
		case o := <-news:
			l.state.Samples = o
			if err := show(l.state); err != nil {
				return err
			}
		case err := <-ended:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if streams--; errors.Is(err, io.EOF) && streams > 0 {
				continue // the other one is about to end too, with the run
			}
			return failure(report.ExitUnreachable, "%v", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// samplesOf is how ranks use memory now; nil where the coordinator does not tell.
func samplesOf(ctx context.Context, c *control) (found *samples.Overview) {
	_ = c.samples(ctx, false, func(o *samples.Overview) { found = o }) // one that ends just now tells none
	return found
}

// samples hands what is told to handle, once or until the run is over. It returns io.EOF
// at the end.
func (c *control) samples(ctx context.Context, follow bool, handle func(*samples.Overview)) error {
	stream, err := c.client.Samples(ctx, &pb.SamplesRequest{Follow: follow})
	for err == nil {
		var m *pb.SamplesReply
		if m, err = stream.Recv(); err != nil {
			break
		}
		var o samples.Overview
		if err = json.Unmarshal(m.Overview, &o); err == nil {
			handle(&o)
		}
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("follow the ranks' samples: %w", err)
}

// Series hands what hosts have kept of their ranks to show, period by period and host by
// host, until that fails. Hosts that have kept nothing are named in the error.
func (k *Known) Series(ctx context.Context, show func(host string, line samples.Line) error) error {
	var without []string
	for _, h := range k.Page.Hosts {
		var enough error
		lines, err := k.seriesOf(ctx, h, func(host string, line samples.Line) error {
			enough = show(host, line)
			return enough
		})
		switch {
		case enough != nil:
			return enough
		case err != nil:
			without = append(without, err.Error())
		case lines == 0:
			without = append(without, h.Name+" has no samples of run "+k.Page.ID)
		}
	}
	if len(without) > 0 {
		return failure(report.ExitUnreachable, "%s", strings.Join(without, "; "))
	}
	return nil
}

func (k *Known) seriesOf(ctx context.Context, h history.Host, show func(host string, line samples.Line) error) (lines int, err error) {
	host, err := k.connect(ctx, h)
	if err != nil {
		return 0, err
	}
	defer host.Close()
	return lines, ask(ctx, host, []string{"samples", "-run", k.Page.ID}, func(text []byte) error {
		var line samples.Line
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		lines++
		return show(h.Name, line)
	})
}
