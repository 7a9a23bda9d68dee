//go:build linux

package worker

import (
	"time"

	"github.com/muster-dev/muster/rendezvous/link"
)

// ladder ends the processes of one rank step by step. It decides and does nothing itself.
//
// A leader that catches the stop signal gets it alone at first: its children (data loaders) stay alive while it writes
// its checkpoint. A leader that does not catch it would die and leave them, so the whole group gets it at once; so it
// does when the leader has died. At two thirds of the grace the group gets it anyway, at the end everything that is
// left is killed.
type ladder struct {
	grace time.Duration
	began link.Instant

	toLeader bool // steps taken
	toGroup  bool
	killed   bool
}

// processes is what the ladder knows of a rank's processes.
type processes struct {
	leaderAlive   bool
	leaderCatches bool // the stop signal
	othersAlive   bool
}

type step int

const (
	stepNone step = iota
	stepSignalLeader
	stepSignalGroup
	stepKill // everything that is left of the rank; repeated until nothing is
)

// next returns what to do now; it is asked again and again until nothing of the rank is left.
func (l *ladder) next(now link.Instant, p processes) step {
	if !p.leaderAlive && !p.othersAlive {
		return stepNone
	}
	passed := now.Sub(l.began)
	switch {
	case l.killed || passed >= l.grace:
		l.killed = true
		return stepKill
	case l.toGroup:
		return stepNone
	case p.leaderAlive && p.leaderCatches && passed < l.grace*2/3:
		if l.toLeader {
			return stepNone
		}
		l.toLeader = true
		return stepSignalLeader
	}
	l.toGroup = true
	return stepSignalGroup
}

func (l *ladder) kill() { l.killed = true }
