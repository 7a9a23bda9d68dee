package session

import (
	"context"
	"fmt"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
)

// output is how far the output of ranks was shown. One goroutine at a time uses it.
type output struct {
	Spec
	ranks   []int // whose output is shown
	tail    bool  // from the last lines on
	shown   map[int]position
	through map[int]int // the newest attempt of each rank of which all was shown
}

// position is where in a rank's output the next byte is.
type position struct {
	attempt int
	next    uint64
}

func newOutput(spec Spec, tail bool) *output {
	return &output{Spec: spec, ranks: spec.Show.In(spec.Run.WorldSize()), tail: tail,
		shown: map[int]position{}, through: map[int]int{}}
}

// request asks for the output from where it was shown, and over a connection that is not the
// first for all that ranks have written meanwhile.
func (o *output) request(isFirst bool) *pb.LogsRequest {
	request := &pb.LogsRequest{
		Tail: o.tail && len(o.shown) == 0, From: map[int32]uint64{}, Attempt: map[int32]int32{},
	}
	for _, rank := range o.ranks {
		request.Ranks = append(request.Ranks, int32(rank))
		if at, any := o.shown[rank]; any || !isFirst && !o.tail {
			request.From[int32(rank)], request.Attempt[int32(rank)] = at.next, int32(at.attempt)
		}
	}
	return request
}

// show shows a piece.
func (o *output) show(c *pb.LogChunk) {
	o.Observer.Output(HostOf(o.Run, c), int(c.Rank), c.Lane == 1, c.Data, c.End)
	if c.End {
		o.through[int(c.Rank)] = int(c.Attempt)
	} else {
		o.shown[int(c.Rank)] = position{int(c.Attempt), c.Offset + uint64(len(c.Data))}
	}
}

// HostOf is the name of the host that a piece of output is from.
func HostOf(run history.Run, c *pb.LogChunk) string {
	if c.Host != "" {
		return c.Host
	}
	host, _ := run.HostOf(int(c.Rank))
	return host.Name
}

// Place is the host that a rank is on; false: a task that none has begun.
func Place(run history.Run, s event.State, rank int) (host history.Host, begun bool) {
	if host, settled := run.HostOf(rank); settled {
		return host, true
	}
	of, started := s.Ranks[rank]
	if started {
		host, _ = run.Named(of.Host)
	}
	return host, started
}

// Piece names what a rank has written in an attempt from a byte of its file on, for the
// agent's command that prints it.
func Piece(attempt, rank int, from int64) string {
	return fmt.Sprintf("%d/%d@%d", attempt, rank, from)
}

// missed are the pieces that were not shown to their end, by host.
func (o *output) missed(s event.State) map[history.Host][]string {
	found := map[history.Host][]string{}
	for _, rank := range o.ranks {
		of, started := s.Ranks[rank]
		attempt, ended := o.through[rank]
		if !started || ended && attempt >= of.Attempt {
			continue
		}
		host, _ := Place(o.Run, s, rank)
		at, any := o.shown[rank]
		if !any && o.tail { // the user has come to a run that goes on
			found[host] = append(found[host], Piece(of.Attempt, rank, message.FromTail))
			continue
		}
		from := int64(at.next)
		for attempt := at.attempt; attempt <= of.Attempt; attempt++ {
			found[host] = append(found[host], Piece(attempt, rank, from))
			from = 0
		}
	}
	return found
}

// catchUp shows the rest of the output from its files, of a run that has ended without waiting
// for its reader.
func (o *output) catchUp(ctx context.Context, seen *observed) {
	missed := o.missed(seen.snapshot())
	for host := range missed {
		if seen.isSilent(host.Name) { // that its output may end early goes without saying
			delete(missed, host)
		}
	}
	if len(missed) > 0 {
		o.Observer.Say(fmt.Sprintf("run %s has ended before all of its output was read here; reading the rest from its files", o.Run.ID))
		o.read(ctx, missed)
	}
}

// read shows output from its files, unless the user has had enough.
func (o *output) read(ctx context.Context, missed map[history.Host][]string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, e := range o.Reach.ReadOutput(ctx, missed) {
			o.Observer.Say(fmt.Sprintf("warning: what was written on %s meanwhile is not shown: %v; muster logs %s reads it", e.Host, e.Err, o.Run.ID))
		}
	}()
	for {
		select {
		case <-done:
			return
		case r := <-o.Requests:
			if r.Ends() || r.Leave {
				cancel()
			}
			if r.Leave { // a reader that takes nothing is not waited for
				return
			}
		}
	}
}
