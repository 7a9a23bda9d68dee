package link

import (
	"context"
	"time"

	pb "github.com/muster-dev/muster/rendezvous/link/linkpb"
)

// frameStream is a Link stream as either side sees it.
type frameStream interface {
	Context() context.Context
	Send(*pb.Frame) error
	Recv() (*pb.Frame, error)
}

// sendFrames sends a heartbeat at once (it tells the peer what was taken in), then
// whatever the mailbox holds, and a heartbeat every interval. It ends when the
// stream or ctx does.
func sendFrames(ctx context.Context, stream frameStream, box *mailbox, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	if err := stream.Send(box.heartbeat(Now())); err != nil {
		return err
	}
	var cursor uint64
	for {
		for _, f := range box.after(cursor, Now()) {
			if err := stream.Send(f); err != nil {
				return err
			}
			cursor = f.Seq
		}
		if box.owes() { // who sent something may be waiting to leave
			if err := stream.Send(box.heartbeat(Now())); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		case <-box.wake:
		case <-ticker.C:
			if err := stream.Send(box.heartbeat(Now())); err != nil {
				return err
			}
		}
	}
}

// HeartbeatOf is the interval between heartbeats under a lease: a second, or less
// where the lease is so short that several must fit.
func HeartbeatOf(lease time.Duration) time.Duration { return min(time.Second, lease/6) }
