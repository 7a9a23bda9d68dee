//go:build linux

package agent

import (
	"testing"

	"github.com/muster-dev/muster/launcher/agent/worker"
	"github.com/muster-dev/muster/launcher/message"
)

// A task that could not be started must not stand in its place's way.
func TestSampler_ARankThatCouldNotBeStartedIsNotMeasured(t *testing.T) {
	workers := worker.New(worker.Config{})
	workers.Add(&worker.Worker{Rank: 7, Attempt: 1})
	workers.Add(&worker.Worker{Rank: 8})
	s := newSampler("", nil, workers)
	started := s.started(&message.Start{Attempt: 1, Ranks: []message.RankStart{{Rank: 6}, {Rank: 7}, {Rank: 8}}})
	if len(started) != 1 || started[0].Rank != 7 || started[0].Attempt != 1 {
		t.Errorf("%+v", started)
	}
}
