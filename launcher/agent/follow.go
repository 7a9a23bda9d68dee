//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

const (
	pushSize = 32 << 10
	// maxPushed is how many outputs are pushed to a reader at once, more than ranks run on a host: tasks may end far
	// faster than somebody reads, and each push holds files open.
	maxPushed = 1024
)

// followers pushes the outputs of ranks to readers. The loop owns it.
type followers struct {
	loop   *loop.Loop
	state  string // folder
	ctx    context.Context
	cancel context.CancelFunc
	pushes map[string]chan struct{} // by subscription: as many values as outputs that are pushed to it
	turns  map[turn]chan struct{}
}

// turn is that of an attempt's output with one reader: a rank that is started again while its reader is slow writes
// before all of the previous attempt was pushed.
type turn struct {
	subscription string
	rank         int
}

func newFollowers(l *loop.Loop, state string) *followers {
	f := &followers{loop: l, state: state, pushes: map[string]chan struct{}{}, turns: map[turn]chan struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// follow pushes a rank's output. writer is nil for a log that has ended.
func (f *followers) follow(c *message.Follow, rank int, writer *ranklog.Writer) {
	begin, end := f.takeTurn(turn{c.Subscription, rank})
	pushes := f.pushes[c.Subscription]
	if pushes == nil {
		pushes = make(chan struct{}, maxPushed)
		f.pushes[c.Subscription] = pushes
	}
	go func() {
		defer end()
		begin()
		select {
		case pushes <- struct{}{}:
		case <-f.ctx.Done():
			return
		}
		defer func() { <-pushes }()
		_ = f.push(c, rank, writer) // a reader that wants it has left, or asks again
	}()
}

// takeTurn returns what waits until earlier outputs have been pushed, and what lets the next one begin.
func (f *followers) takeTurn(t turn) (begin, end func()) {
	before, done := f.turns[t], make(chan struct{})
	f.turns[t] = done
	begin = func() {
		if before == nil {
			return
		}
		select {
		case <-before:
		case <-f.ctx.Done():
		}
	}
	end = func() {
		close(done)
		f.loop.Post(func() {
			if f.turns[t] == done {
				delete(f.turns, t)
			}
		})
	}
	return begin, end
}

// push pushes a rank's output from where the reader wants it to its end. It reads the file at the pace of the reader;
// the worker does not notice.
func (f *followers) push(c *message.Follow, rank int, writer *ranklog.Writer) error {
	pusher, err := f.loop.Member().Push(f.ctx, c.Subscription)
	if err != nil {
		return err
	}
	source := fmt.Sprintf("%d/%d", c.Attempt, rank) // by which the coordinator tells outputs apart
	path, from := ranklog.Path(f.state, c.Attempt, rank), c.Ranks[rank]
	if from == message.FromTail {
		from = ranklog.TailStart(path)
	}
	reader, err := ranklog.Open(path, from)
	if err != nil { // there is no output, and whoever waits for it must know
		return errors.Join(err, pusher.Send(&link.Chunk{Source: source, End: true}), pusher.Close())
	}
	defer reader.Close()
	for {
		var changed <-chan struct{}
		ended := true
		if writer != nil {
			changed, ended = writer.Changed()
		}
		segment, err := reader.Next(pushSize, ended)
		switch {
		case err == nil:
			err = pusher.Send(&link.Chunk{
				Source: source, Lane: uint32(segment.Lane), Offset: uint64(segment.Offset), Data: segment.Data,
			})
			if err != nil {
				return err
			}
		case !errors.Is(err, io.EOF):
			return err
		case ended:
			return errors.Join(pusher.Send(&link.Chunk{Source: source, End: true}), pusher.Close())
		default:
			select {
			case <-changed:
			case <-f.ctx.Done():
				return f.ctx.Err()
			}
		}
	}
}
