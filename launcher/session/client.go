package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/samples"
)

// Client is the launcher's end of a coordinator's control socket.
type Client struct {
	conn   io.Closer
	client pb.ControlClient
}

// Dial opens the control socket of a host, over the connection that stands. The socket's owner
// has authenticated both ends, so nothing is encrypted again.
func Dial(ctx context.Context, host remote.Host, path string) (*Client, error) {
	raw, err := host.DialUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket on %s: %w", host.Name(), err)
	}
	var once sync.Once
	conn, err := grpc.NewClient("passthrough:///control",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		// The caller's context sets the limit.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Hour}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(submission.MaxMessage)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			var conn net.Conn
			once.Do(func() { conn = raw })
			if conn == nil {
				return nil, errors.New("the connection to the control socket is gone")
			}
			return conn, nil
		}),
	)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("open the control socket on %s: %w", host.Name(), err)
	}
	return &Client{conn: conn, client: pb.NewControlClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// Refusal is a request that the coordinator rejected.
type Refusal struct{ reason string }

func (r *Refusal) Error() string { return r.reason }

// Submit hands a run over.
func (c *Client) Submit(ctx context.Context, run submission.Run) error {
	_, err := c.client.Submit(ctx, &pb.SubmitRequest{Submission: message.Encode(run)})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition, codes.InvalidArgument:
		return &Refusal{"the coordinator refused the run: " + status.Convert(err).Message()}
	}
	return fmt.Errorf("hand the run over: %w", err)
}

// receive hands each message of a stream to handle. It returns io.EOF at the stream's end.
func receive[T any](stream grpc.ServerStreamingClient[T], handle func(*T) error) error {
	for {
		m, err := stream.Recv()
		if err == nil {
			err = handle(m)
		}
		if err != nil {
			return err
		}
	}
}

// during says in which call an error came; the end of a stream is none.
func during(what string, err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Watch hands every event from a number on to handle until the run is over. It returns io.EOF
// then.
func (c *Client) Watch(ctx context.Context, from uint64, handle func(event.Event)) error {
	stream, err := c.client.Watch(ctx, &pb.WatchRequest{From: from})
	if err == nil {
		err = receive(stream, func(m *pb.WatchEvent) error {
			var e event.Event
			err := json.Unmarshal(m.Event, &e)
			if err == nil {
				handle(e)
			}
			return err
		})
	}
	return during("watch the run", err)
}

// Samples hands how ranks use memory and devices to handle, once or until the run is over. It
// returns io.EOF at the end.
func (c *Client) Samples(ctx context.Context, follow bool, handle func(*samples.Overview)) error {
	stream, err := c.client.Samples(ctx, &pb.SamplesRequest{Follow: follow})
	if err == nil {
		err = receive(stream, func(m *pb.SamplesReply) error {
			var o samples.Overview
			err := json.Unmarshal(m.Overview, &o)
			if err == nil {
				handle(&o)
			}
			return err
		})
	}
	return during("follow the ranks' samples", err)
}

// Logs hands output to handle until all of it has ended; begun is called when the run's end
// waits for this reader.
func (c *Client) Logs(ctx context.Context, request *pb.LogsRequest, begun func(), handle func(*pb.LogChunk)) error {
	stream, err := c.client.Logs(ctx, request)
	if err == nil {
		_, err = stream.Header()
		begun()
	}
	if err == nil {
		err = receive(stream, func(chunk *pb.LogChunk) error {
			handle(chunk)
			return nil
		})
	}
	if err = during("read output", err); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Stop ends the run.
func (c *Client) Stop(ctx context.Context, request *pb.StopRequest) error {
	_, err := c.client.Stop(ctx, request)
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return &Refusal{"the coordinator does not stop the run so: " + status.Convert(err).Message()}
	case err != nil:
		return fmt.Errorf("stop the run: %w", err)
	}
	return nil
}

// SilentError: a coordinator gives no sign of life, though the connection seems to stand.
type SilentError struct{ Passed time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("no answer from the coordinator for %v", e.Passed)
}

// A coordinator that answers nothing for the lease and a margin is given up: one that hangs is
// ended by its keeper before. UsualLease is that of runs of which none is known.
const (
	UsualLease    = 30 * time.Second
	silenceMargin = 5 * time.Second
	beatEvery     = time.Second
)

// MaxSilence is how long the coordinator of a run with that lease may be silent.
func MaxSilence(lease time.Duration) time.Duration { return cmp.Or(lease, UsualLease) + silenceMargin }

// Greet waits for a sign of life of a coordinator that was just connected to.
func (c *Client) Greet(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &SilentError{limit})
	defer cancel()
	_, err := c.client.Beat(ctx, &pb.BeatRequest{AsksOnly: true})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// WhileAlive calls do, and ends its context when the coordinator has been silent for limit.
func (c *Client) WhileAlive(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(c.beat(ctx, limit, &pb.BeatRequest{AsksOnly: true})) }()
	err := do(ctx)
	if silent := (*SilentError)(nil); err != nil && errors.As(context.Cause(ctx), &silent) {
		return silent
	}
	return err
}

// beat exchanges heartbeats with the coordinator until ctx ends or the coordinator has been
// silent for limit. It counts missed heartbeats, not wall time: after a suspend, the
// launcher's own sleep must not look like a silent coordinator.
func (c *Client) beat(ctx context.Context, limit time.Duration, request *pb.BeatRequest) error {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for silent := time.Duration(0); silent < limit; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		answer, cancel := context.WithTimeout(ctx, beatEvery)
		_, err := c.client.Beat(answer, request)
		cancel()
		if silent += beatEvery; err == nil {
			silent = 0
		}
	}
	return &SilentError{limit}
}
