package session

import (
	"context"
	"errors"
	"net"
	"strconv"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
)

// join sends every agent to the coordinator, and listens for those that cannot reach it.
func (s *session) join(ctx context.Context, p *plan.Plan) {
	head := s.fleet.Hosts[0]
	join := message.Join{Head: head.Name, Coordinator: head.Ready.Pin}
	for _, m := range p.Candidates() {
		join.Addrs = append(join.Addrs, net.JoinHostPort(m.Addr, strconv.Itoa(head.Ready.Port)))
	}
	for _, h := range s.fleet.Hosts {
		h.Join(join)
		go func() {
			s.listenTo(h)
			s.reportEmpty(ctx, h)
		}()
	}
}

// listenTo hears why an agent cannot take part, which ends a run that has not started.
func (s *session) listenTo(h *fleet.Host) {
	for u := range h.Updates {
		err := u.Err
		switch {
		case u.Error != "":
			err = errors.New(u.Error)
		case err != nil && s.seen.hasLinked(h.Name):
			return
		case err != nil:
			err = errors.New("the connection to it ended before it had joined the run")
		default:
			continue
		}
		s.seen.complain(h.Name, err)
		if !s.seen.isCommitted() {
			_ = s.control.Stop(context.Background(), &pb.StopRequest{
				Kill: true, Unstarted: true, Exit: report.ExitUnreachable, Reason: h.Name + " cannot take part",
			})
		}
		if u.Err != nil {
			return
		}
	}
}

// reportEmpty tells the coordinator that the keeper of a host has ended by itself. It comes
// after what the agent had to say, which is the reason.
func (s *session) reportEmpty(ctx context.Context, h *fleet.Host) {
	select {
	case <-h.Gone():
	case <-ctx.Done():
		return
	}
	if h.IsEmpty() {
		_, _ = s.control.client.HostEmpty(ctx, &pb.HostEmptyRequest{Host: h.Name})
	}
}
