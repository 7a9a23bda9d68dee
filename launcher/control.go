package launcher

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
)

// control is the launcher's end of a coordinator's control socket.
type control struct {
	conn   *grpc.ClientConn
	client pb.ControlClient
}

// dialControl opens the control socket of a host, over the connection that stands. The
// socket's owner has authenticated both ends, so nothing is encrypted again.
func dialControl(ctx context.Context, host remote.Host, path string) (*control, error) {
	raw, err := host.DialUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket on %s: %w", host.Name(), err)
	}
	var once sync.Once
	conn, err := grpc.NewClient("passthrough:///control",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Hour}), // who calls bounds it
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
	return &control{conn: conn, client: pb.NewControlClient(conn)}, nil
}

func (c *control) close() { c.conn.Close() }

func (c *control) submit(ctx context.Context, s submission.Run) error {
	_, err := c.client.Submit(ctx, &pb.SubmitRequest{Submission: message.Encode(s)})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition, codes.InvalidArgument:
		return &refusal{"the coordinator refused the run: " + status.Convert(err).Message()}
	}
	return fmt.Errorf("hand the run over: %w", err)
}

// refusal is a coordinator's no.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// watch hands every event from a number on to handle, until the run is over. It returns io.EOF then.
func (c *control) watch(ctx context.Context, from uint64, handle func(event.Event)) error {
	stream, err := c.client.Watch(ctx, &pb.WatchRequest{From: from})
	for err == nil {
		var m *pb.WatchEvent
		if m, err = stream.Recv(); err != nil {
			break
		}
		var e event.Event
		if err = json.Unmarshal(m.Event, &e); err == nil {
			handle(e)
		}
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("watch the run: %w", err)
}

// logs hands output to handle until all of it has ended.
func (c *control) logs(ctx context.Context, request *pb.LogsRequest, begun func(), handle func(*pb.LogChunk)) error {
	stream, err := c.client.Logs(ctx, request)
	if err == nil {
		_, err = stream.Header()
		begun()
	}
	for err == nil {
		var chunk *pb.LogChunk
		if chunk, err = stream.Recv(); err == nil {
			handle(chunk)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read output: %w", err)
}

func (c *control) stop(ctx context.Context, request *pb.StopRequest) error {
	_, err := c.client.Stop(ctx, request)
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return &refusal{"the coordinator does not stop the run so: " + status.Convert(err).Message()}
	case err != nil:
		return fmt.Errorf("stop the run: %w", err)
	}
	return nil
}

// silentError: a coordinator gives no sign of life, though nothing else says that the
// connection is broken.
type silentError struct{ passed time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no answer from the coordinator for %v", e.passed)
}

// A coordinator that answers nothing for the lease and a margin is out of sight: one that
// hangs is ended by its keeper before. usualLease is that of pages that tell none.
const (
	usualLease    = 30 * time.Second
	silenceMargin = 5 * time.Second
)

// silenceIn is how long a coordinator of a run with that lease may be silent.
func silenceIn(lease time.Duration) time.Duration { return cmp.Or(lease, usualLease) + silenceMargin }

// greet waits for a sign of life of a coordinator that was just connected to.
func (c *control) greet(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &silentError{limit})
	defer cancel()
	_, err := c.client.Beat(ctx, &pb.BeatRequest{AsksOnly: true})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// whileAlive does something until it is done or the coordinator has been silent for as long
// as limit.
func (c *control) whileAlive(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(c.beat(ctx, limit, &pb.BeatRequest{AsksOnly: true})) }()
	err := do(ctx)
	if silent := (*silentError)(nil); err != nil && errors.As(context.Cause(ctx), &silent) {
		return silent
	}
	return err
}

// beat gives the coordinator a sign of life and has one from it, again and again, until
// ctx ends or the coordinator has been silent for as long as limit. Silence is counted in
// own beats: a launcher that was suspended takes its sleep for nobody's silence.
func (c *control) beat(ctx context.Context, limit time.Duration, request *pb.BeatRequest) error {
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
	return &silentError{limit}
}

func (c *control) hostEmpty(ctx context.Context, host string) error {
	_, err := c.client.HostEmpty(ctx, &pb.HostEmptyRequest{Host: host})
	return err
}

func (c *control) signal(ctx context.Context, name string) error {
	_, err := c.client.Signal(ctx, &pb.SignalRequest{Name: name})
	return err
}
