package link

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/rendezvous/link/linkpb"
)

// Chunk is a piece of bulk data. Source is the sender's own name for where it is
// from, such as a log; Offset counts bytes within the source; Lane tells streams
// of one source apart; End says that nothing more will come from the source.
type Chunk = pb.Chunk

type subscription struct {
	ctx  context.Context // of the subscriber; its end refuses further chunks
	into chan<- *Chunk
}

// Subscribe delivers the chunks that members push under this name, until ctx
// ends. Who pushes waits while into is full.
func (h *Hub) Subscribe(ctx context.Context, name string, into chan<- *Chunk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushes[name] = subscription{ctx: ctx, into: into}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.pushes, name)
	})
}

// Push serves a member's bulk stream until either side has had enough.
func (h *Hub) Push(stream pb.Rendezvous_PushServer) error {
	if _, err := h.caller(stream.Context()); err != nil {
		return err
	}
	name := ""
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.PushEnd{})
		}
		if err != nil {
			return err
		}
		if chunk.Subscription != "" {
			name = chunk.Subscription
		}
		if err := h.deliver(stream.Context(), name, chunk); err != nil {
			return err
		}
	}
}

func (h *Hub) deliver(ctx context.Context, name string, chunk *Chunk) error {
	h.mu.Lock()
	sub, wanted := h.pushes[name]
	h.mu.Unlock()
	if !wanted {
		return status.Errorf(codes.NotFound, "nobody reads %q any more", name)
	}
	select {
	case sub.into <- chunk:
		return nil
	case <-sub.ctx.Done():
		return status.Errorf(codes.NotFound, "nobody reads %q any more", name)
	case <-ctx.Done():
		return ctx.Err()
	case <-h.stop:
		return status.Error(codes.Unavailable, "the run is over")
	}
}
