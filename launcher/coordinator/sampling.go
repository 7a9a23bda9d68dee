package coordinator

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-dev/muster/launcher/check"
	checks "github.com/muster-dev/muster/launcher/check/codes"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/rendezvous/link"
)

// memory is what is known of how much memory ranks use.
type memory struct {
	digests map[int]toldDigest     // the newest of each host
	peaks   map[int][]samples.Peak // of each rank, of all attempts
	said    map[string]bool        // what was found in the attempt
}

type toldDigest struct {
	*samples.Digest
	at link.Instant
}

// sampled takes in what a host tells of its ranks' memory.
func (b *brain) sampled(host int, d *samples.Digest) {
	if !b.isOf(d) || b.phase != running && b.phase != stopping {
		return
	}
	b.memory.digests[host] = toldDigest{d, b.now}
	for _, r := range d.Ranks {
		if r.Rank < 0 || r.Rank >= len(b.ranks) || b.ranks[r.Rank].host != host || b.ranks[r.Rank].attempt != r.Attempt {
			continue
		}
		b.peaked(r.Rank, r.Peaks)
		for _, g := range r.Growth {
			b.grew(host, g)
		}
	}
	if d.Age >= samples.WarmUp {
		b.judgeBalance()
	}
}

// isOf is whether a digest is of the attempt in progress; ranks that start alone have their
// own.
func (b *brain) isOf(d *samples.Digest) bool { return b.places != nil || d.Attempt == b.attempt }

// peaked takes in the peaks of a rank in the attempt.
func (b *brain) peaked(rank int, peaks []samples.Peak) {
	for _, p := range peaks {
		b.memory.peaks[rank] = samples.Raise(b.memory.peaks[rank], p.Attempt, p.Phase, p.Most)
	}
}

func (b *brain) grew(host int, g samples.Growth) {
	message, fix := g.Words()
	rank := g.Rank
	b.findOnce(fmt.Sprintf("growth %d %s", rank, g.Kind), report.Finding{
		Code: checks.MemoryGrowth, Severity: checks.Warn, Host: b.hosts[host].name, Rank: &rank, Message: b.hosts[host].name + ": " + message, Fix: fix,
	})
}

// loaded is what a rank holds at least of its device, in bytes, once it has come to load its
// model: an attempt that ends early ends others on their way there.
const loaded = 1 << 30

// judgeBalance looks whether a rank has held far more memory in the attempt than the others.
func (b *brain) judgeBalance() {
	if b.plan.Backend == "none" || b.places != nil { // its ranks do not share one model
		return
	}
	peaks := map[int]samples.Values{}
	for rank, all := range b.memory.peaks {
		var own []samples.Peak
		for _, p := range all {
			if p.Attempt == b.attempt {
				own = append(own, p)
			}
		}
		most := samples.Most(own)
		if n, known := most.Held(); known && n >= loaded || b.now.Sub(b.begun).Seconds() >= samples.WarmUp {
			peaks[rank] = most
		}
	}
	for _, u := range samples.Imbalance(peaks) {
		message, fix := u.Words()
		rank := u.Rank
		host := b.hosts[b.ranks[rank].host].name
		b.findOnce(fmt.Sprintf("imbalance %d", rank), report.Finding{
			Code: checks.MemoryImbalance, Severity: checks.Warn, Host: host, Rank: &rank, Message: host + ": " + message, Fix: fix,
		})
	}
}

// findOnce tells a finding of an attempt as the job file wants it, unless it was told.
func (b *brain) findOnce(what string, f report.Finding) {
	if b.memory.said[what] || !b.job.Check.AfterStart {
		return
	}
	b.memory.said[what] = true
	for _, f := range check.Apply([]report.Finding{f}, b.job.Check) {
		b.find(f)
	}
}

// overview is what is known now of all ranks.
func (b *brain) overview() samples.Overview {
	o := samples.Overview{Attempt: b.attempt, Hosts: []samples.HostDigest{}}
	for host, h := range b.hosts {
		if d, told := b.memory.digests[host]; told && b.isOf(d.Digest) {
			o.Hosts = append(o.Hosts, samples.HostDigest{Host: h.name, Ago: max(0, b.now.Sub(d.at).Seconds()), Digest: *d.Digest})
		}
	}
	return o
}

// How often hosts tell of their ranks' memory: while somebody looks on, and else.
const (
	followedPace = time.Second
	quietPace    = 5 * time.Second
)

// following counts who looks on, and has hosts tell as often as that needs.
func (c *Coordinator) following(change int) {
	before := c.followers
	c.followers += change
	if c.brain == nil || (before == 0) == (c.followers == 0) {
		return
	}
	pace := quietPace
	if c.followers > 0 {
		pace = followedPace
	}
	c.brain.sendAll(message.Command{Pace: &message.Pace{Every: pace}})
}

// Samples delivers how much memory and time of their devices ranks use: once, or each
// second until the run is over.
func (s control) Samples(request *pb.SamplesRequest, stream pb.Control_SamplesServer) error {
	if request.Follow {
		s.c.post(func() { s.c.following(1) })
		defer s.c.post(func() { s.c.following(-1) })
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
		if c.brain != nil {
			answer <- c.brain.overview()
		} else {
			answer <- samples.Overview{Hosts: []samples.HostDigest{}}
		}
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
