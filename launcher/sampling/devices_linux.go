package sampling

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Kept is a sample of devices with whose processes are whose.
type Kept struct {
	GPUs   *gpu.Samples
	Owners map[int]Owner
	at     link.Instant // when it was complete
	taken  time.Time
}

// lookOn samples devices until ctx ends. A driver that hangs keeps nobody else waiting.
func (s *Sampler) lookOn(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		found, err := s.Devices(ctx)
		pause := s.take(found, err)
		if pause < 0 {
			return
		}
		select {
		case <-time.After(pause - min(pause, time.Since(began))):
		case <-ctx.Done():
		}
	}
}

// take keeps a sample, and says how long to wait for the next; negative: there is none.
func (s *Sampler) take(found *gpu.Samples, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.why = err.Error()
		if isUnsupported(err) {
			return -1
		}
		return sampleRetry
	}
	s.why, s.every = "", max(Pace, time.Duration(found.Every*float64(time.Second)))
	s.kept = append(s.kept, Kept{found, s.pids, link.Now(), time.Now()})
	s.kept = slices.Delete(s.kept, 0, max(0, len(s.kept)-samplesKept))
	select {
	case s.fresh <- struct{}{}:
	default: // who measures has not come to the one before
	}
	return s.every
}

func isUnsupported(err error) bool {
	var of *external.Error
	return errors.As(err, &of) && (of.Kind == external.KindUnsupported || of.Kind == external.KindClosed)
}

// sampledAt is when the newest sample of devices was taken.
func (s *Sampler) sampledAt() (at time.Time) {
	if n := len(s.kept); n > 0 {
		at = s.kept[n-1].taken
	}
	return at
}

// Before is the newest sample of devices that was complete at an instant and in which the
// rank still held memory: the driver frees it before anybody hears of an end. Where it held
// none in any, it is the newest; nil: there is none.
func (s *Sampler) Before(rank int, at link.Instant) *Kept {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *Kept
	for _, k := range slices.Backward(s.kept) {
		if k.at > at {
			continue
		}
		if newest == nil {
			newest = &k
		}
		for _, g := range k.GPUs.GPUs {
			for _, p := range g.Processes {
				if who, is := k.Owners[p.PID]; is && who.Rank == rank {
					return &k
				}
			}
		}
	}
	return newest
}
