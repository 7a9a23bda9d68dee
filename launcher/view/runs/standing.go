package runs

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/plural"
)

// Standing is where a run stands, and how that is shown.
type Standing struct {
	Run   history.Run
	State event.State
	Now   time.Time
	Width int  // of the terminal; 0: lines may have any length
	Brief bool // what has come up is told by its first lines
}

// message says in words what goes on.
func (s Standing) message() string {
	if s.State.Name != event.Running {
		return s.State.Message
	}
	of := s.unit() + " on " + plural.Of(len(s.Run.Hosts), "host")
	all := s.Run.WorldSize()
	n := s.count()
	if n.run < all {
		return fmt.Sprintf("of %s: %s%s", of, n.words(), s.ofAttempt())
	}
	have := "have"
	if all == 1 {
		have = "has"
	}
	return fmt.Sprintf("%s %s been running for %s%s", of, have, age(n.since, s.Now), s.ofAttempt())
}

func (s Standing) unit() string {
	if s.Run.Tasks > 0 {
		return plural.Of(s.Run.Tasks, "task")
	}
	return plural.Of(s.Run.WorldSize(), "rank")
}

// ofAttempt names an attempt that is not the first.
func (s Standing) ofAttempt() string {
	if s.State.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d)", s.State.Attempt)
}

// standings counts ranks by where they stand.
type standings struct {
	run, ended, failed, waiting int
	since                       time.Time // when the last of those that run was started
}

func (s Standing) count() (n standings) {
	for rank := range s.Run.WorldSize() {
		r, started := s.State.Ranks[rank]
		switch {
		case !started || r.Attempt < s.State.Attempt:
			n.waiting++
		case r.Failed:
			n.failed++
		case r.Name == "running":
			n.run++
			if r.Since.After(n.since) {
				n.since = r.Since
			}
		default:
			n.ended++
		}
	}
	return n
}

func (n standings) words() string {
	var parts []string
	for _, part := range []struct {
		n     int
		words string
	}{{n.run, "running"}, {n.waiting, "not started yet"}, {n.ended, "ended"}, {n.failed, "failed"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.words))
		}
	}
	return strings.Join(parts, ", ")
}
