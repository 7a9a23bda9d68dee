package coordinator

import (
	"context"
	"encoding/json"
	"errors"
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

// errOver is for callers that come too late.
var errOver = status.Error(codes.Unavailable, "the run is over")

// unlessOver is an error but for errOver: then there is nothing left to do.
func unlessOver(err error) error {
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// do has the loop call f and returns its error; errOver once the loop has ended.
func (c *Coordinator) do(ctx context.Context, f func() error) error {
	answer := make(chan error, 1)
	c.post(func() { answer <- f() })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return errOver
	}
}

// Submit plans the run and lets its hosts in.
func (s control) Submit(ctx context.Context, request *pb.SubmitRequest) (*pb.SubmitReply, error) {
	var submitted submission.Run
	if err := json.Unmarshal(request.Submission, &submitted); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "submission: %v", err)
	}
	m, err := machineOf(submitted)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if err := s.c.do(ctx, func() error { return s.c.begin(m, submitted.Hosts) }); err != nil {
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
	err := s.c.do(ctx, func() error {
		r.name = s.c.outputs.nextName()
		s.c.hub.Subscribe(ctx, r.name, r.chunks)
		s.c.outputs.add(r, s.c.machine)
		s.c.outputWanted()
		return nil
	})
	if err != nil {
		return unlessOver(err)
	}
	if err := stream.SendHeader(nil); err != nil { // which says that the run's end waits for this reader from now on
		return err
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
func (s control) Stop(ctx context.Context, request *pb.StopRequest) (*pb.StopReply, error) {
	stop := run.Stop{Exit: int(request.Exit), Reason: request.Reason, Kill: request.Kill, Drain: request.Drain}
	err := s.c.do(ctx, func() error {
		switch m := s.c.machine; {
		case m == nil, request.Unstarted && m.State().Phase != run.Gathering:
		case stop.Drain && !m.State().Plan.Independent:
			return status.Error(codes.FailedPrecondition,
				"its ranks work together, so that none can end before the others; leave --drain out")
		default:
			s.c.next(stop)
		}
		return nil
	})
	return &pb.StopReply{}, unlessOver(err)
}

// Signal passes a signal on to the leader of each rank.
func (s control) Signal(_ context.Context, request *pb.SignalRequest) (*pb.SignalReply, error) {
	s.c.feed(run.Signal{Name: request.Name})
	return &pb.SignalReply{}, nil
}

// Beat is a sign of life of the launcher.
func (s control) Beat(ctx context.Context, request *pb.BeatRequest) (*pb.BeatReply, error) {
	err := s.c.do(ctx, func() error {
		if !request.AsksOnly {
			s.c.audience.launcher = link.Now()
		}
		return nil
	})
	return &pb.BeatReply{}, unlessOver(err)
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
