package session

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

var ok = &report.Report{Outcome: report.OK, Attempts: []report.Attempt{{}}}

// ctrlC is the requests of Ctrl-C, the first, second and third time.
var ctrlC = []Request{
	{Stop: true, Exit: 130, Reason: "Ctrl-C"},
	{Stop: true, Kill: true, Exit: 130, Reason: "Ctrl-C"},
	{Stop: true, Kill: true, Leave: true, Exit: 130, Reason: "Ctrl-C"},
}

func TestSession_ShowsARunUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.begin()
		w.link.writes(1, 0, "hello")
		w.over(&report.Report{Outcome: report.Failed, Exit: 3})
		<-w.ended
		if w.err != nil || w.end.Exit != 3 || w.end.Report.Outcome != report.Failed {
			t.Fatalf("%+v, %v", w.end, w.err)
		}
		w.screen.shows(t, "watching: job-1", "3 committed", "b:1| hello", "over")
		if !w.agents[0].isClosed || !w.agents[1].isClosed || !w.link.isClosed {
			t.Error("a connection is left")
		}
	})
}

func TestSession_ALostConnectionIsMadeAgainAndNothingIsShownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.begin()
		w.link.writes(0, 0, "before")
		synctest.Wait()
		next := w.returns()
		w.lose()
		next.happens(event.Event{Kind: event.Warning})
		next.writes(0, 6, "after")
		w.over(ok)
		if <-w.ended; w.err != nil || w.end.Report == nil {
			t.Fatalf("%+v, %v", w.end, w.err)
		}
		if next.watched != 4 || next.logs.From[0] != 6 || next.logs.Tail {
			t.Errorf("events from %d on, output %v", next.watched, next.logs)
		}
		w.screen.shows(t, "lost the connection to a", "the run goes on there; connecting again", "connected again", "before", "after")
	})
}

func TestSession_AStopWithoutConnectionIsPassedOnLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.begin()
		synctest.Wait()
		w.lose()
		time.Sleep(returnPause / 2)
		w.requests <- ctrlC[0]
		next := w.returns()
		time.Sleep(returnPause)
		synctest.Wait()
		if len(next.stops) != 1 || next.stops[0].Kill || next.stops[0].Exit != 130 {
			t.Errorf("stops: %v", next.stops)
		}
		w.screen.shows(t, "the run is stopped once the connection stands again")
		w.over(&report.Report{Outcome: report.Stopped, Exit: 130, Attempts: ok.Attempts})
		if <-w.ended; w.end.Exit != 130 {
			t.Errorf("%+v, %v", w.end, w.err)
		}
	})
}

func TestSession_OfARunThatEndedMeanwhileTheRestIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.begin()
		w.link.writes(1, 0, "12345")
		synctest.Wait()
		w.reach.finds(func() (*Live, error) {
			return &Live{Host: &agent{}, State: event.State{Report: ok, Ranks: map[int]event.RankState{
				0: {Host: "a", Attempt: 1}, 1: {Host: "b", Attempt: 0},
			}}}, nil
		})
		w.lose()
		if <-w.ended; w.err != nil || w.end.Report != ok {
			t.Fatalf("%+v, %v", w.end, w.err)
		}
		want := map[string][]string{"a": {"0/0@0", "1/0@0"}, "b": {"0/1@5"}}
		if !maps.EqualFunc(w.reach.pieces, want, slices.Equal) {
			t.Errorf("read %v, want %v", w.reach.pieces, want)
		}
		w.screen.shows(t, "the run has ended out of sight")
	})
}

func TestSession_ARunThatWasLostBeforeItsStartHasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.launch()
		synctest.Wait()
		w.reach.finds(func() (*Live, error) {
			return &Live{Host: &agent{}, State: event.State{Report: &report.Report{}}}, nil
		})
		w.lose()
		w.fails(report.ExitUnreachable, "lost the connection to a before the start", "nothing was started")
	})
}

func TestSession_AHeadHostThatIsNotFoundAgainIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.begin()
		synctest.Wait()
		began := time.Now()
		w.lose()
		w.fails(report.ExitUnreachable, "a, the head host of run job-1, cannot be reached any more", "The run may go on there")
		if took := time.Since(began); w.reach.opens != maxReturns || took != maxReturns*returnPause {
			t.Errorf("%d tries in %v", w.reach.opens, took)
		}
	})
}

func TestSession_WhenTheOtherHostsHaveEndedItLooksNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.begin()
		synctest.Wait()
		w.lose()
		w.agents[1].end(nil)
		w.fails(report.ExitUnreachable, "a, the head host", "workers have ended on b")
		if w.reach.opens > 2 {
			t.Errorf("%d tries", w.reach.opens)
		}
	})
}

func TestSession_ACoordinatorThatDoesNotAnswerIsGivenUpAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.spec.Run.Lease = 10 * time.Second
		w.begin()
		synctest.Wait()
		began := time.Now()
		w.reach.finds(func() (*Live, error) {
			if took := time.Since(began); took < w.spec.Run.Lease+silenceMargin {
				t.Errorf("it is given up after %v", took)
			}
			return nil, &MuteError{w.spec.Run, &SilentError{15 * time.Second}}
		})
		w.link.mute.Store(true)
		w.agents[1].end(nil)
		w.fails(report.ExitUnreachable, "the coordinator of run job-1 on a does not answer (for 15s)", "workers have ended on b; not seen to end on a")
	})
}

func TestSession_ACoordinatorThatDiedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.begin()
		synctest.Wait()
		close(w.link.broken)
		w.agents[0].say(message.FromAgent{Error: "the coordinator died"})
		w.agents[0].end(nil)
		w.fails(report.ExitInternal, "run job-1 has lost its coordinator on a: the coordinator died", "workers have ended on a")
		if w.reach.opens != 0 {
			t.Error("it was searched for")
		}
	})
}

