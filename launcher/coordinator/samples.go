package coordinator

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/samples"
)

// How often hosts report their ranks' memory: while somebody follows it, and else.
const (
	followedPace = time.Second
	quietPace    = 5 * time.Second
)

// follow counts who follows samples, and has hosts report as often as that needs.
func (c *Coordinator) follow(change int) {
	before := c.audience.followers
	c.audience.followers += change
	if (before == 0) == (c.audience.followers == 0) {
		return
	}
	pace := quietPace
	if c.audience.followers > 0 {
		pace = followedPace
	}
	c.next(run.Pace{Pace: message.Pace{Every: pace}})
}

// Samples delivers how much memory and time of their devices ranks use: once, or each second until the run is over.
func (s control) Samples(request *pb.SamplesRequest, stream pb.Control_SamplesServer) error {
	if request.Follow {
		s.c.post(func() { s.c.follow(1) })
		defer s.c.post(func() { s.c.follow(-1) })
	}
	ticker := time.NewTicker(followedPace)
	defer ticker.Stop()
	for {
		overview, err := s.c.overview(stream.Context())
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.SamplesReply{Overview: message.Encode(overview)}); err != nil || !request.Follow {
			return err
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.c.ended:
			return nil
		}
	}
}

func (c *Coordinator) overview(ctx context.Context) (samples.Overview, error) {
	answer := make(chan samples.Overview, 1)
	c.post(func() {
		o := samples.Overview{Hosts: []samples.HostDigest{}}
		if c.machine != nil {
			o = c.machine.Samples()
		}
		answer <- o
	})
	select {
	case o := <-answer:
		return o, nil
	case <-ctx.Done():
		return samples.Overview{}, ctx.Err()
	case <-c.ended:
		return samples.Overview{}, status.Error(codes.Unavailable, "the run is over")
	}
}
