package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	pushSize = 32 << 10
	// mostPushed is how many outputs are pushed to a reader at once, more than ranks run on a
	// host: tasks may end far faster than somebody reads, and each push holds files open.
	mostPushed = 1024
)

func (a *agent) pushesTo(subscription string) chan struct{} {
	if a.pushes[subscription] == nil {
		a.pushes[subscription] = make(chan struct{}, mostPushed)
	}
	return a.pushes[subscription]
}

// followInTurn pushes an output once there is room among those that are pushed to its reader.
func (a *agent) followInTurn(pushes chan struct{}, o *message.Follow, rank int, writer *ranklog.Writer) {
	select {
	case pushes <- struct{}{}:
	case <-a.follows.Done():
		return
	}
	defer func() { <-pushes }()
	if err := a.follow(a.follows, o, rank, writer); err != nil {
		return // whoever wanted it has left, or asks again
	}
}

// turn is that of an attempt's output with one reader: a rank that is started again while
// its reader is slow writes before all of the attempt before it was pushed.
type turn struct {
	subscription string
	rank         int
}

// takeTurn returns what waits until the outputs that are pushed before have ended, and what
// lets the next one begin.
func (a *agent) takeTurn(t turn) (begin, end func()) {
	before, done := a.turns[t], make(chan struct{})
	a.turns[t] = done
	begin = func() {
		if before == nil {
			return
		}
		select {
		case <-before:
		case <-a.follows.Done():
		}
	}
	end = func() {
		close(done)
		a.loop.Post(func() {
			if a.turns[t] == done {
				delete(a.turns, t)
			}
		})
	}
	return begin, end
}

// follow pushes a rank's output from the start of its file to its end. It reads the
// file at the pace of who reads the pushes; the worker does not notice. writer is nil
// for a log that has ended.
func (a *agent) follow(ctx context.Context, order *message.Follow, rank int, writer *ranklog.Writer) error {
	pusher, err := a.loop.Member().Push(ctx, order.Subscription)
	if err != nil {
		return err
	}
	path, from := ranklog.Path(a.place.State, order.Attempt, rank), order.Ranks[rank]
	if from == message.FromTail {
		from = ranklog.TailStart(path)
	}
	reader, err := ranklog.Open(path, from)
	if err != nil { // there is no output, and whoever waits for it has to know
		return errors.Join(err, pusher.Send(&link.Chunk{Source: sourceName(order.Attempt, rank), End: true}), pusher.Close())
	}
	defer reader.Close()
	source := sourceName(order.Attempt, rank)
	for {
		changed, ended := state(writer)
		segment, err := reader.Next(pushSize, ended)
		switch {
		case err == nil:
			chunk := &link.Chunk{Source: source, Lane: uint32(segment.Lane), Offset: uint64(segment.Offset), Data: segment.Data}
			if err := pusher.Send(chunk); err != nil {
				return err
			}
		case !errors.Is(err, io.EOF):
			return err
		case ended:
			if err := pusher.Send(&link.Chunk{Source: source, End: true}); err != nil {
				return err
			}
			return pusher.Close()
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// sourceName is how the coordinator tells outputs apart.
func sourceName(attempt, rank int) string { return fmt.Sprintf("%d/%d", attempt, rank) }

func state(writer *ranklog.Writer) (changed <-chan struct{}, ended bool) {
	if writer == nil {
		return nil, true
	}
	return writer.Changed()
}