func TestSession_ARunThatEndedWellWhileItsLauncherSleptHasItsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.reach.state = event.State{Report: ok}
		w.begin()
		synctest.Wait()
		close(w.link.broken)
		w.agents[0].end(nil)
		if <-w.ended; w.err != nil || w.end.Report != ok {
			t.Errorf("%+v, %v", w.end, w.err)
		}
	})
}

func TestSession_DetachLeavesTheRunOnceItHasBegun(t *testing.T) {
	for name, test := range map[string]struct {
		flag   bool
		asks   Request
		status int
	}{
		"--detach": {flag: true},
		"d":        {asks: Request{Detach: true, Reason: "detached"}},
		"SIGHUP":   {asks: Request{Detach: true, Exit: 129, Reason: "SIGHUP"}, status: 129},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.spec.Detach = test.flag
				w.begin()
				synctest.Wait()
				if !test.flag {
					w.requests <- test.asks
				}
				if <-w.ended; w.err != nil || w.end.Exit != test.status || w.end.Report != nil {
					t.Errorf("%+v, %v", w.end, w.err)
				}
				w.screen.shows(t, "run job-1 goes on: muster attach job-1 comes back to it")
				if len(w.link.stops) > 0 || !w.agents[0].isClosed {
					t.Errorf("stops: %v; connection closed: %v", w.link.stops, w.agents[0].isClosed)
				}
				w.agents[0].end(nil)
			})
		})
	}
}

func TestSession_BeforeItsStartARunCannotBeDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.launch()
		w.requests <- Request{Detach: true, Reason: "detached"}
		synctest.Wait()
		w.screen.shows(t, "it can be left once its workers run")
		w.requests <- Request{Detach: true, Exit: 129, Reason: "SIGHUP"}
		w.fails(129, "SIGHUP before the start was confirmed")
	})
}

func TestSession_CtrlCStopsThenKillsThenLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.begin()
		for _, r := range ctrlC {
			w.requests <- r
			synctest.Wait()
		}
		if stops := w.link.stops; len(stops) != 2 || stops[0].Kill || !stops[1].Kill || stops[1].Exit != 130 {
			t.Errorf("stops: %v", stops)
		}
		w.fails(130, "left run job-1 without waiting for its end", "on: a b")
	})
}

func TestSession_CtrlCGivesTheSearchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.begin()
		synctest.Wait()
		w.lose()
		w.requests <- ctrlC[0]
		w.requests <- ctrlC[1]
		w.fails(report.ExitUnreachable, "cannot be reached any more")
	})
}

func TestSession_PassesSignalsOnAndShowsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.begin()
		synctest.Wait()
		w.requests <- Request{Signal: "SIGUSR1"}
		w.requests <- Request{State: true}
		synctest.Wait()
		w.screen.shows(t, "state: running")
		if !slices.Equal(w.link.signals, []string{"SIGUSR1"}) {
			t.Errorf("signals: %v", w.link.signals)
		}
		w.over(ok)
		<-w.ended
	})
}

func TestSession_AHostThatCannotJoinStopsTheRunAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.launch()
		w.link.happens(event.Event{Kind: event.Linked, Host: "a"})
		synctest.Wait()
		w.agents[1].say(message.FromAgent{Error: "no way to the coordinator"})
		synctest.Wait()
		if stops := w.link.stops; len(stops) != 1 || !stops[0].Unstarted || stops[0].Reason != "b cannot take part" {
			t.Errorf("stops: %v", stops)
		}
		w.over(&report.Report{Outcome: report.Stopped, Exit: report.ExitUnreachable})
		w.fails(report.ExitUnreachable, "1 of 2 hosts cannot take part", "b: no way to the coordinator")
	})
}

func TestSession_AKeeperThatDoesNotEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.begin()
		w.agents[0].end(nil)
		w.link.happens(event.Event{Kind: event.Over, Report: &report.Report{Outcome: report.OK}})
		close(w.link.events)
		close(w.link.output)
		if <-w.ended; w.err != nil || !slices.Equal(w.end.Report.Left, []string{"b: its keeper has not ended yet"}) {
			t.Errorf("%+v, %v", w.end.Report, w.err)
		}
		w.agents[1].end(nil)
	})
}

func TestAttach_SaysWhatIsNewAndShowsTheLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.link.happens(event.Event{Kind: event.Committed})
		w.link.happens(event.Event{Kind: event.Warning})
		w.over(ok)
		end, err := Attach(t.Context(), w.spec, &Live{Host: &agent{}, Control: w.link.client(), Events: 1})
		if err != nil || end.Report.Outcome != report.OK || !w.link.logs.Tail {
			t.Errorf("%+v, %v, %v", end, err, w.link.logs)
		}
		w.screen.shows(t, "2 warning")
		if slices.Contains(w.screen.lines(), "1 committed") {
			t.Error("old events are shown")
		}
	})
}

func TestHost_OnlyAKeeperThatEndedByItselfLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		err   error
		empty bool
	}{{nil, true}, {&remote.ExitError{Status: 1}, true}, {&remote.ExitError{Signal: "KILL"}, false}, {&remote.LostError{Err: errors.New("gone")}, false}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a")
			w.agents[0].end(test.err)
			if <-w.fleet.Hosts[0].Gone(); w.fleet.Hosts[0].IsEmpty() != test.empty {
				t.Errorf("%v: empty is %v", test.err, !test.empty)
			}
		})
	}
}
