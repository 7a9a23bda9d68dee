package session

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/remote"
)

// here is a host that is this machine.
type here struct{ remote.Host }

func (here) Name() string { return "here" }

func (here) DialUnix(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// talkative tells of one event that is large.
type talkative struct {
	pb.UnimplementedControlServer
	size int
}

func (s talkative) Watch(_ *pb.WatchRequest, stream pb.Control_WatchServer) error {
	return stream.Send(&pb.WatchEvent{Event: make([]byte, s.size)})
}

// The report of a sweep of thousands of tasks comes in one event.
func TestALargeReportReachesWhoWatches(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(submission.MaxMessage))
	pb.RegisterControlServer(server, talkative{size: 20 << 20})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	c, err := Dial(t.Context(), here{}, socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stream, err := c.client.Watch(t.Context(), &pb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := stream.Recv(); err != nil || len(e.Event) != 20<<20 {
		t.Errorf("%d bytes, %v", len(e.GetEvent()), err)
	}
}
