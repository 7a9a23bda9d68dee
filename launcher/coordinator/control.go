package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// control answers launchers.
type control struct {
	pb.UnimplementedControlServer
	c *Coordinator
}

// Submit plans the run and lets its hosts in.
func (s control) Submit(_ context.Context, request *pb.SubmitRequest) (*pb.SubmitReply, error) {
	var run submission.Run
	if err := json.Unmarshal(request.Submission, &run); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "submission: %v", err)
	}
	p, settings, err := planOf(run)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	submitted := make(chan error, 1)
	s.c.post(func() { submitted <- s.c.begin(newBrain(settings, p, wallClock), run.Hosts) })
	if err := <-submitted; err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.SubmitReply{Digest: run.Digest}, nil
}

// Watch delivers events until the run is over or the watcher leaves.
func (s control) Watch(request *pb.WatchRequest, stream pb.Control_WatchServer) error {
	s.c.post(func() {
		s.c.watchers++
		s.c.eventsAsked = true
		s.c.attend()
	})
	defer s.c.post(func() { s.c.watcherLeft() })
	next := max(request.From, 1)
	for {
		events, changed := s.c.journal.since(next)
		for _, e := range events {
			if err := stream.Send(&pb.WatchEvent{Event: e.Encode()}); err != nil {
				return err
			}
			if e.Kind == event.Over {
				return nil
			}
		}
		next += uint64(len(events))
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Logs delivers the output of ranks until they ended.
func (s control) Logs(request *pb.LogsRequest, stream pb.Control_LogsServer) error {
	if len(request.Ranks) == 0 {
		s.c.post(func() {
			s.c.outputAsked = true
			s.c.attend()
		})
		return nil
	}
	from, of := map[int]int64{}, map[int]int{}
	for _, rank := range request.Ranks {
		from[int(rank)] = int64(request.From[rank])
		if request.Tail {
			from[int(rank)] = message.FromTail
		}
		if attempt, known := request.Attempt[rank]; known {
			of[int(rank)] = int(attempt)
		}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	r := newReading(ctx, s.c.nextName(), from, of)
	s.c.hub.Subscribe(ctx, r.name, r.chunks)
	added := make(chan struct{})
	s.c.post(func() {
		s.c.addReading(r)
		s.c.outputAsked = true
		s.c.attend()
		close(added)
	})
	select {
	case <-added: // the run's end waits for this reader from now on, which the header says
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	case <-stream.Context().Done():
		return stream.Context().Err()
	case <-s.c.ended:
		return nil
	}
	for {
		select {
		case c := <-r.chunks:
			if ended, err := r.pass(c, stream.Send); ended || err != nil {
				return err
			}
		case <-r.woken:
			if r.isOver() {
				return nil
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.c.ended:
			return r.cutOff()
		}
	}
}

// Stop ends the workers.
func (s control) Stop(_ context.Context, request *pb.StopRequest) (*pb.StopReply, error) {
	stop := stopRequest{exit: int(request.Exit), reason: request.Reason, kill: request.Kill, drain: request.Drain}
	answer := make(chan error, 1)
	s.c.post(func() {
		switch {
		case s.c.brain == nil, request.Unstarted && s.c.brain.phase != gathering:
		case stop.drain && s.c.brain.places == nil:
			answer <- status.Error(codes.FailedPrecondition, "its ranks work together, so that none can end before the others; leave --drain out")
			return
		default:
			s.c.brain.stopRequested(stop)
		}
		answer <- nil
	})
	select {
	case err := <-answer:
		return &pb.StopReply{}, err
	case <-s.c.ended:
		return &pb.StopReply{}, nil
	}
}

// Signal passes a signal on to the leader of each rank.
func (s control) Signal(_ context.Context, request *pb.SignalRequest) (*pb.SignalReply, error) {
	s.c.post(func() {
		if s.c.brain != nil {
			s.c.brain.signal(request.Name)
		}
	})
	return &pb.SignalReply{}, nil
}

// Beat is a sign of life of the launcher.
func (s control) Beat(ctx context.Context, request *pb.BeatRequest) (*pb.BeatReply, error) {
	heard := make(chan struct{})
	s.c.post(func() {
		if !request.AsksOnly {
			s.c.launcher = link.Now()
		}
		close(heard)
	})
	select {
	case <-heard:
	case <-s.c.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &pb.BeatReply{}, nil
}

// HostEmpty says that nothing of the run is left on a host.
func (s control) HostEmpty(_ context.Context, request *pb.HostEmptyRequest) (*pb.HostEmptyReply, error) {
	s.c.post(func() {
		if host, ok := s.c.members[request.Host]; ok && s.c.brain != nil {
			s.c.brain.hostEmpty(host)
		}
	})
	return &pb.HostEmptyReply{}, nil
}

// wallClock tells the time of day of an instant, by what the clocks say now.
func wallClock(at link.Instant) float64 {
	return report.Seconds(time.Now().Add(-link.Now().Sub(at)))
}

func (c *Coordinator) nextName() string {
	return fmt.Sprintf("reading-%d", c.names.Add(1))
}
