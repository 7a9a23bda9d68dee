package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/plugins"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/rendezvous"
)

// keptSample is a sample of devices with whose processes are whose.
type keptSample struct {
	gpus  *plugins.GPUSamples
	pids  map[int]owner
	at    rendezvous.Instant // when it was complete
	taken time.Time
}

// lookOn samples devices until ctx ends. A driver that hangs keeps nobody else waiting.
func (s *sampling) lookOn(ctx context.Context, devices prober) {
	for ctx.Err() == nil {
		began := time.Now()
		found, err := devices.sample(ctx)
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
func (s *sampling) take(found *plugins.GPUSamples, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.why = err.Error()
		if isUnsupported(err) {
			return -1
		}
		return sampleRetry
	}
	s.why, s.every = "", max(samplePace, time.Duration(found.Every*float64(time.Second)))
	s.kept = append(s.kept, keptSample{found, s.pids, rendezvous.Now(), time.Now()})
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
func (s *sampling) sampledAt() (at time.Time) {
	if n := len(s.kept); n > 0 {
		at = s.kept[n-1].taken
	}
	return at
}

// before is the newest sample of devices that was complete at an instant and in which the
// rank still held memory: the driver frees it before anybody hears of an end. Where it held
// none in any, it is the newest; nil: there is none.
func (s *sampling) before(rank int, at rendezvous.Instant) *keptSample {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *keptSample
	for _, k := range slices.Backward(s.kept) {
		if k.at > at {
			continue
		}
		if newest == nil {
			newest = &k
		}
		for _, g := range k.gpus.GPUs {
			for _, p := range g.Processes {
				if who, is := k.pids[p.PID]; is && who.rank == rank {
					return &k
				}
			}
		}
	}
	return newest
}

// heldBefore is who held the devices just before a worker's end; nil where that is not known.
func (a *agent) heldBefore(w *worker, end rendezvous.Instant) *orders.Sight {
	k := a.sampling.before(w.rank, end)
	if k == nil {
		return nil
	}
	seen := &orders.Sight{Attempt: w.attempt}
	a.fillSight(seen, asProbed(k.gpus), k.pids)
	return seen
}

// asProbed is a sample in the form of a probe.
func asProbed(s *plugins.GPUSamples) *plugins.GPUs {
	found := &plugins.GPUs{Source: s.Source}
	for _, g := range s.GPUs {
		found.GPUs = append(found.GPUs, plugins.GPU{Index: g.Index, UUID: g.UUID, State: g.State, Memory: g.Memory,
			Processes: g.Processes, MIG: plugins.MIG{Instances: g.Instances}})
	}
	return found
}

// sample asks one plugin after the other, as Probe does. That one tells no samples is only
// said where no other does.
func (p prober) sample(ctx context.Context) (*plugins.GPUSamples, error) {
	ctx, cancel := context.WithTimeout(ctx, sightLimit)
	defer cancel()
	var failed []error
	for _, one := range p {
		found, err := one.Sample(ctx)
		if err == nil {
			return found, nil
		}
		failed = append(failed, ownWords(err))
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, oneLine(failed)
}
