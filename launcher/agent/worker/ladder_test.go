//go:build linux

package worker

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/rendezvous/link"
)

func TestLadder(t *testing.T) {
	const grace = 30 * time.Second
	catching := processes{leaderAlive: true, leaderCatches: true, othersAlive: true}
	plain := processes{leaderAlive: true, othersAlive: true}
	orphans := processes{othersAlive: true}
	type at struct {
		after time.Duration
		seen  processes
		want  step
	}
	for name, steps := range map[string][]at{
		"a leader that catches the signal gets it alone": {
			{0, catching, stepSignalLeader}, {time.Second, catching, stepNone}, {19 * time.Second, catching, stepNone},
		},
		"its group gets it at two thirds of the grace": {
			{0, catching, stepSignalLeader}, {20 * time.Second, catching, stepSignalGroup}, {21 * time.Second, catching, stepNone},
		},
		"its group gets it once the leader has died": {
			{0, catching, stepSignalLeader}, {time.Second, orphans, stepSignalGroup}, {2 * time.Second, orphans, stepNone},
		},
		"a shell that does not catch it: the group at once": {
			{0, plain, stepSignalGroup}, {time.Second, plain, stepNone},
		},
		"all that is left is killed at the end, again and again": {
			{0, plain, stepSignalGroup}, {grace, plain, stepKill}, {grace + time.Second, orphans, stepKill},
		},
		"nothing is left to do when nothing is left": {
			{0, catching, stepSignalLeader}, {time.Second, processes{}, stepNone}, {grace, processes{}, stepNone},
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := link.Instant(time.Hour)
			l := ladder{grace: grace, began: began}
			for _, s := range steps {
				if got := l.next(began.Add(s.after), s.seen); got != s.want {
					t.Fatalf("after %v: step %d, want %d", s.after, got, s.want)
				}
			}
		})
	}
}

func TestASecondCtrlCSkipsTheGrace(t *testing.T) {
	l := ladder{grace: time.Minute}
	alive := processes{leaderAlive: true, leaderCatches: true}
	l.next(0, alive)
	l.kill()
	if got := l.next(0, alive); got != stepKill {
		t.Fatalf("step %d", got)
	}
}
