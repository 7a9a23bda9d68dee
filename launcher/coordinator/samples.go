package coordinator

import (
	"time"

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
		overview := samples.Overview{Hosts: []samples.HostDigest{}}
		err := s.c.do(stream.Context(), func() error {
			if s.c.machine != nil {
				overview = s.c.machine.Samples()
			}
			return nil
		})
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
