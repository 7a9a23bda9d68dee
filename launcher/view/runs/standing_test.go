package runs

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
)

// What is said to go on must be what goes on, however long ago it began.
func TestAStatusSaysWhatIsTrueNow(t *testing.T) {
	two := history.Run{ID: "j-1", Hosts: []history.Host{{Name: "a", Ranks: 1}, {Name: "b", FirstRank: 1, Ranks: 1}}}
	one := history.Run{ID: "j-1", Hosts: []history.Host{{Name: "a", Ranks: 1}}}
	sweep := history.Run{ID: "j-1", Hosts: []history.Host{{Name: "a", Ranks: 1}}, Tasks: 4}
	at := func(kind event.Kind, ago time.Duration, attempt int, rank ...int) event.Event {
		e := event.Event{Kind: kind, Time: inThePast.Add(-ago), Attempt: attempt, Host: "a", Message: string(kind)}
		if len(rank) > 0 {
			e.Rank = &rank[0]
		}
		return e
	}
	begun := []event.Event{at(event.Meeting, 3*time.Hour, 0), at(event.Committed, 3*time.Hour, 0), at(event.Started, 3*time.Hour, 0, 0)}
	all := append(begun, at(event.Started, 2*time.Hour, 0, 1))
	failed := at(event.Ended, time.Hour, 0, 1)
	failed.Failed = true
	stopping := append(append([]event.Event{}, all...), failed, at(event.Stopping, time.Hour, 0))
	waiting := append(append([]event.Event{}, stopping...), at(event.Ended, time.Hour, 0, 0), at(event.Restarting, time.Hour, 0, 1))
	again := append(append([]event.Event{}, waiting...), at(event.Meeting, time.Hour, 1), at(event.Started, time.Hour, 1, 0), at(event.Started, time.Hour, 1, 1))
	for name, test := range map[string]struct {
		run    history.Run
		events []event.Event
		state  string
		want   string
	}{
		"not all are started":        {two, begun, event.Running, "of 2 ranks on 2 hosts: 1 running, 1 not started yet"},
		"all run":                    {two, all, event.Running, "2 ranks on 2 hosts have been running for 2h0m"},
		"one alone":                  {one, begun, event.Running, "1 rank on 1 host has been running for 3h0m"},
		"one has ended":              {two, append(append([]event.Event{}, all...), at(event.Ended, 0, 0, 0)), event.Running, "of 2 ranks on 2 hosts: 1 running, 1 ended"},
		"workers are ended":          {two, stopping, event.StopsNow, "stopping"},
		"the next attempt waits":     {two, waiting, event.Starting, "restarting"},
		"the next attempt runs":      {two, again, event.Running, "2 ranks on 2 hosts have been running for 1h0m (attempt 1)"},
		"the next attempt begins":    {two, again[:len(again)-1], event.Running, "of 2 ranks on 2 hosts: 1 running, 1 not started yet (attempt 1)"},
		"tasks":                      {sweep, append(append([]event.Event{}, begun...), failed), event.Running, "of 4 tasks on 1 host: 1 running, 2 not started yet, 1 failed"},
		"a task is to be tried anew": {sweep, append(append([]event.Event{}, begun...), at(event.Restarting, 0, 0, 0)), event.Running, "of 4 tasks on 1 host: 1 running, 3 not started yet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Standing{Run: test.run, Now: inThePast}
			for _, e := range test.events {
				s.State.Take(e)
			}
			if got := s.message(); got != test.want || s.State.Name != test.state {
				t.Errorf("%s: %q, want %s: %q", s.State.Name, got, test.state, test.want)
			}
		})
	}
}
