package event

import (
	"testing"

	"github.com/muster-dev/muster/launcher/report"
)

// A host that was cut off tells of no end, and a run that is over has no rank that runs.
func TestNoRankRunsInARunThatIsOver(t *testing.T) {
	one, two := 0, 1
	for name, end := range map[string]func(*State){
		"over": func(s *State) { s.Take(Event{Kind: Over, Report: &report.Report{}}) },
		"lost": func(s *State) { s.Lose("its coordinator is no more") },
	} {
		var s State
		s.Take(Event{Kind: Started, Rank: &one, PID: 7})
		s.Take(Event{Kind: Started, Rank: &two, PID: 8})
		s.Take(Event{Kind: Ended, Rank: &two})
		end(&s)
		if r := s.Ranks[0]; r.Name != Unknown || r.PID != 0 || s.Ranks[1].Name != "ended" {
			t.Errorf("%s: %+v", name, s.Ranks)
		}
	}
}
