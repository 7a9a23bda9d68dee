//go:build linux

package agent

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/sampling"
	"github.com/muster-dev/muster/plugins/gpu"
)

// sampler measures the ranks of this host. The loop owns it.
type sampler struct {
	state   string // folder
	loop    *loop.Loop
	workers *worker.Set
	pace    atomic.Int64      // nanoseconds between two digests
	file    *sampling.File    // nil before the first attempt
	current *sampling.Sampler // of the newest attempt that was measured; nil before it
	running bool
}

func newSampler(state string, l *loop.Loop, workers *worker.Set) *sampler {
	s := &sampler{state: state, loop: l, workers: workers}
	s.pace.Store(int64(sampling.QuietPace))
	return s
}

// begin measures the ranks of a command, or adds them to those that are measured where each starts alone. devices
// samples theirs; nil: none has one, or they are sampled already.
func (s *sampler) begin(c *message.Start, attempt int, devices func(context.Context) (*gpu.Samples, error)) {
	ranks := s.started(c)
	if c.Alone && s.running {
		s.current.Add(ranks)
		return
	}
	s.end()
	if s.file == nil {
		s.file = sampling.NewFile(filepath.Join(s.state, sampling.FileName), func(ctx context.Context, text string) {
			s.loop.PostUntil(ctx, func() { s.loop.Warn(loop.Host, "%s", text) })
		})
	}
	means := sampling.Means{
		File: s.file, Owners: s.owners, Report: s.report, Devices: devices,
		Pace: func() time.Duration { return time.Duration(s.pace.Load()) },
	}
	s.current, s.running = sampling.Begin(means, attempt, c.Slots, ranks), true
}

// started are those ranks of a command that could be started: no end of the others follows that would take them out.
func (s *sampler) started(c *message.Start) (ranks []sampling.Rank) {
	for _, r := range c.Ranks {
		w := s.workers.Get(r.Rank)
		if w == nil || w.Attempt != c.Attempt {
			continue
		}
		one := sampling.Rank{
			Rank: r.Rank, Attempt: c.Attempt, Slot: r.Local, Device: r.Device, Seen: r.Seen, Alone: c.Alone,
			Began: w.Began, Reported: w.Socket.Latest,
		}
		if w.Log != nil {
			one.Written = w.Log.Taken
		}
		ranks = append(ranks, one)
	}
	return ranks
}

func (s *sampler) owners(ctx context.Context, all []proc.Stat) (map[int]sampling.Owner, bool) {
	answer := make(chan map[int]sampling.Owner, 1)
	s.loop.PostUntil(ctx, func() { answer <- s.workers.Owners(all) })
	select {
	case owners := <-answer:
		return owners, true
	case <-ctx.Done():
		return nil, false
	}
}

func (s *sampler) report(ctx context.Context, digest *samples.Digest, pulses *message.Pulses) {
	s.loop.PostUntil(ctx, func() {
		s.loop.Report(message.Update{Samples: digest})
		s.loop.Report(message.Update{Pulses: pulses})
	})
}

// end ends measuring. What was found stays at hand.
func (s *sampler) end() {
	if s.running {
		s.running = false
		s.current.End()
	}
}

func (s *sampler) close() {
	s.end()
	if s.file != nil {
		s.file.Close()
	}
}
