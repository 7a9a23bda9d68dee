package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// sample begins to measure the ranks of an order, or adds them to those that are measured
// where each starts alone. devices answers for theirs; nil: none has one, or somebody
// answers already.
func (a *agent) sample(o *message.Start, devices prober) {
	ranks := a.startedIn(o)
	if o.Alone && a.measures {
		a.sampler.Add(ranks)
		return
	}
	a.endSampling()
	if a.samples == nil {
		a.samples = sampling.NewFile(filepath.Join(a.place.State, sampling.FileName), a.warnOfSamples)
	}
	means := sampling.Means{File: a.samples, Owners: a.ownersAmong, Tell: a.tellSamples, Pace: func() time.Duration { return time.Duration(a.digestPace.Load()) }}
	if devices != nil {
		means.Devices = devices.sample
	}
	a.sampler, a.measures = sampling.Begin(means, a.attempt, o.Slots, ranks), true
}

// startedIn are those ranks of an order that could be started: of the others no end follows
// that would take them out again.
func (a *agent) startedIn(o *message.Start) (ranks []sampling.Rank) {
	for _, r := range o.Ranks {
		w := a.workers[r.Rank]
		if w == nil || w.attempt != o.Attempt {
			continue
		}
		one := sampling.Rank{Rank: r.Rank, Attempt: o.Attempt, Slot: r.Local, Device: r.Device, Seen: r.Seen, Alone: o.Alone, Began: w.began, Told: w.observer.latest}
		if w.log != nil {
			one.Written = w.log.Taken
		}
		ranks = append(ranks, one)
	}
	return ranks
}

// ownersAmong asks the loop whose processes are.
func (a *agent) ownersAmong(ctx context.Context, all []proc.Stat) (map[int]sampling.Owner, bool) {
	answer := make(chan map[int]sampling.Owner, 1)
	a.loop.PostUntil(ctx, func() { answer <- a.ranksByPIDOf(all) })
	select {
	case owners := <-answer:
		return owners, true
	case <-ctx.Done():
		return nil, false
	}
}

// tellSamples tells the coordinator.
func (a *agent) tellSamples(ctx context.Context, digest *samples.Digest, pulses *message.Pulses) {
	a.loop.PostUntil(ctx, func() {
		a.loop.Report(message.Update{Samples: digest})
		a.loop.Report(message.Update{Pulses: pulses})
	})
}

// endSampling ends it. What was found stays at hand.
func (a *agent) endSampling() {
	if a.measures {
		a.measures = false
		a.sampler.End()
	}
}

// closeSamples completes the file.
func (a *agent) closeSamples() {
	a.endSampling()
	if a.samples != nil {
		a.samples.Close()
	}
}

// warnOfSamples tells what the file of samples has to say.
func (a *agent) warnOfSamples(ctx context.Context, text string) {
	a.loop.PostUntil(ctx, func() { a.loop.Report(message.Update{Warning: &message.Warning{Rank: -1, Message: text}}) })
}

// heldBefore is who held the devices just before a worker's end; nil where that is not known.
func (a *agent) heldBefore(w *worker, end link.Instant) *gpu.Usage {
	k := a.sampler.Before(w.rank, end)
	if k == nil {
		return nil
	}
	seen := &gpu.Usage{}
	a.fillSight(seen, k.GPUs.Probed(), k.Owners)
	return seen
}

// sample asks one plugin after the other, as Probe does. That one tells no samples is only
// said where no other does.
func (p prober) sample(ctx context.Context) (*gpu.Samples, error) {
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
