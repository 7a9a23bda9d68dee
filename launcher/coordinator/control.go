package coordinator

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
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
	var submitted submission.Run
	if err := json.Unmarshal(request.Submission, &submitted); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "submission: %v", err)
	}
	m, err := machineOf(submitted)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	begun := make(chan error, 1)
	s.c.post(func() { begun <- s.c.begin(m, submitted.Hosts) })
	if err := <-begun; err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.SubmitReply{Digest: submitted.Digest}, nil
}

// Watch delivers events until the run is over or the watcher leaves.
func (s control) Watch(request *pb.WatchRequest, stream pb.Control_WatchServer) error {
	s.c.post(func() {
		s.c.audience.watchers++
		s.c.audience.eventsAsked = true
		s.c.attend()
	})
	defer s.c.post(func() {
		if s.c.audience.watchers--; s.c.audience.watchers == 0 {
			s.c.next(run.LauncherLeft{})
		}
	})
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
		s.c.post(s.c.outputWanted)
		return nil
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	r := newReader(ctx, request)
	added := make(chan struct{})
	s.c.post(func() {
		r.name = s.c.outputs.nextName()
		s.c.hub.Subscribe(ctx, r.name, r.chunks)
		s.c.outputs.add(r, s.c.machine)
		s.c.outputWanted()
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
	stop := run.Stop{Exit: int(request.Exit), Reason: request.Reason, Kill: request.Kill, Drain: request.Drain}
	answer := make(chan error, 1)
	s.c.post(func() {
		if s.c.machine == nil || request.Unstarted && s.c.machine.State().Phase != run.Gathering {
			answer <- nil
			return
		}
		if stop.Drain && !s.c.machine.State().Plan.Independent {
			answer <- status.Error(codes.FailedPrecondition,
				"its ranks work together, so that none can end before the others; leave --drain out")
			return
		}
		s.c.next(stop)
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
	s.c.feed(run.Signal{Name: request.Name})
	return &pb.SignalReply{}, nil
}

// Beat is a sign of life of the launcher.
func (s control) Beat(ctx context.Context, request *pb.BeatRequest) (*pb.BeatReply, error) {
	heard := make(chan struct{})
	s.c.post(func() {
		if !request.AsksOnly {
			s.c.audience.launcher = link.Now()
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
		if host, ok := s.c.members[request.Host]; ok {
			s.c.next(run.Empty{Host: host})
		}
	})
	return &pb.HostEmptyReply{}, nil
}

// wallClock tells the time of day of an instant, by what the clocks say now.
func wallClock(at link.Instant) float64 {
	return report.Seconds(time.Now().Add(-link.Now().Sub(at)))
}
